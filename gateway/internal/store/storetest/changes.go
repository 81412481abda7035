package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

func changeNeedsAPrincipal(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by := w.Org("one")
	began := false
	note := func(tx *store.Tx) error {
		began = true
		return tx.Record(ctx(t), audit.SettingsUpdate, "settings", nil)
	}
	for name, p := range map[string]sso.Principal{
		"nobody":          {},
		"without org":     {Kind: sso.KindKey, ID: "key_1"},
		"without id":      {Kind: sso.KindKey, Org: by.Principal.Org},
		"of unknown kind": {Kind: "root", ID: "root", Org: by.Principal.Org},
	} {
		if _, err := w.Change(ctx(t), store.By{Principal: p}, note); !errors.Is(err, store.ErrNoPrincipal) || began {
			t.Errorf("principal %s: err = %v, begun = %v", name, err, began)
		}
	}
	unknown := sso.Principal{Kind: sso.KindKey, ID: "key_1", Org: store.NewID("org")}
	if _, err := w.Change(ctx(t), store.By{Principal: unknown}, note); !errors.Is(err, store.ErrNotFound) || began {
		t.Errorf("principal of an unknown org: err = %v, begun = %v", err, began)
	}
	if _, err := w.Change(ctx(t), by, note); err != nil || !began {
		t.Errorf("a valid principal: err = %v, begun = %v", err, began)
	}
}

func changeNeedsAnAuditEntry(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by := w.Org("one")
	_, err := w.Change(ctx(t), by, func(tx *store.Tx) error {
		_, err := tx.PutPolicy(ctx(t), "web", []byte(`{}`), store.AnyVersion)
		return err
	})
	if !errors.Is(err, store.ErrUnaudited) {
		t.Errorf("a change without an entry: err = %v", err)
	}
	if _, err := w.Store.Policy(ctx(t), by.Principal.Org, "web"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the policy of a change without an entry is there: err = %v", err)
	}
	if _, _, err := w.Policy(by, "web", `{}`, store.AnyVersion); err != nil {
		t.Errorf("the same change with an entry: %v", err)
	}
	if _, err := w.Store.Policy(ctx(t), by.Principal.Org, "web"); err != nil {
		t.Error(err)
	}
}

func entryAndChangeGoTogether(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by := w.Org("one")
	before := len(w.chain(by.Principal.Org))
	boom := errors.New("boom")
	_, err := w.Change(ctx(t), by, func(tx *store.Tx) error {
		if _, err := tx.PutPolicy(ctx(t), "web", []byte(`{}`), store.AnyVersion); err != nil {
			return err
		}
		if err := tx.Record(ctx(t), audit.PolicyUpdate, "policy:web", nil); err != nil {
			return err
		}
		return boom
	})
	if !errors.Is(err, boom) {
		t.Fatalf("err = %v", err)
	}
	if n := len(w.chain(by.Principal.Org)); n != before {
		t.Errorf("%d entries after a change that failed, %d before", n, before)
	}
	_, _, err = w.Policy(by, "web", `{}`, 0)
	w.must(err)
	all := w.chain(by.Principal.Org)
	last := all[len(all)-1]
	if len(all) != before+1 || last.Action != audit.PolicyUpdate || last.Actor != by.Principal.ID || last.Address != "192.0.2.1" || last.RequestID != "req_1" {
		t.Errorf("the entry of a change: %+v", last)
	}
	_, err = w.Change(ctx(t), by, func(tx *store.Tx) error { return tx.Record(ctx(t), "made.up", "x", nil) })
	if err == nil {
		t.Error("an unknown action was recorded")
	}
}

func parallelChangesKeepTheChain(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	a, b := w.Org("one"), w.Org("two")
	const n = 24
	for i, err := range together(n, func(i int) error {
		by := a
		if i%2 == 1 {
			by = b
		}
		_, _, err := w.Policy(by, fmt.Sprint("p", i), `{}`, 0)
		return err
	}) {
		if err != nil {
			t.Errorf("change %d: %v", i, err)
		}
	}
	for _, by := range []store.By{a, b} {
		if got := len(w.chain(by.Principal.Org)); got != 1+n/2 {
			t.Errorf("%d entries, want %d", got, 1+n/2)
		}
	}
}

func revisionsAreCommitOrdered(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	orgs := []store.By{w.Org("one"), w.Org("two"), w.Org("three")}
	const n = 18
	var mu sync.Mutex
	var given []int64
	done := make(chan struct{})
	// A reader that saw revision r must never see a lower one later, nor learn of a change at r afterwards.
	seen := make(chan []int64)
	go func() {
		var all []int64
		for {
			select {
			case <-done:
				seen <- all
				return
			default:
			}
			f, err := w.FeedState(context.Background())
			if err != nil {
				t.Errorf("feed: %v", err)
				continue
			}
			var documents int64
			for _, o := range f.Orgs {
				documents += int64(len(o.Named))
			}
			all = append(all, f.Revision, documents)
		}
	}()
	for i, err := range together(n, func(i int) error {
		_, rev, err := w.Policy(orgs[i%3], fmt.Sprint("p", i), `{}`, 0)
		mu.Lock()
		given = append(given, rev)
		mu.Unlock()
		return err
	}) {
		if err != nil {
			t.Errorf("change %d: %v", i, err)
		}
	}
	close(done)
	pairs := <-seen
	for i := 0; i+1 < len(pairs); i += 2 {
		if rev, documents := pairs[i], pairs[i+1]; documents != rev-1 {
			t.Errorf("at revision %d there are %d documents: the revision does not say what is there", rev, documents)
		}
		if i > 1 && pairs[i] < pairs[i-2] {
			t.Errorf("revision %d after %d", pairs[i], pairs[i-2])
		}
	}
	slices.Sort(given)
	if len(slices.Compact(given)) != n {
		t.Errorf("revisions %v are not all different", given)
	}
	_, err := w.Change(ctx(t), orgs[0], func(tx *store.Tx) error { return tx.Record(ctx(t), audit.FileRead, "x", nil) })
	w.must(err)
	if rev, _ := w.Revision(ctx(t)); rev != n+1 {
		t.Errorf("revision %d after a change that edge needn't know, want %d", rev, n+1)
	}
}

func setupTokenWorksOnce(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	register := func(slug string) error {
		by := store.By{Principal: sso.Principal{Kind: sso.KindSetup, ID: "setup", Org: store.NewID("org")}}
		_, err := w.Change(ctx(t), by, func(tx *store.Tx) error {
			if err := tx.UseSetupToken(ctx(t), []byte("hash of the token")); err != nil {
				return err
			}
			if _, err := tx.CreateOrg(ctx(t), slug, slug); err != nil {
				return err
			}
			return tx.Record(ctx(t), audit.OrgRegister, by.Principal.Org, nil)
		})
		return err
	}
	worked := 0
	for _, err := range together(8, func(i int) error { return register(fmt.Sprint("org", i)) }) {
		switch {
		case err == nil:
			worked++
		case !errors.Is(err, store.ErrConflict):
			t.Errorf("a used token: %v", err)
		}
	}
	if worked != 1 {
		t.Errorf("one token registered %d orgs", worked)
	}
	if orgs, err := w.Orgs(ctx(t)); err != nil || len(orgs) != 1 {
		t.Errorf("%d orgs, %v", len(orgs), err)
	}
	by := w.Org("other")
	_, err := w.Change(ctx(t), by, func(tx *store.Tx) error {
		_, err := tx.CreateOrg(ctx(t), "sneaked", "sneaked")
		return err
	})
	if !errors.Is(err, store.ErrNoPrincipal) {
		t.Errorf("a key made an org: %v", err)
	}
}

func cancelledChange(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by := w.Org("one")
	gone, cancel := context.WithCancel(ctx(t))
	_, err := w.Change(gone, by, func(tx *store.Tx) error {
		if _, err := tx.PutPolicy(gone, "web", []byte(`{}`), store.AnyVersion); err != nil {
			return err
		}
		if err := tx.Record(gone, audit.PolicyUpdate, "policy:web", nil); err != nil {
			return err
		}
		cancel()
		return nil
	})
	if err == nil {
		t.Error("a cancelled change was committed")
	}
	if _, err := w.Store.Policy(ctx(t), by.Principal.Org, "web"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a cancelled change left its policy: %v", err)
	}
	if _, _, err := w.Policy(by, "web", `{}`, 0); err != nil {
		t.Errorf("after a cancelled change: %v", err)
	}
}
