package child

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"portreeve.dev/gateway/internal/processtest"
	"portreeve.dev/gateway/link"
)

// supervise runs spec in this process and returns the supervisor's end.
func supervise(t *testing.T, spec Spec) (*link.Conn, <-chan error) {
	t.Helper()
	a, b := processtest.Pair(t)
	ended := make(chan error, 1)
	go func() { ended <- RunOn(t.Context(), b, spec) }()
	conn := link.NewConn(a, nil, link.Limits{})
	go conn.Run(t.Context())
	return conn, ended
}

func idle() Spec {
	return Spec{Start: func(context.Context, json.RawMessage, []*os.File) (any, []*os.File, error) { return "up", nil, nil }}
}

func TestStartsAndAnswersReady(t *testing.T) {
	conn, _ := supervise(t, idle())
	var ready Ready
	if err := conn.Call(t.Context(), "start", Start{json.RawMessage(`{}`)}, &ready); err != nil || string(ready.Body) != `"up"` {
		t.Fatalf("got %s, %v", ready.Body, err)
	}
}

func TestEndsWithTheSupervisor(t *testing.T) {
	spec := idle()
	var life context.Context
	spec.Start = func(ctx context.Context, _ json.RawMessage, _ []*os.File) (any, []*os.File, error) {
		life = ctx
		return nil, nil, nil
	}
	conn, ended := supervise(t, spec)
	if err := conn.Call(t.Context(), "start", Start{json.RawMessage(`{}`)}, nil); err != nil {
		t.Fatal(err)
	}
	if life.Err() != nil {
		t.Fatal("the process's context ended while the supervisor lives")
	}
	conn.Close()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if life.Err() == nil {
		t.Fatal("the process's context outlived the supervisor")
	}
}

func TestSiblingsMeet(t *testing.T) {
	mux := link.NewMux()
	link.Handle(mux, "ping", func(context.Context, struct{}) (string, error) { return "pong", nil })
	spec := idle()
	spec.Siblings = map[string]*Sibling{"edge": {Mux: mux}}
	conn, _ := supervise(t, spec)
	mine := introduce(t, conn, "edge")
	other := link.NewConn(mine, nil, link.Limits{})
	go other.Run(t.Context())
	var out string
	if err := other.Call(t.Context(), "ping", struct{}{}, &out); err != nil || out != "pong" {
		t.Fatalf("got %q, %v", out, err)
	}
}

func TestUnknownSiblingIsClosed(t *testing.T) {
	conn, _ := supervise(t, idle())
	mine := introduce(t, conn, "stranger")
	mine.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := mine.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("reading a stranger's socket: %v, want EOF", err)
	}
}

// introduce hands one end of a new pair to the child as name and returns the other.
func introduce(t *testing.T, conn *link.Conn, name string) *net.UnixConn {
	t.Helper()
	a, b, err := link.Pair()
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Notify("peer", Peer{Name: name, Serial: 1}, b); err != nil {
		t.Fatal(err)
	}
	b.Close()
	mine, err := link.Socket(a)
	if err != nil {
		t.Fatal(err)
	}
	return mine
}
