package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies/inbound"
)

func ingressPolicyIsKept(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	one, two := w.Org("one"), w.Org("two")
	org := one.Principal.Org
	put := func(p inbound.Policy, expected int64) (kept store.IngressPolicy, err error) {
		err = w.change(one, func(tx *store.Tx) (err error) {
			kept, err = tx.PutIngressPolicy(ctx(t), p, expected)
			return err
		})
		return kept, err
	}
	box := w.Sandbox(one, "")
	tunnel, err := w.Tunnel(one, box.ID, "a.test", 2)
	w.must(err)
	wakes := func() int {
		t.Helper()
		routes, err := w.Routes(ctx(t), time.Time{})
		w.must(err)
		if len(routes) != 1 {
			t.Fatalf("%d routes", len(routes))
		}
		return routes[0].AnonymousWakes
	}
	if p, err := w.IngressPolicy(ctx(t), org); err != nil || p.Version != 0 || cmp.Diff(inbound.Default(), p.Policy) != "" || wakes() != p.AnonymousWakes {
		t.Errorf("before any: %+v, %v, %d wakes", p, err, wakes())
	}
	narrow := inbound.Policy{Modes: []inbound.Mode{inbound.Token}, Ports: []inbound.Ports{"3000"}, MaxExpiresIn: 60, AnonymousWakes: 7}
	kept, err := put(narrow, 0)
	w.must(err)
	if p, err := w.IngressPolicy(ctx(t), org); err != nil || kept.Version != 1 || cmp.Diff(kept, p) != "" || wakes() != 7 {
		t.Errorf("kept %+v, read %+v, %v", kept, p, err)
	}
	if _, err := put(inbound.Default(), 0); !errors.Is(err, store.ErrVersion) {
		t.Errorf("against a stale version: %v", err)
	}
	if p, err := w.IngressPolicy(ctx(t), two.Principal.Org); err != nil || p.Version != 0 {
		t.Errorf("another org's: %+v, %v", p, err)
	}
	live, err := w.LiveTunnels(ctx(t), org, time.Now())
	if err != nil || len(live) != 1 || live[0].ID != tunnel.ID || live[0].Policy != box.Policy {
		t.Errorf("live: %+v, %v", live, err)
	}
	end := tunnel.ExpiresAt.Add(-time.Minute)
	for _, want := range []error{nil, store.ErrNotFound} { // a second time there is nothing to shorten
		if err := w.change(one, func(tx *store.Tx) error { return tx.ShortenTunnel(ctx(t), tunnel.ID, end) }); !errors.Is(err, want) {
			t.Errorf("shortened: %v, want %v", err, want)
		}
	}
	if live, err = w.LiveTunnels(ctx(t), org, end); err != nil || len(live) != 0 {
		t.Errorf("at its end: %+v, %v", live, err)
	}
}

// restrictionsHoldForWhatComesBack: a tunnel that has ended by a clock that is ahead can be ended for good all the same.
func restrictionsHoldForWhatComesBack(t *testing.T, open Open) {
	right := time.Now()
	now := right
	w := NewWorld(t, open, store.Options{Now: func() time.Time { return now }, Earliest: func() time.Time { return right }})
	one := w.Org("one")
	box := w.Sandbox(one, "")
	tunnel, err := w.Tunnel(one, box.ID, "a.test", 2, public, func(t *store.Tunnel) { t.ExpiresAt = right.Add(time.Minute) })
	w.must(err)
	now = right.Add(time.Hour)
	var live []store.LiveTunnel
	w.must(w.change(one, func(tx *store.Tx) (err error) {
		live, err = tx.LiveTunnels(ctx(t), tx.Org(), tx.Earliest())
		return err
	}))
	if len(live) != 1 || live[0].ID != tunnel.ID {
		t.Errorf("to be restricted are %+v, want the tunnel that will be back", live)
	}
	w.must(w.change(one, func(tx *store.Tx) error { return tx.DeleteTunnel(ctx(t), box.ID, tunnel.ID) }))
	now = right
	if all, err := w.Tunnels(ctx(t), one.Principal.Org, box.ID, now); err != nil || len(all) != 0 {
		t.Errorf("with the clock set right there is %+v, %v", all, err)
	}
}
