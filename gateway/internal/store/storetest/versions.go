package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
)

func versionsAreListed(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by, other := w.Org("one"), w.Org("two")
	org := by.Principal.Org
	w.must(w.change(by, func(tx *store.Tx) error {
		_, err := tx.PutPolicyFrom(ctx(t), "web", json.RawMessage(`{"n":1}`), store.Origin{Source: "n: 1 # one\n"}, 0)
		return err
	}))
	_, _, err := w.Policy(by, "web", `{"n":22}`, 1)
	w.must(err)
	w.must(w.change(by, func(tx *store.Tx) error {
		_, err := tx.PutPolicyFrom(ctx(t), "web", json.RawMessage(`{"n":1}`), store.Origin{Source: "n: 1 # one\n", Restored: 1}, 2)
		return err
	}))
	now, err := w.Store.Policy(ctx(t), org, "web")
	if err != nil || now.Source != "n: 1 # one\n" || now.Restored != 1 || now.Version != 3 {
		t.Errorf("now %+v, %v", now, err)
	}
	if second, err := w.PolicyVersion(ctx(t), org, "web", 2); err != nil || second.Source != "" || second.Restored != 0 {
		t.Errorf("the second %+v, %v", second, err)
	}
	all, err := w.PolicyVersions(ctx(t), org, "web", 0, 10)
	w.must(err)
	if len(all) != 3 || all[0].Version != 3 || all[0].Restored != 1 || all[1].Bytes != 8 || all[2].Version != 1 || all[2].CreatedBy != by.Principal.ID || time.Since(all[2].CreatedAt) > time.Minute {
		t.Errorf("%+v", all)
	}
	if page, err := w.PolicyVersions(ctx(t), org, "web", 3, 1); err != nil || len(page) != 1 || page[0].Version != 2 {
		t.Errorf("a page %+v, %v", page, err)
	}
	if theirs, err := w.PolicyVersions(ctx(t), other.Principal.Org, "web", 0, 10); err != nil || len(theirs) != 0 {
		t.Errorf("another org's %+v, %v", theirs, err)
	}
}

// oldVersionsAreForgotten: the last ones are kept, and those that decisions name.
func oldVersionsAreForgotten(t *testing.T, open Open) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	ahead := time.Duration(0)
	w := NewWorld(t, open, store.Options{Now: func() time.Time { return now.Add(ahead) }, Earliest: func() time.Time { return now }})
	by, other := w.Org("one"), w.Org("two")
	org := by.Principal.Org
	put := func(by store.By, name string, n int) {
		t.Helper()
		_, err := w.Change(ctx(t), by, func(tx *store.Tx) error {
			for i := range n {
				if _, err := tx.PutPolicy(ctx(t), name, json.RawMessage(fmt.Sprintf(`{"n":%d}`, i)), store.AnyVersion); err != nil {
					return err
				}
			}
			return tx.Record(ctx(t), audit.PolicyUpdate, "policy:"+name, nil)
		})
		w.must(err)
	}
	versions := func(by store.By, name string) []int64 {
		t.Helper()
		all, err := w.PolicyVersions(ctx(t), by.Principal.Org, name, 0, 10_000)
		w.must(err)
		var numbers []int64
		for _, v := range all {
			numbers = append(numbers, v.Version)
		}
		slices.Reverse(numbers)
		return numbers
	}
	named := func(layer string, version int64, at time.Time) decisions.Decision {
		d := decision(by, "a.test", at)
		d.RuleLayer, d.Version = layer, version
		return d
	}
	put(by, "web", 10)
	put(by, store.Ceiling, 10)
	put(other, "web", 10)
	w.must(w.AppendDecisions(ctx(t), []decisions.Decision{
		named("policy:web", 3, now.Add(-time.Hour)), named("policy:web", 4, now.Add(-29*24*time.Hour)), named("ceiling", 5, now),
		named("policy:web", 3, now.Add(-2*time.Hour)), named("own", 6, now), named("floor", 0, now),
	}))
	ahead = 365 * 24 * time.Hour // for a while, the clock is: nothing is old by that
	put(by, "web", store.VersionsKept)
	put(by, store.Ceiling, store.VersionsKept)
	put(other, "web", store.VersionsKept)
	ahead = 0
	for name, c := range map[string]struct {
		by   store.By
		doc  string
		kept []int64
	}{
		"a policy": {by, "web", []int64{3, 4}}, "the ceiling": {by, store.Ceiling, []int64{5}}, "another org's policy of that name": {other, "web", nil},
	} {
		got := versions(c.by, c.doc)
		if len(got) != store.VersionsKept+len(c.kept) || !slices.Equal(got[:len(c.kept)], c.kept) || got[len(c.kept)] != 11 {
			t.Errorf("%s has %d versions, from %v", name, len(got), got[:min(6, len(got))])
		}
	}
	if p, err := w.PolicyVersion(ctx(t), org, "web", 3); err != nil || string(p.Document) != `{"n":2}` {
		t.Errorf("one that a decision names: %+v, %v", p, err)
	}
	if _, err := w.PolicyVersion(ctx(t), org, "web", 5); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("one that no decision names: %v", err)
	}
	// Two days later one of the decisions is older than decisions are kept; the other isn't.
	now = now.Add(2 * 24 * time.Hour)
	put(by, "web", 1)
	if got := versions(by, "web"); len(got) != store.VersionsKept+1 || got[0] != 3 || got[1] != 12 {
		t.Errorf("later there are %d versions, from %v", len(got), got[:3])
	}
}

// secretsAreBounded: by number, and by bytes with their grants.
func secretsAreBounded(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by, two := w.Org("one"), w.Org("two")
	many := func(n int, sealed []byte) error {
		return w.change(by, func(tx *store.Tx) error {
			for range n {
				id := store.NewID("sec")
				if _, err := tx.CreateSecret(ctx(t), store.Secret{ID: id, Name: id, Scope: "sandbox", Sealed: sealed}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	w.must(many(store.SecretCount-1, []byte("x")))
	_, err := w.Secret(by, "last")
	w.must(err)
	if _, err := w.Secret(by, "one too many"); !errors.Is(err, store.ErrLimit) {
		t.Errorf("one more: %v", err)
	}
	_, err = w.Secret(two, "one of another org")
	w.must(err)
	set := func(size int) error {
		return w.change(by, func(tx *store.Tx) error { return tx.SetSecretValue(ctx(t), "last", 2, make([]byte, size)) })
	}
	if err := set(store.SecretBytes); !errors.Is(err, store.ErrLimit) {
		t.Errorf("too large: %v", err)
	}
	if got, err := w.Store.Secret(ctx(t), by.Principal.Org, "last"); err != nil || got.Version != 1 {
		t.Errorf("what was refused is stored: %+v, %v", got, err)
	}
	w.must(set(store.SecretBytes / 2))
}

// policiesAreCounted: an org's documents are bounded by number too, and those that are deleted don't count.
func policiesAreCounted(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by := w.Org("one")
	_, _, err := w.Policy(by, store.Ceiling, `{}`, 0)
	w.must(err)
	w.must(w.change(by, func(tx *store.Tx) error {
		for i := range store.PolicyCount - 1 {
			if _, err := tx.PutPolicy(ctx(t), fmt.Sprint("p", i), json.RawMessage(`{}`), 0); err != nil {
				return err
			}
		}
		return nil
	}))
	if _, _, err := w.Policy(by, "over", `{}`, 0); !errors.Is(err, store.ErrLimit) {
		t.Errorf("one more: %v", err)
	}
	_, _, err = w.Policy(by, "p0", `{"n":2}`, 1) // a new version is no new document
	w.must(err)
	w.must(w.change(by, func(tx *store.Tx) error { return tx.DeletePolicy(ctx(t), "p0", store.AnyVersion) }))
	_, _, err = w.Policy(by, "over", `{}`, 0)
	w.must(err)
}
