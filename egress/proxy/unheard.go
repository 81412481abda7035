package proxy

import (
	"crypto/tls"
	"sync"

	"portreeve.dev/policies"
)

// An h2Conn is what net/http reads HTTP/2 from. What is malformed net/http refuses by itself, before any handler, and none of its hooks says on which
// connection. But the frames that go by tell, by their heads alone: a stream that it resets and no handler heard of was refused; of more answers than
// handlers heard of, one was net/http's own (400 for a field of connections, 431 for a list that is too long); and what it ends the connection for was
// refused too. An answer of its own is known for one as soon as nothing that was heard waits for its answer: of a connection that ends
// while something does, so many of them may stay unrecorded; a stream that a handler heard and the client then took back waits for ever. A stream that the client takes back before it is heard or refused is nobody's refusal.
type h2Conn struct {
	*tls.Conn
	c       *connection
	in, out frames // each of the one goroutine that reads, or writes

	mu        sync.Mutex
	last      uint32          // the newest stream of the client's
	opened    int64           // how many it opened
	answered  int64           // how many answers began
	unasked   int64           // of those, how many no handler gave
	recorded  int64           // refusals, the unasked answers among them
	answering map[uint32]bool // streams whose answer has begun and not ended
}

func newH2Conn(conn *tls.Conn, c *connection) *h2Conn {
	return &h2Conn{Conn: conn, c: c, in: frames{skip: len(http2Preface)}, answering: make(map[uint32]bool)}
}

func (h *h2Conn) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	h.in.follow(p[:n], h.came)
	return n, err
}

// Write records what the client is told before it is told.
func (h *h2Conn) Write(p []byte) (int, error) {
	h.out.follow(p, h.goes)
	return h.Conn.Write(p)
}

// came is told of each frame of the client's.
func (h *h2Conn) came(f frame) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case f.kind == frameHeaders && f.stream > h.last && f.stream%2 == 1: // a lower one has trailers
		h.last = f.stream
		h.opened++
	case f.kind == frameReset:
		delete(h.answering, f.stream)
	}
}

// goes is told of each frame of ours.
func (h *h2Conn) goes(f frame) {
	if reason := h.refuses(f); reason != "" {
		_ = h.c.record(h.c.decision(layerHTTP, levelHTTP, judgement{req: h.c.request(policies.StageRequest, policies.HTTPS)}.deny(reason)))
	}
}

// refuses returns why something was refused, if f is net/http's own word for that. A handler is heard of before it answers; one that was only
// just started may not be yet, so that at worst a stream that broke off under its own handler is taken for one without.
func (h *h2Conn) refuses(f frame) (reason policies.Reason) {
	h.mu.Lock()
	defer h.mu.Unlock()
	heard := h.c.requests.Load()
	switch f.kind {
	case frameHeaders:
		if !h.answering[f.stream] {
			h.answered++
		}
		if h.answered-heard > h.unasked {
			h.unasked++
			reason = policies.ReasonParse
		}
		h.answering[f.stream] = true
	case frameReset:
		if !h.answering[f.stream] && h.opened-heard > h.recorded {
			reason = refusalBy[f.code]
		}
	case frameGoAway:
		if reason = refusalBy[f.code]; reason == "" && f.code != noError {
			reason = policies.ReasonParse
		}
	}
	if f.kind == frameReset || f.ends() {
		delete(h.answering, f.stream)
	}
	if reason != "" {
		h.recorded++
	}
	return reason
}

const noError = 0

// refusalBy are the codes with which a stream is refused (RFC 9113, section 7). Others end what was heard.
var refusalBy = map[uint32]policies.Reason{
	0x1: policies.ReasonParse,  // PROTOCOL_ERROR
	0x7: policies.ReasonBudget, // REFUSED_STREAM
	0xb: policies.ReasonBudget, // ENHANCE_YOUR_CALM
}
