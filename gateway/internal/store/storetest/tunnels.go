package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies/inbound"
)

// Tunnel opens a tunnel for an hour; change may adjust it.
func (w World) Tunnel(by store.By, sandbox, host string, limit int, change ...func(*store.Tunnel)) (made store.Tunnel, err error) {
	err = w.change(by, func(tx *store.Tx) (err error) {
		t := store.Tunnel{ID: store.NewID("tun"), Sandbox: sandbox, Host: host, Port: 3000, TokenHash: []byte("a hash \x00\xff"), ExpiresAt: tx.Now().Add(time.Hour)}
		for _, f := range change {
			f(&t)
		}
		made, err = tx.CreateTunnel(ctx(w.t), t, limit)
		return err
	})
	return made, err
}

func public(t *store.Tunnel) { t.Public, t.TokenHash = true, nil }

func tunnelsAreKept(t *testing.T, open Open) {
	now := time.Date(2026, 3, 29, 1, 59, 59, 123_456_789, time.FixedZone("+0545", 5*3600+45*60))
	w := NewWorld(t, open, store.Options{Now: func() time.Time { return now }})
	one, two := w.Org("one"), w.Org("two")
	org := one.Principal.Org
	box, other, theirs := w.Sandbox(one, ""), w.Sandbox(one, ""), w.Sandbox(two, "")
	first, err := w.Tunnel(one, box.ID, "a.test", 2)
	w.must(err)
	second, err := w.Tunnel(one, box.ID, "b.test", 2, public)
	w.must(err)
	if first.AuthEpoch != 1 || first.Org != org || first.CreatedBy != one.Principal.ID || !first.ExpiresAt.Equal(now.Add(time.Hour).Truncate(time.Microsecond)) {
		t.Errorf("made %+v", first)
	}
	listed := func(sandbox string) []store.Tunnel {
		t.Helper()
		all, err := w.Tunnels(ctx(t), org, sandbox, now)
		w.must(err)
		return all
	}
	if diff := cmp.Diff([]store.Tunnel{first, second}, listed(box.ID)); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
	// The limit is each sandbox's, and counts the live ones.
	if _, err := w.Tunnel(one, box.ID, "c.test", 2); !errors.Is(err, store.ErrLimit) {
		t.Errorf("a third of two: %v", err)
	}
	if _, err := w.Tunnel(one, other.ID, "c.test", 2); err != nil {
		t.Errorf("of another sandbox: %v", err)
	}
	if _, err := w.Tunnel(one, theirs.ID, "d.test", 2); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of another org's sandbox: %v", err)
	}
	// A host is one tunnel's for ever.
	if _, err := w.Tunnel(two, theirs.ID, "a.test", 2); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a host that is taken: %v", err)
	}
	remove := func(by store.By, sandbox, id string) error {
		return w.change(by, func(tx *store.Tx) error { return tx.DeleteTunnel(ctx(t), sandbox, id) })
	}
	if err := remove(one, other.ID, first.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("deleting it as another sandbox's: %v", err)
	}
	w.must(remove(one, box.ID, first.ID))
	if err := remove(one, box.ID, first.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("deleting twice: %v", err)
	}
	if _, err := w.Tunnel(one, box.ID, "a.test", 2); !errors.Is(err, store.ErrConflict) {
		t.Errorf("the host of a deleted one: %v", err)
	}
	if diff := cmp.Diff([]store.Tunnel{second}, listed(box.ID)); diff != "" {
		t.Errorf("after a deletion:\n%s", diff)
	}
	now = now.Add(time.Hour - time.Microsecond)
	if n := len(listed(box.ID)); n != 1 {
		t.Errorf("%d just before the end", n)
	}
	now = now.Add(2 * time.Microsecond)
	if n := len(listed(box.ID)); n != 0 {
		t.Errorf("%d after the end", n)
	}
	if err := remove(one, box.ID, second.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("deleting an expired one: %v", err)
	}
	// Ended ones are no part of the limit.
	if _, err := w.Tunnel(one, box.ID, "e.test", 1); err != nil {
		t.Errorf("after the others ended: %v", err)
	}
}

func publicSandboxesAreFound(t *testing.T, open Open) {
	now := time.Now()
	w := NewWorld(t, open, store.Options{Now: func() time.Time { return now }})
	one, two := w.Org("one"), w.Org("two")
	_, _, err := w.Policy(one, "web", `{"rules":[]}`, 0)
	w.must(err)
	box, shut, theirs := w.Sandbox(one, "web"), w.Sandbox(one, ""), w.Sandbox(two, "")
	_, err = w.Tunnel(one, shut.ID, "a.test", 9)
	w.must(err)
	_, err = w.Tunnel(two, theirs.ID, "b.test", 9, public)
	w.must(err)
	found := func() []store.SandboxPolicy {
		t.Helper()
		all, err := w.PublicSandboxes(ctx(t), one.Principal.Org, now)
		w.must(err)
		return all
	}
	if all := found(); len(all) != 0 {
		t.Errorf("none is public: %+v", all)
	}
	for _, host := range []string{"c.test", "d.test"} {
		_, err = w.Tunnel(one, box.ID, host, 9, public)
		w.must(err)
	}
	if diff := cmp.Diff([]store.SandboxPolicy{{Sandbox: box.ID, Policy: "web"}}, found()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	now = now.Add(time.Hour)
	if all := found(); len(all) != 0 {
		t.Errorf("after the tunnels' end: %+v", all)
	}
	_, err = w.Tunnel(one, box.ID, "e.test", 9, public)
	w.must(err)
	w.must(w.change(one, func(tx *store.Tx) (err error) {
		box.Status = store.Terminated
		_, err = tx.UpdateSandbox(ctx(t), box)
		return err
	}))
	if all := found(); len(all) != 0 {
		t.Errorf("after the sandbox's end: %+v", all)
	}
}

func tunnelLimitHoldsInParallel(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by := w.Org("one")
	box := w.Sandbox(by, "")
	made := 0
	for _, err := range together(10, func(i int) error { _, err := w.Tunnel(by, box.ID, fmt.Sprintf("h%d.test", i), 3); return err }) {
		if err == nil {
			made++
		} else if !errors.Is(err, store.ErrLimit) {
			t.Error(err)
		}
	}
	if all, err := w.Tunnels(ctx(t), by.Principal.Org, box.ID, time.Now()); made != 3 || err != nil || len(all) != 3 {
		t.Errorf("made %d with a limit of 3, and there are %d (%v)", made, len(all), err)
	}
}

func routesSayWhatTheSandboxIs(t *testing.T, open Open) {
	now := time.Now()
	w := NewWorld(t, open, store.Options{Now: func() time.Time { return now }})
	one, two := w.Org("one"), w.Org("two")
	box, theirs := w.Sandbox(one, ""), w.Sandbox(two, "")
	a, err := w.Tunnel(one, box.ID, "a.test", 9)
	w.must(err)
	b, err := w.Tunnel(two, theirs.ID, "b.test", 9, public, func(t *store.Tunnel) { t.ExpiresAt = now.Add(time.Minute) })
	w.must(err)
	routes := func(since time.Time) map[string]store.Route {
		t.Helper()
		all, err := w.Routes(ctx(t), since)
		w.must(err)
		by := map[string]store.Route{}
		for _, r := range all {
			by[r.ID] = r
		}
		if len(by) != len(all) {
			t.Errorf("a tunnel is listed twice: %+v", all)
		}
		return by
	}
	want := map[string]store.Route{
		a.ID: {Tunnel: a, Status: store.Running, SandboxEnd: box.ExpiresAt, AnonymousWakes: inbound.Default().AnonymousWakes},
		b.ID: {Tunnel: b, Status: store.Running, SandboxEnd: theirs.ExpiresAt, AnonymousWakes: inbound.Default().AnonymousWakes},
	}
	if diff := cmp.Diff(want, routes(now.Add(-time.Hour))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w.must(w.change(one, func(tx *store.Tx) (err error) {
		box.Status, box.Generation, box.ExpiresAt = store.Paused, 7, now.Add(5*time.Minute).Truncate(time.Microsecond)
		box, err = tx.UpdateSandbox(ctx(t), box)
		return err
	}))
	if r := routes(now)[a.ID]; r.Status != store.Paused || r.Generation != 7 || !r.SandboxEnd.Equal(box.ExpiresAt) || !r.ExpiresAt.Equal(a.ExpiresAt) {
		t.Errorf("after a pause: %+v", r)
	}
	// An ended sandbox leaves its tunnels for a while, so that they can be said to have ended.
	w.must(w.change(one, func(tx *store.Tx) (err error) {
		box.Status = store.Terminated
		_, err = tx.UpdateSandbox(ctx(t), box)
		return err
	}))
	if r := routes(now)[a.ID]; r.Status != store.Terminated {
		t.Errorf("after the sandbox ended: %+v", r)
	}
	w.must(w.change(one, func(tx *store.Tx) error { return tx.DeleteTunnel(ctx(t), box.ID, a.ID) }))
	if r, there := routes(now.Add(-time.Second))[a.ID]; !there || r.DeletedAt.IsZero() {
		t.Errorf("just deleted: %+v", r)
	}
	if _, there := routes(now.Add(time.Second))[a.ID]; there {
		t.Error("a tunnel that was deleted before the time asked for is listed")
	}
	if _, there := routes(now.Add(59 * time.Second))[b.ID]; !there {
		t.Error("a tunnel that lives is not listed")
	}
	if _, there := routes(now.Add(61 * time.Second))[b.ID]; there {
		t.Error("a tunnel that expired before the time asked for is listed")
	}
}
