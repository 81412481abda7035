package front

import (
	"net/http"
	"strings"
)

// A Kind is what sort of client waits for the answer. It decides how things are said, never whether they are allowed.
type Kind uint8

const (
	API        Kind = iota // a program, or a part of a page
	Navigation             // a browser's address bar: somebody looks at the answer
	WebSocket
	GRPC
	Preflight // a browser asks whether it may ask
)

// KindOf looks at the method and at what browsers say of themselves; User-Agent says nothing.
func KindOf(r *http.Request) Kind {
	h := r.Header
	switch {
	case r.Method == http.MethodOptions && h["Origin"] != nil && h["Access-Control-Request-Method"] != nil:
		return Preflight
	case h["Upgrade"] != nil && strings.EqualFold(h.Get("Upgrade"), "websocket"):
		return WebSocket
	case isGRPC(h.Get("Content-Type")):
		return GRPC
	case r.Method == http.MethodGet && strings.Contains(h.Get("Accept"), "text/html") && (h["Sec-Fetch-Mode"] == nil || h.Get("Sec-Fetch-Mode") == "navigate"):
		return Navigation
	}
	return API
}

func isGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}
