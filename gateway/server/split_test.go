package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"portreeve.dev/gateway/internal/processtest"
)

// flaky is a listener that fails now and then, as one without descriptors does.
type flaky struct {
	net.Listener
	mu    sync.Mutex
	fails []error
}

func (f *flaky) Accept() (net.Conn, error) {
	f.mu.Lock()
	if len(f.fails) > 0 {
		err := f.fails[0]
		f.fails = f.fails[1:]
		f.mu.Unlock()
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: err}
	}
	f.mu.Unlock()
	return f.Listener.Accept()
}

// A halved is a splitter that runs.
type halved struct {
	*splitter
	addr   string
	cancel context.CancelFunc
	ended  chan struct{}
}

func newHalved(t *testing.T, fails ...error) *halved {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := &halved{splitter: newSplitter(ctx, &flaky{Listener: l, fails: fails}), addr: l.Addr().String(), cancel: cancel, ended: make(chan struct{})}
	return h
}

func (h *halved) start(t *testing.T) *halved {
	go func() {
		h.run()
		close(h.ended)
	}()
	t.Cleanup(func() {
		h.cancel()
		h.over(t)
	})
	return h
}

// over waits until every goroutine of it has ended.
func (h *halved) over(t *testing.T) {
	t.Helper()
	select {
	case <-h.ended:
	case <-time.After(patience):
		t.Fatal("it goes on")
	}
}

func (h *halved) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp4", h.addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// closed wants that the other end closes without a word.
func closed(t *testing.T, c net.Conn) {
	t.Helper()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestFirstByteDecides(t *testing.T) {
	h := newHalved(t, syscall.EMFILE, syscall.ECONNABORTED, syscall.ENFILE).start(t)
	for _, c := range []struct {
		name string
		said []byte
		to   net.Listener
	}{
		{"a handshake", append([]byte{22, 3, 1, 0}, bytes.Repeat([]byte{7}, 5000)...), h.secure},
		{"a request", []byte("GET / HTTP/1.1\r\n\r\n"), h.plain},
		{"an alert of TLS", []byte{21, 3, 1, 0, 2, 1, 0}, h.plain},
		{"one byte", []byte{22}, h.secure},
		{"nothing that anybody speaks", []byte{0xff, 0}, h.plain},
	} {
		client := h.dial(t)
		// In two pieces, of which the first is one byte.
		client.Write(c.said[:1])
		got, err := c.to.Accept()
		if err != nil {
			t.Fatal(err)
		}
		client.Write(c.said[1:])
		client.(*net.TCPConn).CloseWrite()
		got.SetDeadline(time.Now().Add(patience))
		if all, err := io.ReadAll(got); err != nil || !bytes.Equal(all, c.said) {
			t.Errorf("%s: %d bytes of %d came, %v", c.name, len(all), len(c.said), err)
		}
		if got.RemoteAddr().String() != client.LocalAddr().String() {
			t.Errorf("%s: comes from %v", c.name, got.RemoteAddr())
		}
		got.Close()
	}
}

func TestSilentConnectionIsClosed(t *testing.T) {
	h := newHalved(t)
	h.patience = 10 * time.Millisecond
	h.start(t)
	silent := h.dial(t)
	closed(t, silent)
	// And one that ends at once is nobody's.
	gone := h.dial(t)
	gone.Close()
	processtest.Await(t, "end of both", func() bool { return len(h.slots) == 0 })
}

func TestSplitEndsWithItsContext(t *testing.T) {
	h := newHalved(t).start(t)
	undecided, waiting := h.dial(t), h.dial(t)
	waiting.Write([]byte("G")) // decided, and nobody accepts it
	for len(h.slots) < 2 {
		h.dial(t).Close()
	}
	h.cancel()
	h.over(t)
	closed(t, undecided)
	closed(t, waiting)
	for _, l := range []net.Listener{h.secure, h.plain} {
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accepting after the end: %v", err)
		}
	}
	if c, err := net.DialTimeout("tcp4", h.addr, patience); err == nil {
		c.Close()
		t.Error("somebody still listens")
	}
}

func TestSplitEndsWithItsListener(t *testing.T) {
	h := newHalved(t, errors.New("broken for good")).start(t)
	h.over(t)
	if _, err := h.plain.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accepting after the end: %v", err)
	}
}
