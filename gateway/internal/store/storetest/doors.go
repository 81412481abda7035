package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"portreeve.dev/gateway/internal/store"
)

func doorKeysAreRotated(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	one, two := w.Org("one"), w.Org("two")
	rotate := func(by store.By, version int64) error {
		return w.change(by, func(tx *store.Tx) error {
			return tx.RotateDoorKey(ctx(t), store.DoorKey{Version: version, Sealed: []byte{byte(version)}})
		})
	}
	versions := func(by store.By) (all []int64) {
		t.Helper()
		keys, err := w.DoorKeys(ctx(t), by.Principal.Org)
		w.must(err)
		for _, k := range keys {
			if k.Org != by.Principal.Org || len(k.Sealed) != 1 || k.Sealed[0] != byte(k.Version) || k.CreatedAt.IsZero() {
				t.Errorf("key %+v", k)
			}
			all = append(all, k.Version)
		}
		return all
	}
	before, err := w.Revision(ctx(t))
	w.must(err)
	for v := range int64(4) {
		w.must(rotate(one, v+1))
	}
	if got := versions(one); !slices.Equal(got, []int64{4, 3}) {
		t.Errorf("kept are %v: the newest and the one before it", got)
	}
	if got := versions(two); len(got) != 0 {
		t.Errorf("another org has %v", got)
	}
	if err := rotate(one, 4); !errors.Is(err, store.ErrConflict) {
		t.Errorf("the same version twice: %v", err)
	}
	if after, err := w.Revision(ctx(t)); err != nil || after != before+4 {
		t.Errorf("the edges learn of %d changes, %v", after-before, err)
	}
	f, err := w.FeedState(ctx(t))
	w.must(err)
	for _, o := range f.Orgs {
		if want := map[bool]int{true: 2}[o.Org == one.Principal.Org]; len(o.DoorKeys) != want {
			t.Errorf("%d keys of %s in the feed", len(o.DoorKeys), o.Org)
		}
	}
}

func attachedSandboxesEnd(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	one := w.Org("one")
	end := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	var boxes []store.Sandbox
	w.must(w.change(one, func(tx *store.Tx) error {
		for _, kind := range []store.SandboxKind{store.Own, store.Attached, ""} {
			b, err := tx.CreateSandbox(ctx(t), store.Sandbox{ID: store.NewID("sbx"), Kind: kind, Status: store.Running, ExpiresAt: end}, 0)
			if err != nil {
				return err
			}
			boxes = append(boxes, b)
		}
		return nil
	}))
	for i, want := range []store.SandboxKind{store.Own, store.Attached, store.Own} {
		if b, err := w.Store.Sandbox(ctx(t), one.Principal.Org, boxes[i].ID); err != nil || b.Kind != want {
			t.Errorf("kind %q, want %q, %v", b.Kind, want, err)
		}
	}
	if overdue, err := w.OverdueAttached(ctx(t), end.Add(-time.Microsecond)); err != nil || len(overdue) != 0 {
		t.Errorf("before their end: %+v, %v", overdue, err)
	}
	overdue, err := w.OverdueAttached(ctx(t), end)
	if err != nil || len(overdue) != 1 || overdue[0].ID != boxes[1].ID {
		t.Errorf("at their end: %+v, %v", overdue, err)
	}
	fed := func() (all []string) {
		t.Helper()
		f, err := w.FeedState(ctx(t))
		w.must(err)
		for _, b := range f.Orgs[0].Sandboxes {
			if b.Attached {
				all = append(all, b.Sandbox)
				if b.Incarnation != 1 || !b.ExpiresAt.Equal(end) {
					t.Errorf("fed as %+v", b)
				}
			}
		}
		return all
	}
	if got := fed(); !slices.Equal(got, []string{boxes[1].ID}) {
		t.Errorf("attached in the feed: %v", got)
	}
	condemned := boxes[1]
	condemned.Status = store.Terminating
	w.must(w.change(one, func(tx *store.Tx) error { _, err := tx.UpdateSandbox(ctx(t), condemned); return err }))
	if got := fed(); len(got) != 0 {
		t.Errorf("attached although they are told to end: %v", got)
	}
}
