package proxy

import (
	"net/http"
	"strings"

	"portreeve.dev/policies"
)

// hopByHop are the fields that belong to one connection (RFC 9110, section 7.6.1), and those that were once used so.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings",
}

// removeHopByHop takes out what must not be forwarded, and what the Connection field names.
// It runs before anything of ours is added, so that nothing a client or server lists can remove that.
func removeHopByHop(h http.Header) {
	for _, list := range h["Connection"] {
		for field := range strings.SplitSeq(list, ",") {
			if field = strings.TrimSpace(field); field != "" {
				h.Del(field)
			}
		}
	}
	for _, field := range hopByHop {
		delete(h, field)
	}
	for field := range h {
		if strings.HasPrefix(field, "Proxy-") {
			delete(h, field)
		}
	}
}

// hasToken reports whether a comma-separated field has the token, which is lower case.
func hasToken(values []string, token string) bool {
	for _, list := range values {
		for field := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.TrimSpace(field), token) {
				return true
			}
		}
	}
	return false
}

// wantsWebSocket reports whether the request asks to go on as a WebSocket, and for nothing else.
func wantsWebSocket(r *http.Request) bool {
	up := r.Header["Upgrade"]
	return r.ProtoMajor == 1 && r.ProtoMinor == 1 && r.Method == http.MethodGet && r.ContentLength == 0 &&
		len(up) == 1 && strings.EqualFold(up[0], "websocket") && hasToken(r.Header["Connection"], "upgrade")
}

// prepareHeader makes the client's fields fit for the next hop, in place.
func prepareHeader(r *http.Request, webSocket bool) {
	trailers := hasToken(r.Header["Te"], "trailers")
	removeHopByHop(r.Header)
	if trailers {
		r.Header["Te"] = []string{"trailers"} // gRPC servers ask for it
	}
	if webSocket {
		r.Header["Connection"] = []string{"Upgrade"}
		r.Header["Upgrade"] = []string{"websocket"}
	}
	if _, ok := r.Header["User-Agent"]; !ok {
		r.Header["User-Agent"] = nil // else the transport adds its own
	}
	delete(r.Header, "Host")
	delete(r.Header, "Content-Length")
}

// overriding returns the name of a field, or of a query parameter, by which a server may take another method or path than the request
// line's, if there is one. A field that comes behind the body is one too, to servers that join both.
func (x *exchange) overriding() string {
	for _, h := range []http.Header{x.r.Header, x.r.Trailer} {
		for name := range h {
			if name != "" && name[0]|0x20 == 'x' && policies.OverrideHeader(name) {
				return strings.ToLower(name)
			}
		}
	}
	if policies.OverrideQuery(x.query) != "" {
		return "?_method"
	}
	return ""
}

// cleanAnswer takes out of an upstream's answer what belongs to its connection, and what only answers of ours may have.
func cleanAnswer(h http.Header) {
	removeHopByHop(h)
	delete(h, HeaderDecision)
}
