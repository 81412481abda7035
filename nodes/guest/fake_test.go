package guest

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"portreeve.dev/nodes/guest/frame"
)

// host is a session that serves a real socket, and the path by which any init, ours or a hostile one, dials it.
type host struct {
	*Session
	path   string
	stop   context.CancelFunc
	result chan error
}

func newHost(t testing.TB, limits Limits) *host {
	t.Helper()
	h := &host{Session: NewSession(Config{Sandbox: "sbx_" + filepath.Base(t.TempDir()), Limits: limits}), path: filepath.Join(t.TempDir(), "init.sock"), result: make(chan error, 1)}
	ln, err := net.Listen("unix", h.path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	var served sync.WaitGroup
	served.Go(func() { h.result <- h.Serve(ctx, ln) })
	t.Cleanup(func() { cancel(); served.Wait() })
	return h
}

func (h *host) dial(t testing.TB) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", h.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	return conn
}

// wait returns what Serve returned.
func (h *host) wait(t testing.TB) error {
	t.Helper()
	select {
	case err := <-h.result:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("the session goes on")
		return nil
	}
}

var goodHello = frame.HelloMessage{Version: frame.Version, PID: 1, BootID: strings.Repeat("b", 32)}

// hello connects a main connection and waits until the host has taken it.
func (h *host) hello(t testing.TB) net.Conn {
	t.Helper()
	conn := h.dial(t)
	if err := frame.NewWriter(conn).SendMessage(frame.Hello, goodHello); err != nil {
		t.Fatal(err)
	}
	select {
	case <-h.Ready():
	case <-time.After(10 * time.Second):
		t.Fatal("hello was not taken")
	}
	return conn
}

// fakeInit answers every Open by a stream and hands it to f, which plays init after the operation has come.
func (h *host) fakeInit(t testing.TB, f func(op frame.Operation, conn net.Conn, r *frame.Reader, w *frame.Writer)) {
	t.Helper()
	main := h.hello(t)
	main.SetDeadline(time.Time{})
	var all sync.WaitGroup
	all.Go(func() {
		r := frame.NewReader(main)
		for {
			_, payload, err := r.Next(frame.MaxOpening)
			if err != nil {
				return
			}
			open, _ := frame.Decode[frame.OpenMessage](payload)
			all.Go(func() {
				conn, err := net.Dial("unix", h.path)
				if err != nil {
					return
				}
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(20 * time.Second))
				r, w := frame.NewReader(conn), frame.NewWriter(conn)
				w.SendMessage(frame.Stream, open)
				typ, payload, err := r.Next(frame.MaxPayload)
				if err != nil {
					return
				}
				if op, err := frame.DecodeOperation(typ, payload); err == nil {
					f(op, conn, r, w)
				}
			})
		}
	})
	t.Cleanup(func() { main.Close(); h.stop(); all.Wait() })
}

// operation starts ServeOperation and returns control's end and its result.
func (h *host) operation(t testing.TB, ctx context.Context) (net.Conn, chan error) {
	t.Helper()
	control, inward := pair(t)
	result := make(chan error, 1)
	go func() { result <- ServeOperation(ctx, inward, h.Session) }()
	return control, result
}

func (h *host) client(t testing.TB) *Client {
	return NewClient(func(context.Context) (net.Conn, error) {
		control, _ := h.operation(t, context.Background())
		return control, nil
	})
}

func pair(t testing.TB) (net.Conn, net.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		ends[i], err = net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ends[i].Close() })
	}
	ends[0].SetDeadline(time.Now().Add(20 * time.Second))
	return ends[0], ends[1]
}

func received(t testing.TB, result chan error) error {
	t.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("the operation goes on")
		return nil
	}
}

// closedSoon reports whether the other end closes conn without a word.
func closedSoon(conn net.Conn) error {
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	n, err := conn.Read(make([]byte, 1))
	if n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.Join(errors.New("still open"), err)
	}
	return nil
}

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); !f(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}
