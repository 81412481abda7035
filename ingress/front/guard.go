package front

import (
	"net"
	"sync"
	"time"

	"portreeve.dev/policies/httphead"
)

// A guard is what net/http reads HTTP/1 from: only checked heads come out of it. It holds each head to its deadline, which
// the server by itself does for the first one only.
type guard struct {
	net.Conn
	reader *httphead.Reader
	limit  time.Duration

	mu   sync.Mutex
	want time.Time // the server's read deadline
	head time.Time // ours, while a head is coming in
}

func newGuard(nc net.Conn, limit time.Duration) *guard {
	g := &guard{Conn: nc, reader: httphead.NewReader(nc), limit: limit}
	g.reader.OnHead = g.onHead
	return g
}

func (g *guard) Read(p []byte) (int, error) { return g.reader.Read(p) }

// CloseWrite ends what we send.
func (g *guard) CloseWrite() error {
	if c, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

func (g *guard) SetReadDeadline(t time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.want = t
	return g.apply()
}

func (g *guard) SetDeadline(t time.Time) error {
	if err := g.SetReadDeadline(t); err != nil {
		return err
	}
	return g.SetWriteDeadline(t)
}

func (g *guard) onHead(begun bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.head = time.Time{}
	if begun {
		g.head = time.Now().Add(g.limit)
	}
	_ = g.apply()
}

// apply sets the earlier of both deadlines. The caller holds mu.
func (g *guard) apply() error {
	t := g.want
	if t.IsZero() || !g.head.IsZero() && g.head.Before(t) {
		t = g.head
	}
	return g.Conn.SetReadDeadline(t)
}
