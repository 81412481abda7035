package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"portreeve.dev/policies/httphead"
)

// A guardConn is what net/http reads HTTP/1 from: only checked heads come out of it. It also holds each head to its
// deadline, which the server by itself does for the first request of a connection only.
//
// A client may shut its side once it has asked. The server would take that for a client that left and drop the request,
// so the end of the stream is kept from it for a while if an answer is due.
type guardConn struct {
	net.Conn
	reader   *httphead.Reader
	answered atomic.Int64 // requests that the handler is done with
	ctx      context.Context
	limit    time.Duration // for a head
	grace    time.Duration // for an answer after the end of the stream

	mu    sync.Mutex
	want  time.Time     // the server's read deadline
	head  time.Time     // ours, while a head is coming in
	abort chan struct{} // closed and renewed when the server interrupts its own read
}

func newGuard(nc net.Conn, c *connection) *guardConn {
	t := c.p.cfg.Timeouts
	g := &guardConn{Conn: nc, ctx: c.ctx, limit: t.Head, grace: t.HalfClosed, abort: make(chan struct{})}
	g.reader = httphead.NewReader(nc)
	g.reader.OnHead = g.onHead
	return g
}

func (g *guardConn) Read(p []byte) (int, error) {
	g.mu.Lock()
	abort := g.abort
	g.mu.Unlock()
	n, err := g.reader.Read(p)
	if err == io.EOF && n == 0 && g.reader.Between() && g.reader.Heads() > g.answered.Load() {
		err = g.await(abort)
	}
	return n, err
}

// Close closes the connection. After a refusal it first waits for what the client still sends: a close with unread bytes
// would be a reset, which can overtake the answer.
func (g *guardConn) Close() error {
	if g.reader.Refusal() != nil && g.ctx.Err() == nil {
		_ = g.CloseWrite()
		_ = g.Conn.SetReadDeadline(time.Now().Add(time.Second))
		_, _ = io.CopyN(io.Discard, g.Conn, 4*httphead.MaxHead)
	}
	return g.Conn.Close()
}

// await holds back the end of the stream while an answer is due.
func (g *guardConn) await(abort <-chan struct{}) error {
	timer := time.NewTimer(g.grace)
	defer timer.Stop()
	select {
	case <-abort:
		return os.ErrDeadlineExceeded
	case <-g.ctx.Done():
	case <-timer.C:
	}
	return io.EOF
}

// NetConn is the connection inside.
func (g *guardConn) NetConn() net.Conn { return g.Conn }

// CloseWrite ends our side: of TLS, if it is opened, and of TCP.
func (g *guardConn) CloseWrite() error {
	if conn, ok := g.Conn.(*tls.Conn); ok {
		_ = conn.CloseWrite()
	}
	return closeWrite(ownerOf(g.Conn).client)
}

func (g *guardConn) SetReadDeadline(t time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.want = t
	if !t.IsZero() && t.Before(time.Now()) {
		close(g.abort)
		g.abort = make(chan struct{})
	}
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
