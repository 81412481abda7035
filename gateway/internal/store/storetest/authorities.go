package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"portreeve.dev/gateway/internal/store"
)

func rootsChangeInOrder(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	one, two := w.Org("one"), w.Org("two")
	org := one.Principal.Org
	soon := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	create := func(by store.By, version int64, state store.RootState, changes time.Time) error {
		return w.change(by, func(tx *store.Tx) error {
			return tx.CreateRoot(ctx(t), store.Root{Version: version, State: state, Certificate: []byte{1, byte(version)}, SealedKey: []byte{2, byte(version)}, ChangesAt: changes})
		})
	}
	move := func(version int64, from, to store.RootState, changes time.Time) error {
		return w.change(one, func(tx *store.Tx) error { return tx.MoveRoot(ctx(t), version, from, to, changes) })
	}
	states := func() string {
		t.Helper()
		all, err := w.Roots(ctx(t), org)
		w.must(err)
		said := ""
		for _, r := range all {
			said += fmt.Sprint(r.Version, " ", r.State, " ")
			if gone := len(r.SealedKey) == 0; gone != (r.State == store.RootRetired) || len(r.Certificate) != 2 {
				t.Errorf("root %d, which is %s: %d bytes of a key, %d of a certificate", r.Version, r.State, len(r.SealedKey), len(r.Certificate))
			}
		}
		return said
	}
	mark := func() string {
		t.Helper()
		f, err := w.FeedState(ctx(t))
		w.must(err)
		for _, o := range f.Orgs {
			if o.Org == org {
				return o.Authority
			}
		}
		return "no such org"
	}

	if err := create(one, 1, "", time.Time{}); err == nil {
		t.Error("a root for nothing was entered")
	}
	if got := mark(); got != "" {
		t.Errorf("the mark without a root is %q", got)
	}
	w.must(create(one, 1, store.RootSigning, time.Time{}))
	w.must(create(two, 1, store.RootSigning, time.Time{}))
	first := mark()
	if err := create(one, 2, store.RootSigning, time.Time{}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a second one that signs: %v", err)
	}
	w.must(create(one, 2, store.RootNext, soon))
	if err := create(one, 3, store.RootNext, soon); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a second one that is next: %v", err)
	}
	if err := create(one, 2, store.RootNext, soon); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a version twice: %v", err)
	}
	if err := move(2, store.RootNext, store.RootSigning, time.Time{}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("signing beside the first: %v", err)
	}
	if got := mark(); got != first {
		t.Errorf("with a next one the mark is %q, before it was %q", got, first)
	}
	if all, err := w.ChangingRoots(ctx(t), soon.Add(-time.Minute)); err != nil || len(all) != 1 || all[0].Version != 2 || all[0].Org != org || !all[0].ChangesAt.Equal(soon) {
		t.Errorf("changing: %+v, %v", all, err)
	}
	before, err := w.Revision(ctx(t))
	w.must(err)
	w.must(w.change(one, func(tx *store.Tx) error {
		return errors.Join(tx.MoveRoot(ctx(t), 1, store.RootSigning, store.RootLeaving, soon), tx.MoveRoot(ctx(t), 2, store.RootNext, store.RootSigning, time.Time{}))
	}))
	if after, err := w.Revision(ctx(t)); err != nil || after != before+1 {
		t.Errorf("the edges learn of %d changes, %v", after-before, err)
	}
	if got := mark(); got == first || got == "" {
		t.Errorf("another root signs, and the mark is %q, as before %q", got, first)
	}
	if got := states(); got != "2 signing 1 leaving " {
		t.Errorf("after the change: %s", got)
	}
	if all, _ := w.ChangingRoots(ctx(t), soon.Add(-time.Minute)); len(all) != 0 {
		t.Errorf("before its time: %+v", all)
	}
	if all, err := w.ChangingRoots(ctx(t), soon); err != nil || len(all) != 1 || all[0].Version != 1 {
		t.Errorf("at its time: %+v, %v", all, err)
	}
	if err := move(1, store.RootNext, store.RootRetired, soon); !errors.Is(err, store.ErrVersion) {
		t.Errorf("out of a state that it is not in: %v", err)
	}
	w.must(move(1, store.RootLeaving, store.RootRetired, soon))
	if got := states(); got != "2 signing 1 retired " {
		t.Errorf("at the end: %s", got)
	}
	w.must(create(one, 3, store.RootNext, soon))
	for _, s := range []store.RootState{"", store.RootRetired} {
		if s.Trusted() {
			t.Errorf("a root that is %q is trusted", s)
		}
	}
}

func intermediatesAreKept(t *testing.T, open Open) {
	now := time.Now().UTC().Truncate(time.Microsecond)
	w := NewWorld(t, open, store.Options{Now: func() time.Time { return now }})
	one := w.Org("one")
	org := one.Principal.Org
	add := func(serial string, life time.Duration) error {
		return w.change(one, func(tx *store.Tx) error {
			return tx.AddIntermediate(ctx(t), store.Intermediate{Serial: serial, Root: 1, EndsAt: now.Add(life)})
		})
	}
	list := func() []store.Intermediate {
		t.Helper()
		all, err := w.Intermediates(ctx(t), org, now)
		w.must(err)
		return all
	}
	w.must(w.change(one, func(tx *store.Tx) error {
		return tx.CreateRoot(ctx(t), store.Root{Version: 1, State: store.RootSigning, Certificate: []byte("c"), SealedKey: []byte("k")})
	}))
	w.must(add("0a", time.Hour))
	now = now.Add(time.Minute)
	w.must(add("0b", 2*time.Hour))
	if err := add("0b", time.Hour); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a serial twice: %v", err)
	}
	if all := list(); len(all) != 2 || all[0].Serial != "0b" || all[0].Root != 1 || !all[0].EndsAt.Equal(now.Add(2*time.Hour)) || !all[0].CreatedAt.Equal(now) || !all[0].RevokedAt.IsZero() {
		t.Errorf("kept: %+v", all)
	}
	revoke := func(serial string) (revision int64, err error) {
		before, err := w.Revision(ctx(t))
		w.must(err)
		err = w.change(one, func(tx *store.Tx) error { return tx.RevokeIntermediate(ctx(t), serial) })
		after, _ := w.Revision(ctx(t))
		return after - before, err
	}
	if _, err := revoke("0c"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("one that is not there: %v", err)
	}
	if told, err := revoke("0a"); err != nil || told != 1 {
		t.Errorf("revoking: %d revisions, %v", told, err)
	}
	at := now
	now = now.Add(time.Minute)
	if _, err := revoke("0a"); err != nil {
		t.Errorf("again: %v", err)
	}
	if all := list(); len(all) != 2 || !all[0].RevokedAt.IsZero() || !all[1].RevokedAt.Equal(at) {
		t.Errorf("revoked: %+v", all)
	}
	now = now.Add(90 * time.Minute)
	if all := list(); len(all) != 1 || all[0].Serial != "0b" {
		t.Errorf("of which one has ended: %+v", all)
	}
}
