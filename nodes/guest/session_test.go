package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"portreeve.dev/nodes/guest/frame"
)

var ping = frame.Operation{Type: frame.OpPing}

// opening is one Open call that waits, with what init was told.
type opening struct {
	frame.OpenMessage
	err chan error
}

func (h *host) open(t testing.TB, ctx context.Context, main net.Conn) opening {
	t.Helper()
	o := opening{err: make(chan error, 1)}
	go func() {
		stream, err := h.Open(ctx, ping)
		if err == nil {
			stream.Close()
		}
		o.err <- err
	}()
	_, payload, err := frame.NewReader(main).Next(frame.MaxOpening)
	if err != nil {
		t.Fatal(err)
	}
	if o.OpenMessage, err = frame.Decode[frame.OpenMessage](payload); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestStreamNeedsItsToken(t *testing.T) {
	h := newHost(t, Limits{})
	main := h.hello(t)
	o := h.open(t, t.Context(), main)
	show := func(stream uint64, token string) net.Conn {
		conn := h.dial(t)
		if err := frame.NewWriter(conn).SendMessage(frame.Stream, frame.OpenMessage{Stream: stream, Token: token}); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	for name, conn := range map[string]net.Conn{
		"a wrong token":            show(o.Stream, strings.Repeat("0", 32)),
		"a number never asked for": show(o.Stream+1, o.Token),
	} {
		if err := closedSoon(conn); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	select {
	case err := <-o.err:
		t.Fatalf("the stream was delivered to somebody else: %v", err)
	default:
	}
	right := show(o.Stream, o.Token)
	if typ, _, err := frame.NewReader(right).Next(frame.MaxPayload); err != nil || typ != frame.OpPing {
		t.Errorf("the right token: %s, %v", typ, err)
	}
	if err := <-o.err; err != nil {
		t.Error(err)
	}
	if err := closedSoon(show(o.Stream, o.Token)); err != nil {
		t.Errorf("the same token again: %v", err)
	}
}

func TestFloodHoldsOnlyItsOwn(t *testing.T) {
	h := newHost(t, Limits{Pending: 8})
	other := newHost(t, Limits{})
	main := h.hello(t)
	for range 300 { // they say nothing
		conn, err := net.Dial("unix", h.path)
		if err != nil {
			break // the queue is full, as it should be
		}
		defer conn.Close()
	}
	eventually(t, "the host holds what it may", func() bool { return h.unknownConns() >= 8 })
	if n := h.unknownConns(); n > 8 {
		t.Errorf("%d unknown connections are held, at most 8 may be", n)
	}
	other.hello(t)
	if _, ok := other.Hello(); !ok {
		t.Error("the flood hit another sandbox")
	}
	if _, ok := h.Hello(); !ok {
		t.Error("a flood alone is no reason to lose the main connection")
	}
	main.Close()
}

func (h *host) unknownConns() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.unknown)
}

func TestGarbageEndsOwnSession(t *testing.T) {
	h, other := newHost(t, Limits{Strikes: 6}), newHost(t, Limits{Strikes: 6})
	h.hello(t)
	other.hello(t)
	breaches := [][]byte{
		[]byte("GET / HTTP/1.1\r\n\r\n"),
		{byte(frame.Data), 0, 2, 1},
		append([]byte{byte(frame.Hello), 0, 0, 2}, "{}"...),
		{byte(frame.OpPing), 0, 0, 0},
		{byte(frame.Hello), 0xff, 0xff, 0xff},
	}
	for _, breach := range breaches {
		conn := h.dial(t)
		conn.Write(breach)
		if err := closedSoon(conn); err != nil {
			t.Errorf("%q: %v", breach, err)
		}
	}
	if _, ok := h.Hello(); !ok {
		t.Fatal("the session ended below its limit")
	}
	h.dial(t).Write(breaches[0])
	var hostile *HostileError
	if err := h.wait(t); !errors.As(err, &hostile) || !errors.Is(err, ErrHostile) || hostile.Sandbox != h.cfg.Sandbox {
		t.Errorf("serve: %v", err)
	}
	if _, err := h.Open(t.Context(), ping); !errors.Is(err, ErrHostile) {
		t.Errorf("open afterwards: %v", err)
	}
	if _, ok := other.Hello(); !ok {
		t.Error("another sandbox lost its init")
	}
}

func TestGarbageOnTheMainConnection(t *testing.T) {
	h := newHost(t, Limits{})
	main := h.hello(t)
	ready := h.Ready()
	frame.NewWriter(main).Send(frame.Pong, []byte("{}"))
	if err := closedSoon(main); err != nil {
		t.Error(err)
	}
	eventually(t, "the host is without init", func() bool { _, ok := h.Hello(); return !ok && h.Ready() != ready })
	h.hello(t) // and takes another one
}

func TestSilentInitTimesOut(t *testing.T) {
	h := newHost(t, Limits{Open: 30 * time.Millisecond, Strikes: 1})
	main := h.hello(t)
	o := h.open(t, t.Context(), main)
	if err := <-o.err; !errors.Is(err, ErrTimeout) {
		t.Errorf("%v", err)
	}
	late := h.dial(t) // as a resumed sandbox does
	frame.NewWriter(late).SendMessage(frame.Stream, o.OpenMessage)
	if err := closedSoon(late); err != nil {
		t.Error(err)
	}
	if _, ok := h.Hello(); !ok {
		t.Error("a late stream ended the session")
	}
	ctx, cancel := context.WithCancel(t.Context())
	o = h.open(t, ctx, main)
	cancel()
	if err := <-o.err; !errors.Is(err, context.Canceled) && !errors.Is(err, ErrTimeout) {
		t.Errorf("%v", err)
	}
	if h.slots != 0 {
		t.Errorf("%d places are taken", h.slots)
	}
}

func TestSilentConnectionsAreClosed(t *testing.T) {
	h := newHost(t, Limits{Opening: 20 * time.Millisecond})
	conn := h.dial(t)
	if err := closedSoon(conn); err != nil {
		t.Error(err)
	}
}

func TestStreamLimit(t *testing.T) {
	h := newHost(t, Limits{Streams: 2})
	release := make(chan struct{})
	h.fakeInit(t, func(op frame.Operation, conn net.Conn, r *frame.Reader, w *frame.Writer) {
		<-release
		w.SendMessage(frame.Pong, frame.PongMessage{})
	})
	var open []*Stream
	for range 2 {
		stream, err := h.Open(t.Context(), ping)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, stream)
	}
	if _, err := h.Open(t.Context(), ping); !errors.Is(err, ErrBusy) {
		t.Errorf("a third of two: %v", err)
	}
	open[0].Close()
	open[0].Close()
	close(release)
	if _, err := h.Ping(t.Context()); err != nil {
		t.Errorf("after one has closed: %v", err)
	}
	open[1].Close()
}

func TestNewestMainConnectionCounts(t *testing.T) {
	h := newHost(t, Limits{})
	first := h.hello(t)
	second := h.dial(t)
	hello := goodHello
	hello.BootID = strings.Repeat("c", 32)
	frame.NewWriter(second).SendMessage(frame.Hello, hello)
	if err := closedSoon(first); err != nil {
		t.Error(err)
	}
	eventually(t, "the second counts", func() bool { got, ok := h.Hello(); return ok && got == hello })
	h.open(t, t.Context(), second)
}

func TestOtherVersionIsRefused(t *testing.T) {
	h := newHost(t, Limits{})
	conn := h.dial(t)
	hello := goodHello
	hello.Version++
	frame.NewWriter(conn).SendMessage(frame.Hello, hello)
	if err := closedSoon(conn); err != nil {
		t.Error(err)
	}
	if _, ok := h.Hello(); ok {
		t.Error("it was taken")
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	h := newHost(t, Limits{})
	main := h.hello(t)
	silent := h.dial(t)
	h.stop()
	if err := h.wait(t); err != nil {
		t.Errorf("%v", err)
	}
	for _, conn := range []net.Conn{main, silent} {
		if err := closedSoon(conn); err != nil {
			t.Error(err)
		}
	}
	if _, err := h.Open(t.Context(), ping); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

func TestRelayCarriesBytes(t *testing.T) {
	h := newHost(t, Limits{})
	h.fakeInit(t, func(op frame.Operation, conn net.Conn, r *frame.Reader, w *frame.Writer) {
		if m := op.Message.(frame.RelayMessage); m.Port != 80 {
			w.SendMessage(frame.Error, frame.NewError(frame.CodeRefused, "no"))
			return
		}
		w.Send(frame.Ready, nil)
		io.Copy(conn, conn)
	})
	if _, err := h.Relay(t.Context(), 81); !errors.Is(err, ErrRefused) {
		t.Errorf("%v", err)
	}
	conn, err := h.Relay(t.Context(), 80)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	text := bytes.Repeat([]byte("echo"), 1000)
	conn.Write(text)
	conn.(interface{ CloseWrite() error }).CloseWrite()
	if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestPaceHoldsTheRate(t *testing.T) {
	now := time.Unix(1, 0)
	p := newPace(100, now)
	for i := range 100 {
		if rest := p.take(now); rest != 0 {
			t.Fatalf("%d within the burst waits %v", i, rest)
		}
	}
	if rest := p.take(now); rest != 10*time.Millisecond {
		t.Errorf("the next waits %v", rest)
	}
	if rest := p.take(now.Add(20 * time.Millisecond)); rest != 0 {
		t.Errorf("two tokens later it waits %v", rest)
	}
}

// FuzzSession: whatever comes as the first bytes, the host neither panics nor loses the session by one connection.
func FuzzSession(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte(fmt.Sprintf("\x01\x00\x00\x4a"+`{"version":1,"pid":1,"boot_id":"%s"}`, goodHello.BootID)))
	f.Add([]byte("\x03\x00\x00\x3c" + `{"stream":1,"token":"00000000000000000000000000000000"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := NewSession(Config{Sandbox: "sbx_fuzz", Limits: Limits{Strikes: 2, Opening: time.Second}})
		host, init := net.Pipe()
		s.pending <- struct{}{}
		if !s.enter(host) {
			t.Fatal("refused")
		}
		done := make(chan struct{})
		go func() { s.greet(host); close(done) }()
		init.SetDeadline(time.Now().Add(time.Second))
		init.Write(data)
		init.Close()
		<-done
		if s.ended != nil || s.main != nil || len(s.unknown) != 0 || len(s.pending) != 0 || s.slots != 0 {
			t.Fatalf("left behind: %+v", s)
		}
	})
}
