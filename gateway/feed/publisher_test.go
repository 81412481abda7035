package feed

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"portreeve.dev/gateway/link"
)

// linked returns the caller's end of a link to mux.
func linked(t *testing.T, mux *link.Mux) *link.Conn {
	t.Helper()
	mine, theirs, err := link.Pair()
	if err != nil {
		t.Fatal(err)
	}
	a, err := link.Socket(mine)
	if err != nil {
		t.Fatal(err)
	}
	b, err := link.Socket(theirs)
	if err != nil {
		t.Fatal(err)
	}
	server, caller := link.NewConn(a, mux, link.Limits{}), link.NewConn(b, nil, link.Limits{})
	go server.Run(t.Context())
	go caller.Run(t.Context())
	return caller
}

// running runs p until the test ends.
func running(t *testing.T, p *Publisher) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})
}

// TestRoutesGoByTheirOwnMethod feeds an ingress, which takes nothing before it has its keys.
func TestRoutesGoByTheirOwnMethod(t *testing.T) {
	var ready atomic.Bool
	var refused, beats atomic.Int64
	taken := make(chan RouteState, 10)
	mux := link.NewMux()
	link.Handle(mux, Routes, func(_ context.Context, s RouteState) (Applied, error) {
		if !ready.Load() {
			refused.Add(1)
			return Applied{}, errors.New("no keys yet")
		}
		taken <- s
		return Applied{Revision: s.Revision}, nil
	})
	link.Handle(mux, Beats, func(context.Context, Heartbeat) (struct{}, error) {
		if !ready.Load() {
			beats.Add(1)
		}
		return struct{}{}, nil
	})
	p := &Publisher{Peer: new(link.Peer), Method: Routes, Log: slog.New(slog.DiscardHandler), Load: func(context.Context) (any, uint64, error) {
		return RouteState{Revision: 7}, 7, nil
	}}
	running(t, p)
	short := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		return p.WaitApplied(ctx, 7)
	}
	if err := short(); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("without an ingress: %v", err)
	}
	p.Peer.Set(linked(t, mux))
	for refused.Load() == 0 {
		if err := short(); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("before it has keys: %v", err)
		}
	}
	ready.Store(true)
	if err := p.WaitApplied(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	if s := <-taken; s.Revision != 7 {
		t.Errorf("took revision %d", s.Revision)
	}
	if n := beats.Load(); n != 0 {
		t.Errorf("%d heartbeats before the first state", n)
	}
	// At the same revision something else may have changed: what a sandbox is.
	p.Publish()
	<-taken
}

// TestUnreadableStoreEndsNoPublisher: the feed goes on when the store does.
func TestUnreadableStoreEndsNoPublisher(t *testing.T) {
	var broken atomic.Bool
	var looked atomic.Int64
	broken.Store(true)
	p := &Publisher{Peer: new(link.Peer), Method: Policies, Log: slog.New(slog.DiscardHandler), Load: func(context.Context) (any, uint64, error) {
		looked.Add(1)
		if broken.Load() {
			return nil, 0, errors.New("the store is gone")
		}
		return state(3), 3, nil
	}}
	running(t, p)
	h := edge(t, p)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for looked.Load() == 0 {
		<-tick.C
	}
	if _, _, err := h.Snapshot(bound("sbx_a", orgA)); !errors.Is(err, ErrNoState) {
		t.Errorf("without a state: %v", err)
	}
	broken.Store(false)
	waitRevision(t, p, h, 3)
}
