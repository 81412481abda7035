package explicit

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"portreeve.dev/egress/credentials"
)

// A headConn gives net/http one head, which was checked, and then nothing: what the client sent behind it belongs to whoever
// gets the connection. A Read beyond the head waits until the server interrupts it, as it does before it gives a connection away.
type headConn struct {
	net.Conn
	ctx     context.Context
	keeper  credentials.Keeper
	connect bool
	head    []byte // as it came
	unread  []byte // what is left of it for the server
	rest    []byte // what came behind it

	mu    sync.Mutex
	woken chan struct{} // closed when a Read must return
	over  bool          // woken is closed

	settled chan struct{} // closed when it was handed on or refused
	once    sync.Once
}

func (c *headConn) settle() { c.once.Do(func() { close(c.settled) }) }

func (c *headConn) Read(p []byte) (int, error) {
	if len(c.unread) > 0 {
		n := copy(p, c.unread)
		c.unread = c.unread[n:]
		return n, nil
	}
	c.mu.Lock()
	woken := c.woken
	c.mu.Unlock()
	select {
	case <-woken:
		return 0, os.ErrDeadlineExceeded
	case <-c.ctx.Done():
		return 0, io.EOF
	}
}

// SetReadDeadline interrupts a Read if the time is past. Another deadline isn't needed: the head is here.
func (c *headConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	past := !t.IsZero() && !t.After(time.Now())
	switch {
	case past && !c.over:
		close(c.woken)
	case !past && c.over:
		c.woken = make(chan struct{})
	}
	c.over = past
	return nil
}

func (c *headConn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.Conn.SetWriteDeadline(t)
}

// Close is the server's: after it nothing waits here.
func (c *headConn) Close() error {
	_ = c.SetReadDeadline(time.Now().Add(-time.Second))
	defer c.settle()
	return c.Conn.Close()
}
