package server

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"portreeve.dev/gateway/internal/processtest"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/ingress/route"
)

// TestOneSandboxCantTakeAllDials: a sandbox that lets its dials wait keeps nobody from dialling another.
func TestOneSandboxCantTakeAllDials(t *testing.T) {
	mux, deaf := link.NewMux(), make(chan struct{})
	link.HandleFiles(mux, role.InwardDial, func(ctx context.Context, r role.DialRequest, _ []*os.File) (struct{}, []*os.File, error) {
		if r.Sandbox == "sbx_deaf" {
			select {
			case <-deaf:
			case <-ctx.Done():
			}
			return struct{}{}, nil, errors.New("it does not accept")
		}
		ours, theirs, err := link.Pair()
		if err == nil {
			ours.Close()
		}
		return struct{}{}, []*os.File{theirs}, err
	})
	d := &sandboxDialer{inward: new(link.Peer)}
	a, b, err := link.Pair()
	if err != nil {
		t.Fatal(err)
	}
	for end, f := range map[string]*os.File{"ingress": a, "inward": b} {
		socket, err := link.Socket(f)
		if err != nil {
			t.Fatal(err)
		}
		m := mux
		if end == "ingress" {
			m = nil
		}
		conn := link.NewConn(socket, m, link.Limits{})
		if end == "ingress" {
			d.inward.Set(conn)
		}
		go conn.Run(t.Context())
	}
	dial := func(ctx context.Context, sandbox string) (net.Conn, error) {
		return d.Dial(ctx, &route.Record{Sandbox: sandbox, Generation: 1, Port: 80})
	}
	var waiting sync.WaitGroup
	for range 300 { // more than a link works on at once
		waiting.Go(func() {
			if c, err := dial(t.Context(), "sbx_deaf"); err == nil {
				c.Close()
				t.Error("the deaf one was dialled")
			}
		})
	}
	processtest.Await(t, "all of them", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.places["sbx_deaf"] != nil && d.places["sbx_deaf"].users == 300
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := dial(ctx, "sbx_other")
	if err != nil {
		t.Errorf("another sandbox: %v", err)
	} else {
		c.Close()
	}
	// Who waits for a place gives up in time.
	short, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	if _, err := dial(short, "sbx_deaf"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the 301st of a deaf one: %v", err)
	}
	close(deaf)
	waiting.Wait()
	if d.mu.Lock(); len(d.places) != 0 {
		t.Errorf("%d sandboxes are remembered", len(d.places))
	}
	d.mu.Unlock()
}
