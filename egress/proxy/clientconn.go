package proxy

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"portreeve.dev/egress"
)

// A clientConn is the sandbox's end of a connection: it gives back what was peeked, knows when a byte last moved, and
// tells its owner when it is closed.
type clientConn struct {
	net.Conn
	owner  *connection
	peeked []byte // to be read first; owned by the reader
	once   sync.Once
}

func (c *clientConn) Read(p []byte) (int, error) {
	if len(c.peeked) > 0 {
		n := copy(p, c.peeked)
		if c.peeked = c.peeked[n:]; len(c.peeked) == 0 {
			c.peeked = nil
		}
		c.owner.came(n)
		return n, nil
	}
	n, err := c.Conn.Read(p)
	c.touch(n)
	c.owner.came(n)
	return n, err
}

func (c *clientConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.touch(n)
	c.owner.went(n)
	return n, err
}

func (c *clientConn) touch(n int) {
	if n > 0 {
		c.owner.live.Moved()
	}
}

// Close closes the connection; what the owner holds for it goes with it.
func (c *clientConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.owner.closed)
	return err
}

// CloseWrite sends FIN.
func (c *clientConn) CloseWrite() error { return closeWrite(c.Conn) }

// NetConn is the connection as it was accepted.
func (c *clientConn) NetConn() net.Conn { return c.Conn }

// ownerOf finds the connection to which a net.Conn of the HTTP server belongs.
func ownerOf(nc net.Conn) *connection {
	for {
		switch c := nc.(type) {
		case *clientConn:
			return c.owner
		case interface{ NetConn() net.Conn }:
			nc = c.NetConn()
		default:
			panic("proxy: a connection without an owner")
		}
	}
}

// tcpOf unwraps to the TCP connection, for splice, FIN and RST; nil if there is none.
func tcpOf(nc net.Conn) *net.TCPConn {
	for {
		switch c := nc.(type) {
		case *net.TCPConn:
			return c
		case interface{ NetConn() net.Conn }:
			nc = c.NetConn()
		default:
			return nil
		}
	}
}

// closeWrite sends FIN. What can't be half-closed is closed.
func closeWrite(nc net.Conn) error {
	if c := tcpOf(nc); c != nil {
		return c.CloseWrite()
	}
	if c, ok := bottom(nc).(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nc.Close()
}

// resetOnClose makes the coming Close send RST: at once, and nothing that is queued.
func resetOnClose(nc net.Conn) {
	if c := tcpOf(nc); c != nil {
		_ = c.SetLinger(0)
	}
	if c, ok := bottom(nc).(*sealedConn); ok {
		c.abort.Store(true)
	}
}

// An idleWatch calls expire once nothing has moved for the limit. It costs a timer and no goroutine.
type idleWatch struct {
	live   *egress.Live
	limit  atomic.Int64
	expire func()

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

func (w *idleWatch) start(live *egress.Live, limit time.Duration, expire func()) {
	w.live, w.expire = live, expire
	w.limit.Store(int64(limit))
	live.Moved()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(limit, w.check)
}

func (w *idleWatch) check() {
	left := time.Duration(w.limit.Load()) - w.live.Idle()
	if left <= 0 {
		w.expire()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.timer.Reset(left)
	}
}

// extend changes the limit; a longer one holds from the next check on.
func (w *idleWatch) extend(limit time.Duration) { w.limit.Store(int64(limit)) }

func (w *idleWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
}
