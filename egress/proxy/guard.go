package proxy

import (
	"net"
	"sync"
	"time"

	"portreeve.dev/egress/proxy/httphead"
)

// A guardConn is what net/http reads HTTP/1 from: only checked heads come out of it. It also holds each head to its
// deadline, which the server by itself does for the first request of a connection only.
type guardConn struct {
	net.Conn
	reader *httphead.Reader
	limit  time.Duration

	mu   sync.Mutex
	want time.Time // the server's read deadline
	head time.Time // ours, while a head is coming in
}

func newGuard(nc net.Conn, limit time.Duration) *guardConn {
	g := &guardConn{Conn: nc, limit: limit}
	g.reader = httphead.NewReader(nc)
	g.reader.OnHead = g.onHead
	return g
}

func (g *guardConn) Read(p []byte) (int, error) { return g.reader.Read(p) }

// NetConn is the connection inside.
func (g *guardConn) NetConn() net.Conn { return g.Conn }

func (g *guardConn) CloseWrite() error { return closeWrite(g.Conn) }

func (g *guardConn) SetReadDeadline(t time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.want = t
	return g.apply()
}

func (g *guardConn) SetDeadline(t time.Time) error {
	if err := g.SetReadDeadline(t); err != nil {
		return err
	}
	return g.Conn.SetWriteDeadline(t)
}

func (g *guardConn) onHead(begun bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.head = time.Time{}
	if begun {
		g.head = time.Now().Add(g.limit)
	}
	_ = g.apply()
}

// apply sets the earlier of both deadlines. The caller holds mu.
func (g *guardConn) apply() error {
	t := g.want
	if t.IsZero() || !g.head.IsZero() && g.head.Before(t) {
		t = g.head
	}
	return g.Conn.SetReadDeadline(t)
}
