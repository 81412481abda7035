package secrets

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// A carrier's name says so. Names are cut into words at punctuation and capitals, and these are the words that public APIs
// take credentials under (Authorization, X-Api-Key, PRIVATE-TOKEN, X-Amz-Security-Token, Ocp-Apim-Subscription-Key,
// ?access_token=, ?sig=, ...). Removing one too many breaks a call visibly; one too few lets another account in silently.
var carrierWords = words(`auth authorization authentication oauth bearer token jwt secret password passwd passphrase pwd pass
	credential credentials session sessionid sid sessid signature sig hmac cookie cookie2 ticket assertion saml samlresponse login otp totp
	apikey xapikey accesskey accesskeyid secretkey subscriptionkey authkey privatekey accesstoken authtoken sessiontoken refreshtoken idtoken
	apitoken awsaccesskeyid googleaccessid sharedkey sas apisecret clientsecret appkey appsecret authtok userpwd`)

// A key by itself is one (?key=, Key:); behind another word only behind one of these, so that sort_key is none.
var keyOwners = words(`api access subscription private secret account app application client project consumer auth license licence
	service public shared master admin user developer functions signing x`)

// Tokens that say where in a list one is, or which kind of thing is meant, and not who is asking.
var tokenOfAPage = words(`page next continuation continue sync resume previous prev cursor start idempotency request-id`)

// Prefixes of headers in which the clouds carry pieces of signed requests.
var carrierPrefixes = []string{"x-amz-", "x-goog-authenticated", "x-goog-iap", "x-ms-authorization", "x-ms-token", "cf-access-", "x-forwarded-access", "x-original-authorization"}

func words(list string) map[string]bool {
	set := make(map[string]bool)
	for w := range strings.FieldsSeq(list) {
		set[w] = true
	}
	return set
}

// split cuts a name into lower-case words: X-Api-Key, access_token, pageToken.
func split(name string) (parts []string) {
	var word []byte
	flush := func() {
		if len(word) > 0 {
			parts = append(parts, strings.ToLower(string(word)))
			word = nil
		}
	}
	for i := range len(name) {
		c := name[i]
		upper := c >= 'A' && c <= 'Z'
		switch {
		case !upper && (c < 'a' || c > 'z') && (c < '0' || c > '9'):
			flush()
			continue
		case upper && i > 0 && name[i-1] >= 'a' && name[i-1] <= 'z':
			flush()
		}
		word = append(word, c)
	}
	flush()
	return parts
}

// isCarrier reports whether a header or query key of that name is taken for a credential.
func isCarrier(name string) bool {
	lower := strings.ToLower(name)
	if lower == "sec-websocket-key" || lower == "x-goog-api-client" {
		return false
	}
	for _, p := range carrierPrefixes {
		if strings.HasPrefix(lower, p) {
			return true
		}
	}
	parts := split(name)
	if len(parts) == 1 && parts[0] == "key" || carrierWords[strings.Join(parts, "")] {
		return true
	}
	for i, w := range parts {
		switch {
		case (w == "token" || w == "key") && i > 0 && tokenOfAPage[parts[i-1]]:
		case carrierWords[w], w == "key" && i > 0 && keyOwners[parts[i-1]]:
			return true
		}
	}
	return false
}

// A Found is a credential that was removed, by place.
type Found string

// removeCarriers takes every credential out of r that its sender put there, and says where they were.
func removeCarriers(r *http.Request) (found []Found) {
	for name := range r.Header {
		if isCarrier(name) {
			found = append(found, Found("header:"+strings.ToLower(name)))
			delete(r.Header, name)
		}
	}
	for name := range r.Trailer { // announced now, sent after the body: too late to judge then
		if isCarrier(name) {
			found = append(found, Found("trailer:"+strings.ToLower(name)))
		}
	}
	r.Trailer = nil
	if r.URL.User != nil {
		found = append(found, "userinfo")
		r.URL.User = nil
	}
	query, removed := cleanQuery(r.URL.RawQuery)
	r.URL.RawQuery = query
	found = append(found, removed...)
	slices.Sort(found)
	return found
}

// cleanQuery drops the pairs whose key is a carrier's and keeps the bytes of the rest as they are. A key that doesn't decode
// is dropped too: whoever reads it may see a carrier in it.
func cleanQuery(raw string) (clean string, found []Found) {
	if raw == "" {
		return "", nil
	}
	var keep []string
	for pair := range strings.FieldsFuncSeq(raw, func(c rune) bool { return c == '&' || c == ';' }) {
		key, _, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(key)
		if err != nil || isCarrier(name) {
			found = append(found, Found("query:"+strings.ToLower(clip(name))))
			continue
		}
		keep = append(keep, pair)
	}
	return strings.Join(keep, "&"), found
}

// clip keeps a name that a sandbox chose short in the record.
func clip(s string) string { return s[:min(len(s), 64)] }
