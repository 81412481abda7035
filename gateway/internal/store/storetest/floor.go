package storetest

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies"
	"portreeve.dev/sso"
)

// installer is the org's key, with what the platform may.
func installer(by store.By) store.By {
	by.Principal.Scopes = sso.AllScopes()
	return by
}

// exempt opens a range for all orgs.
func (w World) exempt(by store.By, cidr string, limit int, change ...func(*store.FloorExemption)) (made store.FloorExemption, err error) {
	e := store.FloorExemption{ID: store.NewID("flx"), Exemption: policies.Exemption{CIDR: netip.MustParsePrefix(cidr), Orgs: []string{policies.EveryOrg}}}
	for _, f := range change {
		f(&e)
	}
	err = w.change(by, func(tx *store.Tx) (err error) { made, err = tx.CreateFloorExemption(ctx(w.t), e, limit); return err })
	return made, err
}

func (w World) close(by store.By, id string) (was store.FloorExemption, err error) {
	err = w.change(by, func(tx *store.Tx) (err error) { was, err = tx.DeleteFloorExemption(ctx(w.t), id); return err })
	return was, err
}

var byCIDR = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func floorExemptionsAreKept(t *testing.T, open Open) {
	now := time.Date(2026, 3, 29, 1, 59, 59, 123_456_789, time.UTC)
	w := NewWorld(t, open, store.Options{Now: func() time.Time { return now }})
	one, two := w.Org("one"), w.Org("two")
	admin := installer(one)
	revision := func() int64 {
		t.Helper()
		n, err := w.Revision(ctx(t))
		w.must(err)
		return n
	}
	// Who is not of the platform changes nothing: an org's owner, a part of ours, a sandbox, a registration.
	before := revision()
	keep, err := w.exempt(admin, "10.9.0.0/16", 10)
	w.must(err)
	if got := revision(); got != before+1 {
		t.Errorf("the edges learn of %d changes", got-before)
	}
	sandbox := installer(one)
	sandbox.Principal.Kind = sso.KindSandbox
	for name, by := range map[string]store.By{"an owner": one, "another org's": two, "a part of ours": {Principal: sso.System("control", one.Principal.Org)}, "a sandbox": sandbox} {
		if _, err := w.exempt(by, "10.1.0.0/16", 10); !errors.Is(err, store.ErrNotPlatform) {
			t.Errorf("%s opens the floor: %v", name, err)
		}
		if _, err := w.close(by, keep.ID); !errors.Is(err, store.ErrNotPlatform) {
			t.Errorf("%s closes it: %v", name, err)
		}
	}
	ended, err := w.exempt(admin, "fd12:3456::/32", 10, func(e *store.FloorExemption) {
		e.Ports, e.Orgs, e.Note, e.ExpiresAt = []uint16{25, 5432}, []string{one.Principal.Org, two.Principal.Org}, "the database", now.Add(time.Hour).Truncate(time.Microsecond)
	})
	w.must(err)
	if ended.Org != one.Principal.Org || ended.CreatedBy != one.Principal.ID || !ended.CreatedAt.Equal(now.Truncate(time.Microsecond)) {
		t.Errorf("made by %q of %q at %v", ended.CreatedBy, ended.Org, ended.CreatedAt)
	}
	want := []store.FloorExemption{keep, ended}
	slices.SortFunc(want, func(a, b store.FloorExemption) int { return strings.Compare(a.ID, b.ID) })
	all, err := w.FloorExemptions(ctx(t))
	w.must(err)
	fed, err := w.FeedState(ctx(t))
	w.must(err)
	for name, got := range map[string][]store.FloorExemption{"listed": all, "fed": fed.Exempt} {
		if diff := cmp.Diff(want, got, byCIDR); diff != "" {
			t.Errorf("%s (-written +read):\n%s", name, diff)
		}
	}
	// What has an end is taken away at it by a part of ours, in the org whose log it stands in.
	end := func(org string, id string) error {
		return w.change(store.By{Principal: sso.System("control", org)}, func(tx *store.Tx) error { _, err := tx.EndFloorExemption(ctx(t), id); return err })
	}
	now = ended.ExpiresAt.Add(-time.Microsecond)
	if err := end(one.Principal.Org, ended.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("before its end: %v", err)
	}
	now = ended.ExpiresAt
	for name, err := range map[string]error{"one without an end": end(one.Principal.Org, keep.ID), "in another org": end(two.Principal.Org, ended.ID)} {
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	before = revision()
	w.must(end(one.Principal.Org, ended.ID))
	if was, err := w.close(admin, keep.ID); err != nil || cmp.Diff(keep, was, byCIDR) != "" {
		t.Errorf("closed is %+v, %v", was, err)
	}
	if got := revision(); got != before+2 {
		t.Errorf("the edges learn of %d changes", got-before)
	}
	if _, err := w.close(admin, keep.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("closed twice: %v", err)
	}
	if all, err := w.FloorExemptions(ctx(t)); err != nil || len(all) != 0 {
		t.Errorf("left: %+v, %v", all, err)
	}
	w.chain(one.Principal.Org)
}

// floorLimitHoldsInParallel: the limit is of the installation, so that keys of two orgs come at once. The second comes when the first has
// counted and is not done.
func floorLimitHoldsInParallel(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	first, other := installer(w.Org("one")), installer(w.Org("two"))
	counted, second := make(chan struct{}), make(chan error, 1)
	go func() {
		<-counted
		_, err := w.exempt(other, "10.2.0.0/16", 1)
		second <- err
	}()
	var once sync.Once
	var later error
	done := false
	e := store.FloorExemption{ID: store.NewID("flx"), Exemption: policies.Exemption{CIDR: netip.MustParsePrefix("10.1.0.0/16"), Orgs: []string{policies.EveryOrg}}}
	w.must(w.change(first, func(tx *store.Tx) error {
		_, err := tx.CreateFloorExemption(ctx(t), e, 1)
		once.Do(func() { close(counted) })
		select {
		case later = <-second: // nothing held it back
			done = true
		case <-time.After(time.Second): // it waits for this one's end
		}
		return err
	}))
	if !done {
		later = <-second
	}
	if !errors.Is(later, store.ErrLimit) && !errors.Is(later, store.ErrBusy) {
		t.Errorf("the second of a limit of 1: %v", later)
	}
	if kept, err := w.FloorExemptions(ctx(t)); err != nil || len(kept) != 1 {
		t.Errorf("%d kept, of a limit of 1; %v", len(kept), err)
	}
}
