package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

var roomy = store.AccessLimits{PerSandbox: 3, PerOrg: 5, Again: time.Minute}

// Access enters a request of a sandbox; change may adjust it.
func (w World) Access(by store.By, sandbox, host string, change ...func(*store.AccessRequest)) (made store.AccessRequest, err error) {
	err = w.change(store.By{Principal: sso.Sandbox(sandbox, by.Principal.Org)}, func(tx *store.Tx) (err error) {
		r := store.AccessRequest{Sandbox: sandbox, Host: host, Port: 443, Protocol: "https", Methods: []string{"GET"}, Paths: []string{"/a"}, Width: "url", Why: "because",
			Lasts: time.Hour, ExpiresAt: tx.Now().Add(30 * time.Minute)}
		for _, f := range change {
			f(&r)
		}
		made, err = tx.CreateAccessRequest(ctx(w.t), r, roomy)
		return err
	})
	return made, err
}

func (w World) decide(by store.By, r store.AccessRequest) (store.AccessRequest, error) {
	err := w.change(by, func(tx *store.Tx) (err error) {
		r, err = tx.DecideAccessRequest(ctx(w.t), r)
		return err
	})
	return r, err
}

func requestsAreKept(t *testing.T, open Open) {
	now := time.Date(2026, 3, 29, 1, 59, 59, 123_456_789, time.FixedZone("+0545", 5*3600+45*60))
	w := NewWorld(t, open, store.Options{Now: func() time.Time { return now }})
	one, two := w.Org("one"), w.Org("two")
	org := one.Principal.Org
	box, other, theirs := w.Sandbox(one, ""), w.Sandbox(one, ""), w.Sandbox(two, "")
	woken := w.AccessChanged()
	first, err := w.Access(one, box.ID, "a.test")
	w.must(err)
	select {
	case <-woken:
	default:
		t.Error("nobody was told of a new request")
	}
	read := func(id string) store.AccessRequest {
		t.Helper()
		r, err := w.AccessRequest(ctx(t), org, id, now)
		w.must(err)
		return r
	}
	want := first
	want.Layers = []string{}
	if diff := cmp.Diff(want, read(first.ID)); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
	if _, err := w.AccessRequest(ctx(t), two.Principal.Org, first.ID, now); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another org reads it: %v", err)
	}
	// Equal is who, what and how wide; not why.
	if again, err := w.Access(one, box.ID, "a.test", func(r *store.AccessRequest) { r.Why = "other words" }); !errors.Is(err, store.ErrJoined) || again.ID != first.ID {
		t.Errorf("an equal one: %s, %v", again.ID, err)
	}
	second, err := w.Access(one, box.ID, "a.test", func(r *store.AccessRequest) { r.Methods = []string{"POST"} })
	w.must(err)
	if _, err := w.Access(one, other.ID, "a.test"); err != nil {
		t.Errorf("of another sandbox: %v", err)
	}
	if _, err := w.Access(one, theirs.ID, "a.test"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of another org's sandbox: %v", err)
	}
	if _, err := w.Access(two, theirs.ID, "a.test"); err != nil {
		t.Errorf("of the other org: %v", err)
	}

	approved := first
	approved.State, approved.Rule, approved.Layers, approved.Reason = store.AccessApproved, "allow-1", []string{"ceiling"}, "fine"
	approved.ExpiresAt = now.Add(time.Hour)
	if _, err := w.decide(two, approved); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another org decides: %v", err)
	}
	if _, err := w.decide(store.By{Principal: sso.Sandbox(box.ID, org)}, approved); !errors.Is(err, store.ErrSandboxDecides) {
		t.Errorf("the sandbox decides: %v", err)
	}
	if r := read(first.ID); r.State != store.AccessOpen {
		t.Errorf("it is %s", r.State)
	}
	approved, err = w.decide(one, approved)
	w.must(err)
	if diff := cmp.Diff(approved, read(first.ID)); diff != "" {
		t.Errorf("approved (-written +read):\n%s", diff)
	}
	if approved.DecidedBy != one.Principal.ID || approved.DecidedAt.IsZero() {
		t.Errorf("decided by %q at %v", approved.DecidedBy, approved.DecidedAt)
	}
	second.State = store.AccessDenied
	if second, err = w.decide(one, second); err != nil {
		t.Fatal(err)
	}
	for _, r := range []store.AccessRequest{approved, second} {
		if _, err := w.decide(one, r); !errors.Is(err, store.ErrDecided) {
			t.Errorf("deciding one that is %s: %v", r.State, err)
		}
	}
	// One that was just denied is the answer to its equal; for a while.
	if again, err := w.Access(one, box.ID, "a.test", func(r *store.AccessRequest) { r.Methods = []string{"POST"} }); !errors.Is(err, store.ErrJoined) || again.ID != second.ID {
		t.Errorf("denied, and asked again: %s, %v", again.ID, err)
	}
	now = now.Add(2 * time.Minute)
	third, err := w.Access(one, box.ID, "a.test", func(r *store.AccessRequest) { r.Methods = []string{"POST"} })
	w.must(err)
	count := func(f store.AccessFilter) int {
		t.Helper()
		all, err := w.AccessRequests(ctx(t), org, f, now)
		w.must(err)
		return len(all)
	}
	for _, c := range []struct {
		filter store.AccessFilter
		want   int
	}{
		{store.AccessFilter{}, 4}, {store.AccessFilter{Sandbox: box.ID}, 3}, {store.AccessFilter{State: store.AccessOpen}, 2}, {store.AccessFilter{State: store.AccessApproved}, 1},
		{store.AccessFilter{State: store.AccessDenied}, 1}, {store.AccessFilter{State: store.AccessExpired}, 0}, {store.AccessFilter{State: store.AccessOpen, Sandbox: box.ID}, 1},
		{store.AccessFilter{Limit: 2}, 2},
	} {
		if got := count(c.filter); got != c.want {
			t.Errorf("%+v: %d, want %d", c.filter, got, c.want)
		}
	}
	now = now.Add(time.Hour)
	if a, b := read(first.ID).State, read(third.ID).State; a != store.AccessExpired || b != store.AccessExpired || count(store.AccessFilter{State: store.AccessExpired}) != 3 {
		t.Errorf("after their time they are %s and %s", a, b)
	}
	third.State = store.AccessApproved
	if _, err := w.decide(one, third); !errors.Is(err, store.ErrDecided) {
		t.Errorf("deciding one whose time is over: %v", err)
	}
	n, err := w.ForgetAccessRequests(ctx(t), now.Add(-30*time.Minute))
	if w.must(err); n == 0 || count(store.AccessFilter{}) == 4 {
		t.Errorf("%d were forgotten", n)
	}
}

func requestLimitsHoldInParallel(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by := w.Org("one")
	box, other := w.Sandbox(by, ""), w.Sandbox(by, "")
	many := func(sandbox, hosts string) (made int) {
		for _, err := range together(8, func(i int) error { _, err := w.Access(by, sandbox, fmt.Sprintf("%s%d.test", hosts, i)); return err }) {
			switch {
			case err == nil:
				made++
			case !errors.Is(err, store.ErrLimit):
				t.Error(err)
			}
		}
		return made
	}
	if made := many(box.ID, "a"); made != roomy.PerSandbox {
		t.Errorf("%d of one sandbox, with a limit of %d", made, roomy.PerSandbox)
	}
	if made := many(other.ID, "a"); made != roomy.PerOrg-roomy.PerSandbox {
		t.Errorf("%d more, with a limit of %d for the org", made, roomy.PerOrg)
	}
	// Equal ones at once are one.
	again := w.Sandbox(w.Org("two"), "")
	made := 0
	for _, err := range together(8, func(int) error {
		_, err := w.Access(store.By{Principal: sso.Principal{Org: again.Org}}, again.ID, "a.test")
		return err
	}) {
		if err == nil {
			made++
		} else if !errors.Is(err, store.ErrJoined) {
			t.Error(err)
		}
	}
	if made != 1 {
		t.Errorf("%d equal requests", made)
	}
	// Of a sandbox that ended nothing counts.
	box.Status = store.Terminated
	w.must(w.change(by, func(tx *store.Tx) error { _, err := tx.UpdateSandbox(ctx(t), box); return err }))
	if made := many(other.ID, "b"); made != 1 {
		t.Errorf("%d more once the other sandbox ended, want the one that its own limit leaves", made)
	}
}
