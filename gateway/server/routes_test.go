package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/internal/processtest"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/link"
	"portreeve.dev/ingress/route"
)

// TestRouteStateIsWhatIngressTakes brings every state of a sandbox through the form of the link into a real table.
func TestRouteStateIsWhatIngressTakes(t *testing.T) {
	c := controlIn(t, t.TempDir())
	w := worldOf(t, c)
	one, two := w.Org("one"), w.Org("two")
	open := func(by store.By, host string, sandbox store.SandboxStatus) store.Tunnel {
		t.Helper()
		b := w.Sandbox(by, "")
		made, err := w.Tunnel(by, b.ID, host, 9)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.store.Change(t.Context(), by, func(tx *store.Tx) error {
			b.Status, b.Generation = sandbox, 3
			if _, err := tx.UpdateSandbox(t.Context(), b); err != nil {
				return err
			}
			return tx.Record(t.Context(), audit.SandboxReconcile, b.ID, nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	want := map[string]error{}
	for host, status := range map[string]store.SandboxStatus{"a.test": store.Running, "b.test": store.Paused} {
		open(one, host, status)
		want[host] = nil
	}
	for host, status := range map[string]store.SandboxStatus{"c.test": store.Terminating, "d.test": store.Terminated, "e.test": store.Failed} {
		open(two, host, status)
		want[host] = route.ErrGone
	}
	deleted := open(one, "f.test", store.Running)
	_, err := c.store.Change(t.Context(), one, func(tx *store.Tx) error {
		if err := tx.DeleteTunnel(t.Context(), deleted.Sandbox, deleted.ID); err != nil {
			return err
		}
		tx.Bump()
		return tx.Record(t.Context(), audit.TunnelDelete, deleted.ID, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	want["f.test"] = route.ErrGone

	state, revision, err := c.routeState(t.Context())
	if now, _ := c.store.Revision(t.Context()); err != nil || revision != uint64(now) {
		t.Fatalf("revision %d of %d, %v", revision, now, err)
	}
	text, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	var arrived feed.RouteState
	if err := json.Unmarshal(text, &arrived); err != nil {
		t.Fatal(err)
	}
	table := route.NewTable(route.TableConfig{})
	if err := table.Replace(arrived.Records); err != nil {
		t.Fatal(err)
	}
	if table.Len() != len(want) {
		t.Errorf("%d hosts, want %d", table.Len(), len(want))
	}
	for host, wanted := range want {
		r, err := table.Lookup(host)
		if err != wanted || r == nil || r.Generation != 3 || wanted == nil && r.TokenHash == (route.Hash{}) || wanted != nil && r.TokenHash != (route.Hash{}) {
			t.Errorf("%s: %+v, %v; want %v", host, r, err, wanted)
		}
	}
}

// TestChangesGoToBothFeeds: what a sandbox is concerns ingress, and what it may reach the edge.
func TestChangesGoToBothFeeds(t *testing.T) {
	loads := map[string]chan struct{}{feed.Policies: make(chan struct{}, 9), feed.Routes: make(chan struct{}, 9)}
	silent := make(chan struct{})
	publisher := func(method string) *feed.Publisher {
		p := &feed.Publisher{Peer: new(link.Peer), Method: method, Log: slog.New(slog.DiscardHandler), Load: func(context.Context) (any, uint64, error) {
			loads[method] <- struct{}{}
			return struct{}{}, 7, nil
		}}
		mux := link.NewMux()
		link.Handle(mux, method, func(ctx context.Context, _ struct{}) (feed.Applied, error) {
			if method == feed.Routes {
				select { // ingress says nothing
				case <-silent:
				case <-ctx.Done():
				}
			}
			return feed.Applied{Revision: 7}, nil
		})
		a, b := processtest.Pair(t)
		server, caller := link.NewConn(a, mux, link.Limits{}), link.NewConn(b, nil, link.Limits{})
		go server.Run(t.Context())
		go caller.Run(t.Context())
		p.Peer.Set(caller)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { p.Run(ctx); close(ended) }()
		t.Cleanup(func() { cancel(); <-ended })
		return p
	}
	f := feeds{publisher(feed.Policies), publisher(feed.Routes)}
	<-loads[feed.Policies]
	<-loads[feed.Routes]
	// A start of a sandbox waits for the edge, whatever ingress says.
	if err := f.WaitApplied(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	c := &control{routes: f.routes}
	c.setup.TunnelDomain = "tunnel.localhost"
	tunnels, err := c.tunnels()
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if err := tunnels.Routed(short, 7); err == nil {
		t.Error("a tunnel's create does not wait for ingress")
	}
	close(silent)
	if err := tunnels.Routed(t.Context(), 7); err != nil {
		t.Error(err)
	}
	f.Publish(t.Context(), 8)
	<-loads[feed.Policies]
	<-loads[feed.Routes]
}
