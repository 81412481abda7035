package egresstest

import (
	"net"
	"net/netip"
	"sync"
	"testing"
)

// A Wire is the listener of what comes out of sandboxes unasked. It accepts real connections and gives them the addresses that the
// kernel would: the sandbox's, and the one that was dialled.
type Wire struct {
	net.Listener

	mu     sync.Mutex
	cond   *sync.Cond
	ends   map[int]ends // by the client's port
	fail   []error
	closed bool
}

type ends struct{ from, to netip.AddrPort }

// NewWire listens until the test ends.
func NewWire(t testing.TB) *Wire {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &Wire{Listener: l, ends: make(map[int]ends)}
	w.cond = sync.NewCond(&w.mu)
	t.Cleanup(func() { w.Close() })
	return w
}

// Dial connects as the sandbox with an address does to another, until the test ends.
func (w *Wire) Dial(t testing.TB, from netip.Addr, to netip.AddrPort) *net.TCPConn {
	t.Helper()
	nc, err := net.Dial("tcp4", w.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	port := nc.LocalAddr().(*net.TCPAddr).Port
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends[port] = ends{netip.AddrPortFrom(from, uint16(port)), to}
	w.cond.Broadcast()
	return nc.(*net.TCPConn)
}

// FailAccept has the next calls of Accept return these errors.
func (w *Wire) FailAccept(errs ...error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = append(w.fail, errs...)
}

func (w *Wire) Accept() (net.Conn, error) {
	if err := w.nextFault(); err != nil {
		return nil, err
	}
	nc, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.closed {
		if e, ok := w.ends[nc.RemoteAddr().(*net.TCPAddr).Port]; ok {
			return &wired{nc, e}, nil
		}
		w.cond.Wait() // Dial has connected, and is about to say as whom
	}
	nc.Close()
	return nil, net.ErrClosed
}

func (w *Wire) nextFault() (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.fail) > 0 {
		err, w.fail = w.fail[0], w.fail[1:]
	}
	return err
}

func (w *Wire) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.cond.Broadcast()
	return w.Listener.Close()
}

// wired is a connection with the addresses of its ends.
type wired struct {
	net.Conn
	ends ends
}

func (c *wired) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.ends.from) }
func (c *wired) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.ends.to) }
func (c *wired) NetConn() net.Conn    { return c.Conn }
func (c *wired) CloseWrite() error    { return c.Conn.(*net.TCPConn).CloseWrite() }
