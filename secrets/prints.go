package secrets

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// A Print is a credential that a request carries, as it may be written down: its place, and a hash by which it is known again.
// Whoever lacks the key can't find out what it is of, not even of a value from a short list.
type Print struct {
	Place Found
	Hash  string // 32 hex digits; empty without a key, and for a trailer, whose value comes too late
}

// Prints lists what Carriers does, with hashes under key. r stays as it is.
func Prints(r *http.Request, key []byte) (list []Print) {
	for name, values := range r.Header {
		if inHeader(name, values) {
			list = append(list, Print{found("header", name), hashOf(key, bare(name, strings.Join(values, "\n")))})
		}
	}
	for name := range r.Trailer {
		if carrierHeader(name) {
			list = append(list, Print{Place: found("trailer", name)})
		}
	}
	if r.URL.User != nil {
		list = append(list, Print{"userinfo", hashOf(key, r.URL.User.String())})
	}
	for pair := range pairs(r.URL.RawQuery) {
		if name, ok := inQuery(pair); ok {
			_, value, _ := strings.Cut(pair, "=")
			if clear, err := url.QueryUnescape(value); err == nil {
				value = clear
			}
			list = append(list, Print{found("query", name), hashOf(key, value)})
		}
	}
	slices.SortFunc(list, func(a, b Print) int { return strings.Compare(string(a.Place)+a.Hash, string(b.Place)+b.Hash) })
	return list
}

// bare takes the scheme off, so that a token is known again in whatever place it comes.
func bare(name, value string) string {
	if name != "Authorization" && name != "Proxy-Authorization" {
		return value
	}
	if scheme, token, ok := strings.Cut(value, " "); ok && !strings.ContainsAny(scheme, "=,") {
		return strings.TrimSpace(token)
	}
	return value
}

func hashOf(key []byte, value string) string {
	if len(key) == 0 {
		return ""
	}
	h := hmac.New(sha256.New, key)
	h.Write([]byte(value))
	return hex.EncodeToString(h.Sum(nil)[:16])
}
