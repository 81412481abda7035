package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"syscall"
	"testing"

	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/internal/processtest"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/internal/store/storetest"
	"portreeve.dev/gateway/link"
)

// patience is how long a test waits for what should take milliseconds.
const patience = processtest.Patience

// newControl is a control with a store, but no listener.
func newControl(t *testing.T) (*control, storetest.World) {
	t.Helper()
	c := &control{life: t.Context(), log: slog.New(slog.DiscardHandler), node: &child.Sibling{}, edge: &child.Sibling{}, inward: &child.Sibling{}, ingress: &child.Sibling{}}
	w := storetest.NewWorld(t, func(t *testing.T, _ store.Options) *store.Store {
		var err error
		if c.store, c.keyring, err = openStore(t.Context(), t.TempDir(), c.now, c.earliest); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.store.Close() })
		return c.store
	}, store.Options{})
	var err error
	if c.authorities, err = c.newAuthorities(); err != nil {
		t.Fatal(err)
	}
	return c, w
}

// supervise lives a process's life in this one until the test ends, and returns the supervisor's end.
func supervise(t *testing.T, spec child.Spec) *link.Conn {
	t.Helper()
	mine, theirs := processtest.Pair(t)
	conn := link.NewConn(mine, nil, link.Limits{})
	go conn.Run(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- child.RunOn(context.Background(), theirs, spec) }()
	t.Cleanup(func() {
		conn.Close()
		// Whoever closes a socket with something unread in it resets it: the supervisor ended, in other words.
		if err := <-ended; err != nil && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return conn
}

// meet introduces the process to a sibling and returns the sibling's end.
func meet(t *testing.T, supervisor *link.Conn, name string, mux *link.Mux) *link.Conn {
	t.Helper()
	a, b, err := link.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	mine, err := link.Socket(a)
	if err != nil {
		t.Fatal(err)
	}
	conn := link.NewConn(mine, mux, link.Limits{})
	go conn.Run(context.Background())
	t.Cleanup(func() { conn.Close() })
	if err := supervisor.Notify("peer", child.Peer{Name: name}, b); err != nil {
		t.Fatal(err)
	}
	return conn
}

// call is Call that does not wait for ever.
func call(conn *link.Conn, method string, in, out any) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return conn.Call(ctx, method, in, out)
}
