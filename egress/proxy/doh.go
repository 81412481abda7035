package proxy

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
)

// asksResolver reports whether the request is a DNS question in HTTP (RFC 8484 and its kin), to whatever host: a server that answers
// them would tell the sandbox of names, and carry what it asks.
func (x *exchange) asksResolver() bool {
	return hasDNSType(x.r.Header["Content-Type"]) || hasDNSType(x.r.Header["Accept"]) || x.hasQuery && asksInQuery(x.query) || x.hasMessage()
}

// hasMessage: some servers take a question whatever its type says, but the path that everybody uses gives it away.
func (x *exchange) hasMessage() bool {
	return x.r.Method == http.MethodPost && strings.HasSuffix(x.path, "/dns-query") && len(x.r.Header["Content-Type"]) == 0
}

var dnsTypes = []string{"application/dns-message", "application/dns-json", "application/oblivious-dns-message", "application/dns-udpwireformat"}

func hasDNSType(values []string) bool {
	for _, v := range values {
		if !strings.Contains(v, "/") || len(v) < len("application/dns-") {
			continue
		}
		v = strings.ToLower(v)
		for _, t := range dnsTypes {
			if strings.Contains(v, t) {
				return true
			}
		}
	}
	return false
}

// asksInQuery finds a parameter dns that holds a DNS question; one that holds something else is the application's own.
func asksInQuery(query string) bool {
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if strings.Contains(name, "%") {
			name, _ = url.QueryUnescape(name)
		}
		if !strings.EqualFold(name, "dns") {
			continue
		}
		if strings.Contains(value, "%") {
			value, _ = url.QueryUnescape(value)
		}
		if isQuestion(value) {
			return true
		}
	}
	return false
}

// isQuestion reports whether the text is a DNS query with one question, in base64 of either alphabet.
func isQuestion(text string) bool {
	text = strings.NewReplacer("-", "+", "_", "/", " ", "+", "=", "").Replace(text)
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || len(b) < 17 { // a head, and the shortest question
		return false
	}
	return b[2]&0xf8 == 0 && b[4] == 0 && b[5] == 1 // a query, with one question
}
