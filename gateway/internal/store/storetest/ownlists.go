package storetest

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"portreeve.dev/gateway/internal/store"
)

// setOwn sets the own list of a sandbox; "" takes it away.
func (w World) setOwn(by store.By, id, list string, expected int64) (b store.Sandbox, err error) {
	err = w.change(by, func(tx *store.Tx) (err error) {
		var raw json.RawMessage
		if list != "" {
			raw = json.RawMessage(list)
		}
		b, err = tx.SetOwnList(ctx(w.t), id, raw, expected)
		return err
	})
	return b, err
}

func ownListsAreKept(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by, other := w.Org("one"), w.Org("two")
	org := by.Principal.Org
	b := w.Sandbox(by, "")
	if b.Own != nil || b.OwnVersion != 0 {
		t.Errorf("a fresh one has %s, version %d", b.Own, b.OwnVersion)
	}
	read := func() store.Sandbox {
		t.Helper()
		got, err := w.Store.Sandbox(ctx(t), org, b.ID)
		w.must(err)
		return got
	}
	fed := func() (string, int64) {
		t.Helper()
		f, err := w.FeedState(ctx(t))
		w.must(err)
		for _, o := range f.Orgs {
			for _, s := range o.Sandboxes {
				if s.Sandbox == b.ID {
					return string(s.Own), s.Version
				}
			}
		}
		t.Fatal("the sandbox is not in the feed")
		return "", 0
	}
	set, err := w.setOwn(by, b.ID, `{"rules":[]}`, 0)
	w.must(err)
	if got := read(); string(got.Own) != `{"rules":[]}` || got.OwnVersion != 1 || set.OwnVersion != 1 || got.Version != b.Version {
		t.Errorf("own list %s version %d (said %d), sandbox version %d", got.Own, got.OwnVersion, set.OwnVersion, got.Version)
	}
	if own, version := fed(); own != `{"rules":[]}` || version != 1 {
		t.Errorf("the feed has %s version %d", own, version)
	}
	for _, stale := range []int64{0, 2, 7} {
		if _, err := w.setOwn(by, b.ID, `{"rules":[9]}`, stale); !errors.Is(err, store.ErrVersion) {
			t.Errorf("against version %d: %v", stale, err)
		}
	}
	if _, err := w.setOwn(other, b.ID, `{"rules":[9]}`, store.AnyVersion); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("by another org: %v", err)
	}
	// A command that was under way with the row of before neither fails nor brings the old list back.
	w.must(w.change(by, func(tx *store.Tx) error {
		b.Status = store.Paused
		b, err = tx.UpdateSandbox(ctx(t), b)
		return err
	}))
	if got := read(); string(got.Own) != `{"rules":[]}` || got.Status != store.Paused {
		t.Errorf("after a pause: %s, %s", got.Status, got.Own)
	}
	if _, err := w.setOwn(by, b.ID, "", 1); err != nil {
		t.Error(err)
	}
	if got := read(); got.Own != nil || got.OwnVersion != 2 {
		t.Errorf("taken away: %s version %d", got.Own, got.OwnVersion)
	}
	if _, err := w.setOwn(by, b.ID, `{"rules":[3]}`, 2); !errors.Is(err, store.ErrVersion) {
		t.Errorf("against the version of what is gone: %v", err)
	}
	again, err := w.setOwn(by, b.ID, `{"rules":[3]}`, 0)
	if err != nil || again.OwnVersion != 3 {
		t.Errorf("made again: version %d, %v", again.OwnVersion, err)
	}
	errs := together(6, func(int) error { _, err := w.setOwn(by, b.ID, `{}`, 3); return err })
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if !errors.Is(err, store.ErrVersion) {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d of 6 writers of one version won", won)
	}
	b.Status = store.Terminated
	w.must(w.change(by, func(tx *store.Tx) error { b, err = tx.UpdateSandbox(ctx(t), b); return err }))
	if _, err := w.setOwn(by, b.ID, `{}`, store.AnyVersion); !errors.Is(err, store.ErrVersion) {
		t.Errorf("of one that has ended: %v", err)
	}
	if _, err := w.setOwn(by, store.NewID("sbx"), `{}`, store.AnyVersion); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of none: %v", err)
	}
}

// ownListsAreBounded: the lists of an org's live sandboxes are bounded together.
func ownListsAreBounded(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by := w.Org("one")
	half := `{"m":"` + strings.Repeat("x", store.OwnBytes/2-10) + `"}`
	first, second, third := w.Sandbox(by, ""), w.Sandbox(by, ""), w.Sandbox(by, "")
	for _, b := range []store.Sandbox{first, second} {
		_, err := w.setOwn(by, b.ID, half, 0)
		w.must(err)
	}
	big := `{"m":"` + strings.Repeat("x", 100) + `"}`
	if _, err := w.setOwn(by, third.ID, big, 0); !errors.Is(err, store.ErrLimit) {
		t.Errorf("one more: %v", err)
	}
	create := func() error {
		return w.change(by, func(tx *store.Tx) error {
			_, err := tx.CreateSandbox(ctx(t), store.Sandbox{ID: store.NewID("sbx"), Status: store.Running, Own: json.RawMessage(big), ExpiresAt: tx.Now().Add(time.Hour)}, 0)
			return err
		})
	}
	if err := create(); !errors.Is(err, store.ErrLimit) {
		t.Errorf("one more at create: %v", err)
	}
	two := w.Org("two")
	_, err := w.setOwn(two, w.Sandbox(two, "").ID, big, 0) // another org's don't count
	w.must(err)
	first.Status = store.Terminated
	w.must(w.change(by, func(tx *store.Tx) error { _, err := tx.UpdateSandbox(ctx(t), first); return err })) // nor one's that has ended
	_, err = w.setOwn(by, third.ID, big, 0)
	w.must(err)
	w.must(create())
}

func sandboxesChangeTheirPolicy(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by, other := w.Org("one"), w.Org("two")
	b := w.Sandbox(by, "web")
	move := func(by store.By, id, seen, policy string) (got store.Sandbox, err error) {
		err = w.change(by, func(tx *store.Tx) (err error) {
			got, err = tx.SetSandboxPolicy(ctx(t), id, seen, policy)
			return err
		})
		return got, err
	}
	if got, err := move(by, b.ID, "web", "db"); err != nil || got.Policy != "db" || got.Version != b.Version {
		t.Errorf("moved to %+v, %v", got, err)
	}
	if _, err := move(by, b.ID, "web", "other"); !errors.Is(err, store.ErrVersion) {
		t.Errorf("from where it isn't any more: %v", err)
	}
	if _, err := move(other, b.ID, "db", "other"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("by another org: %v", err)
	}
	w.must(w.change(by, func(tx *store.Tx) error { _, err := tx.UpdateSandbox(ctx(t), b); return err })) // b says web
	if got, err := w.Store.Sandbox(ctx(t), by.Principal.Org, b.ID); err != nil || got.Policy != "db" {
		t.Errorf("after a command that was under way: %q, %v", got.Policy, err)
	}
}
