package link

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

type text struct {
	Text string `json:"text"`
}

// connect runs two connected Conns until the test ends and returns them.
func connect(t *testing.T, left, right *Mux) (*Conn, *Conn) {
	t.Helper()
	a, b := sockets(t)
	l, r := NewConn(a, left, Limits{}), NewConn(b, right, Limits{Frame: 1 << 16})
	run(t, l)
	run(t, r)
	return l, r
}

func sockets(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fa, fb, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	if a, err = Socket(fa); err != nil {
		t.Fatal(err)
	}
	if b, err = Socket(fb); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func run(t *testing.T, c *Conn) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- c.Run(context.Background()) }()
	t.Cleanup(func() { c.Close() })
	return ended
}

func echo() *Mux {
	mux := NewMux()
	Handle(mux, "echo", func(_ context.Context, in text) (text, error) {
		if in.Text == "refuse" {
			return text{}, &Error{Code: "refused", Message: "not this one"}
		}
		return in, nil
	})
	return mux
}

func TestCallAndAnswerBothWays(t *testing.T) {
	l, r := connect(t, echo(), echo())
	for _, c := range []*Conn{l, r} {
		var out text
		if err := c.Call(t.Context(), "echo", text{"hello"}, &out); err != nil || out.Text != "hello" {
			t.Fatalf("got %q, %v", out.Text, err)
		}
	}
}

func TestErrorsKeepTheirCode(t *testing.T) {
	l, _ := connect(t, nil, echo())
	err := l.Call(t.Context(), "echo", text{"refuse"}, nil)
	var e *Error
	if !errors.As(err, &e) || e.Code != "refused" {
		t.Fatalf("got %v, want the code refused", err)
	}
}

func TestFilesArrive(t *testing.T) {
	mux := NewMux()
	HandleFiles(mux, "read", func(_ context.Context, _ text, files []*os.File) (text, []*os.File, error) {
		if len(files) != 1 {
			return text{}, nil, errors.New("no file came")
		}
		b, err := io.ReadAll(files[0])
		return text{string(b)}, files, err // and goes back
	})
	l, _ := connect(t, nil, mux)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w.WriteString("through the pipe")
	w.Close()
	defer r.Close()
	var out text
	back, err := l.CallFiles(t.Context(), "read", text{}, &out, r)
	if err != nil || out.Text != "through the pipe" || len(back) != 1 {
		t.Fatalf("got %q, %d files, %v", out.Text, len(back), err)
	}
	closeAll(back)
}

func TestUnaskedFilesAreClosed(t *testing.T) {
	l, _ := connect(t, nil, echo())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := l.Call(t.Context(), "echo", text{"x"}, nil, w); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.SetReadDeadline(time.Now().Add(5 * time.Second))
	// The peer held the last write end: a reader sees the end only when the peer closed it.
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("reading the pipe: %v, want EOF", err)
	}
}

func TestUnknownFieldAndMethodAreRefused(t *testing.T) {
	l, _ := connect(t, nil, echo())
	for _, c := range []struct {
		method string
		in     any
		want   string
	}{
		{"echo", map[string]string{"text": "a", "extra": "b"}, "unknown field"},
		{"format-disk", text{}, "not for this peer"},
	} {
		if err := l.Call(t.Context(), c.method, c.in, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.method, err, c.want)
		}
	}
	if err := l.Call(t.Context(), "echo", text{"a"}, nil); err != nil {
		t.Errorf("the twin without the extra field: %v", err)
	}
}

func TestFrameOverTheLimitEndsTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		size uint32
		want string
	}{
		"one over the limit": {1<<16 + 1, "over the limit"},
		"just at the limit":  {1 << 16, "decoding frame"}, // it is read, and is no JSON
	} {
		t.Run(name, func(t *testing.T) {
			raw, b := sockets(t)
			ended := run(t, NewConn(b, echo(), Limits{Frame: 1 << 16}))
			raw.Write(binary.BigEndian.AppendUint32(nil, c.size))
			raw.Write(make([]byte, 1<<16))
			raw.CloseWrite()
			if err := <-ended; err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("ended with %v, want %q", err, c.want)
			}
		})
	}
}

func TestWaitingCallsFailWhenThePeerGoes(t *testing.T) {
	mux := NewMux()
	arrived := make(chan struct{})
	Handle(mux, "hang", func(ctx context.Context, _ text) (text, error) {
		close(arrived)
		<-ctx.Done()
		return text{}, ctx.Err()
	})
	l, r := connect(t, nil, mux)
	failed := make(chan error, 1)
	go func() { failed <- l.Call(t.Context(), "hang", text{}, nil) }()
	<-arrived
	r.Close()
	if err := <-failed; !errors.Is(err, ErrClosed) {
		t.Fatalf("got %v, want ErrClosed", err)
	}
	<-l.Ended()
	if err := l.Call(t.Context(), "hang", text{}, nil); !errors.Is(err, ErrClosed) {
		t.Fatalf("a later call: got %v, want ErrClosed", err)
	}
}

// A peer that is stopped, or taken, must not hold whoever writes to it.
func TestPeerThatDoesNotReadIsGivenUp(t *testing.T) {
	a, b := sockets(t)
	defer b.Close() // it reads nothing
	c := NewConn(a, nil, Limits{Write: 50 * time.Millisecond})
	ended := run(t, c)
	gaveUp := make(chan error, 1)
	go func() {
		var err error
		for n := 0; n < 100 && err == nil; n++ {
			err = c.Notify("x", text{strings.Repeat("x", 1<<20)})
		}
		gaveUp <- err
	}()
	select {
	case err := <-gaveUp:
		if !errors.Is(err, ErrClosed) {
			t.Fatalf("got %v, want ErrClosed", err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("still writing")
	}
	<-ended
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte(`{"id":1,"method":"echo","body":{"text":"x"}}`))
	f.Add([]byte(`{"id":1,"reply":true,"files":3}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, b := sockets(t)
		ended := run(t, NewConn(b, echo(), Limits{Frame: 1 << 12}))
		a.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
		a.Close()
		<-ended
	})
}
