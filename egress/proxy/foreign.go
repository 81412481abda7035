package proxy

import (
	"net/http"
	"net/url"
	"strings"
)

// carrierHeaders are the header fields in which credentials travel, as net/http spells them.
var carrierHeaders = []string{
	"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "Api-Key", "Apikey", "X-Apikey", "X-Api-Token", "X-Auth-Token", "X-Auth-Key",
	"X-Access-Token", "X-Token", "X-Goog-Api-Key", "X-Amz-Security-Token", "X-Github-Token",
	"Private-Token", "Job-Token", "Deploy-Token", "X-Gitlab-Token", "X-Vault-Token", "X-Shopify-Access-Token", "X-Figma-Token", "X-Session-Token",
	"X-Secret", "X-Api-Secret", "X-Client-Secret", "X-Subscription-Token", "Ocp-Apim-Subscription-Key", "X-Rapidapi-Key",
	"Dd-Api-Key", "Dd-Application-Key", "X-Honeycomb-Team", "X-Consumer-Key", "X-Functions-Key", "X-Ms-Authorization-Auxiliary", "Xi-Api-Key",
}

// carrierKeys are the query keys in which credentials travel, in lower case.
var carrierKeys = map[string]bool{
	"api_key": true, "apikey": true, "api-key": true, "key": true, "token": true, "access_token": true, "auth_token": true, "auth": true,
	"authorization": true, "id_token": true, "refresh_token": true, "private_token": true, "session_token": true, "sessionid": true,
	"secret": true, "client_secret": true, "password": true, "passwd": true, "pwd": true, "jwt": true,
	"sig": true, "signature": true, "x-amz-signature": true, "x-amz-credential": true, "x-amz-security-token": true,
	"x-goog-signature": true, "x-goog-credential": true, "awsaccesskeyid": true, "googleaccessid": true, "subscription-key": true,
}

// A carrier is a place in which the sandbox sent something like a credential. The value stays in here: it is compared,
// never written.
type carrier struct {
	place  string // header:authorization, query:key
	header string // field name, or
	key    string // query key as sent, still encoded
	value  string // what was sent: field values joined, or the raw pair
}

// granted reports whether a secret is granted to the host: then every byte of the connection must be seen.
func (c *connection) granted() bool {
	return c.host != "" && !c.local && c.p.cfg.Injector != nil && c.p.cfg.Injector.Granted(c.binding, c.host)
}

// carriers lists what the request carries.
func carriers(r *http.Request) []carrier {
	var found []carrier
	for _, name := range carrierHeaders {
		if values := r.Header[name]; len(values) > 0 {
			found = append(found, carrier{place: "header:" + strings.ToLower(name), header: name, value: strings.Join(values, "\x00")})
		}
	}
	for pair := range queryPairs(r.URL.RawQuery) {
		if key, name, ok := carrierPair(pair); ok {
			found = append(found, carrier{place: "query:" + name, key: key, value: pair})
		}
	}
	return found
}

// carrierPair reports whether a raw query pair is of a carrier key: spelled in any case and any encoding.
func carrierPair(pair string) (key, name string, ok bool) {
	key, _, _ = strings.Cut(pair, "=")
	name = key
	if plain, err := url.QueryUnescape(key); err == nil {
		name = plain
	}
	name = strings.ToLower(strings.TrimSpace(name))
	return key, name, carrierKeys[name]
}

// queryPairs splits a raw query where some server would: at & and at ;.
func queryPairs(query string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for query != "" {
			pair := query
			if i := strings.IndexAny(query, "&;"); i >= 0 {
				pair, query = query[:i], query[i+1:]
			} else {
				query = ""
			}
			if pair != "" && !yield(pair) {
				return
			}
		}
	}
}

// strip removes those carriers that still say what the sandbox sent, so that one which an injector has replaced stays.
func strip(r *http.Request, found []carrier) {
	for _, f := range found {
		if f.header != "" {
			if strings.Join(r.Header[f.header], "\x00") == f.value {
				delete(r.Header, f.header)
			}
			continue
		}
		var kept []string
		for pair := range queryPairs(r.URL.RawQuery) {
			if pair != f.value {
				kept = append(kept, pair)
			}
		}
		r.URL.RawQuery = strings.Join(kept, "&")
	}
}

// places lists where the carriers are, for the record.
func places(found []carrier) string {
	list := make([]string, len(found))
	for i, f := range found {
		list[i] = f.place
	}
	return strings.Join(list, ", ")
}
