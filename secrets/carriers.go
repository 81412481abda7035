package secrets

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// A Found is the place of a credential that a request carries: "header:authorization", "query:key". It never holds a value,
// and is at most 64 bytes long.
type Found string

const maxFound = 64

// found names a place. The sandbox chose the name, so it is cut and made printable.
func found(kind, name string) Found {
	place := []byte(kind + ":" + strings.ToLower(name))
	for i, c := range place {
		if c < ' ' || c > '~' {
			place[i] = '?'
		}
	}
	return Found(place[:min(len(place), maxFound)])
}

// Carriers lists the credentials in r by place, sorted. r stays as it is.
func Carriers(r *http.Request) (list []Found) {
	for name, values := range r.Header {
		if inHeader(name, values) {
			list = append(list, found("header", name))
		}
	}
	for name := range r.Trailer {
		if carrierHeader(name) {
			list = append(list, found("trailer", name))
		}
	}
	if r.URL.User != nil {
		list = append(list, "userinfo")
	}
	for pair := range pairs(r.URL.RawQuery) {
		if name, ok := inQuery(pair); ok {
			list = append(list, found("query", name))
		}
	}
	slices.Sort(list)
	return list
}

// RemoveCarriers takes every credential that its sender put there out of r, and returns what Carriers would have. No trailer
// stays: trailers come behind the body, when it is too late to judge them.
func RemoveCarriers(r *http.Request) []Found {
	list := Carriers(r)
	r.Trailer = nil
	if len(list) == 0 {
		return nil
	}
	for name, values := range r.Header {
		if inHeader(name, values) {
			delete(r.Header, name)
		}
	}
	r.URL.User = nil
	r.URL.RawQuery = cleanQuery(r.URL.RawQuery)
	return list
}

// inHeader reports whether a field is a carrier, by its name or, for the one field that has another use too, by its value.
func inHeader(name string, values []string) bool {
	return carrierHeader(name) || name == "Sec-Websocket-Protocol" && slices.ContainsFunc(values, inProtocols)
}

// longestProtocol is more than any registered WebSocket subprotocol has.
const longestProtocol = 40

// inProtocols reports whether a list of WebSocket subprotocols has a credential in it. Browsers can't set other fields, so
// there are APIs that take one here: openai-insecure-api-key.VALUE, base64url.bearer.authorization.k8s.io.VALUE, or bare.
func inProtocols(list string) bool {
	for protocol := range strings.SplitSeq(list, ",") {
		protocol = strings.TrimSpace(protocol)
		label, _, _ := strings.Cut(protocol, ".")
		if len(protocol) > longestProtocol || carrierKey(protocol) || carrierKey(label) {
			return true
		}
	}
	return false
}

// pairs cuts a raw query where some server would: at & and at ;.
func pairs(raw string) func(yield func(string) bool) {
	return strings.FieldsFuncSeq(raw, func(c rune) bool { return c == '&' || c == ';' })
}

// inQuery reports whether a raw pair's key is a carrier's, however it is encoded. A key that doesn't decode is taken for one:
// whoever reads it may see one in it.
func inQuery(pair string) (name string, ok bool) {
	key, _, _ := strings.Cut(pair, "=")
	name, err := url.QueryUnescape(key)
	if err != nil {
		return "(unreadable)", true
	}
	return name, carrierKey(name)
}

// cleanQuery drops the pairs that carry a credential and keeps the bytes of the others.
func cleanQuery(raw string) string {
	var keep []string
	dropped := false
	for pair := range pairs(raw) {
		if _, ok := inQuery(pair); ok {
			dropped = true
			continue
		}
		keep = append(keep, pair)
	}
	if !dropped {
		return raw
	}
	return strings.Join(keep, "&")
}
