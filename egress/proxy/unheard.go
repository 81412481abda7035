package proxy

import (
	"net"
	"net/http"

	"portreeve.dev/policies"
)

// heard watches the streams of an HTTP/2 connection: what net/http refuses by itself, such as a path with a broken escape, reaches no handler,
// and its hook for errors names no connection. But the state of the connection tells when a stream begins on it while no other is
// open. One that begins and brings no request was refused. Under the connection's lock.
type heard struct {
	began bool  // the server says once that it is active, for the preface
	open  bool  // a stream began
	then  int64 // how many requests had been heard when it did
}

// onConnState is told by the HTTP server what its connections do.
func onConnState(nc net.Conn, state http.ConnState) {
	if c := ownerOf(nc); state == http.StateActive && c.opened && c.guard == nil {
		c.unheard(true)
	}
}

// unheard records the stream that began last, if it brought no request, once another begins or the connection ends: the handler of one
// that was cut off may still be about to start.
func (c *connection) unheard(another bool) {
	c.mu.Lock()
	h := c.streams
	now := c.requests.Load()
	c.streams = heard{began: h.began || another, open: another && h.began, then: now}
	c.mu.Unlock()
	if h.open && now == h.then {
		_ = c.record(c.decision(layerHTTP, levelHTTP, judgement{req: c.request(policies.StageRequest, policies.HTTPS)}.deny(policies.ReasonParse)))
	}
}
