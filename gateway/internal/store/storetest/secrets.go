package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/secrets"
)

// change makes one change with an entry.
func (w World) change(by store.By, f func(tx *store.Tx) error) error {
	_, err := w.Change(ctx(w.t), by, func(tx *store.Tx) error {
		if err := f(tx); err != nil {
			return err
		}
		return tx.Record(ctx(w.t), audit.SettingsUpdate, "x", nil)
	})
	return err
}

// Secret keeps a secret.
func (w World) Secret(by store.By, name string) (made store.Secret, err error) {
	err = w.change(by, func(tx *store.Tx) (err error) {
		made, err = tx.CreateSecret(ctx(w.t), store.Secret{ID: store.NewID("sec"), Name: name, Scope: "sandbox", Sealed: []byte("sealed 1\x00\xff")})
		return err
	})
	return made, err
}

var grantsEqual = cmpopts.IgnoreUnexported(secrets.Grant{})

func secretsAreKept(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	one, two := w.Org("one"), w.Org("two")
	made, err := w.Secret(one, "openai")
	w.must(err)
	if made.Version != 1 || made.Org != one.Principal.Org || made.CreatedBy != one.Principal.ID || made.CreatedAt.IsZero() {
		t.Errorf("made %+v", made)
	}
	read := func(by store.By) store.Secret {
		t.Helper()
		s, err := w.Store.Secret(ctx(t), by.Principal.Org, "openai")
		w.must(err)
		return s
	}
	got := read(one)
	if diff := cmp.Diff(made, got, cmpopts.EquateEmpty(), grantsEqual); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
	if _, err := w.Secret(one, "openai"); !errors.Is(err, store.ErrConflict) {
		t.Errorf("the same name twice: %v", err)
	}
	if _, err := w.Secret(two, "openai"); err != nil {
		t.Errorf("the same name in another org: %v", err)
	}
	theirs := read(two)

	grants := []secrets.Grant{{Host: "api.test", Port: 443, Methods: []string{"GET"}, Path: "/v1/**", Place: "header", Header: "Authorization", Template: "Bearer {value}", Policies: []string{"web"}},
		{Host: "b.test", Port: 8443, Path: "/**", Place: "header", Header: "X-Key", Template: "{value}"}}
	w.must(w.change(one, func(tx *store.Tx) error { return tx.SetGrants(ctx(t), "openai", grants) }))
	if diff := cmp.Diff(grants, read(one).Grants, cmpopts.EquateEmpty(), grantsEqual); diff != "" {
		t.Errorf("grants (-written +read):\n%s", diff)
	}
	w.must(w.change(one, func(tx *store.Tx) error { return tx.SetGrants(ctx(t), "openai", nil) }))
	if n := len(read(one).Grants); n != 0 {
		t.Errorf("%d grants after none were set", n)
	}
	if err := w.change(one, func(tx *store.Tx) error { return tx.SetGrants(ctx(t), "other", grants) }); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("grants of what isn't there: %v", err)
	}
	_, err = w.Secret(one, "aws")
	w.must(err)
	if all, err := w.Secrets(ctx(t), one.Principal.Org); err != nil || len(all) != 2 || all[0].Name != "aws" || all[1].Name != "openai" {
		t.Errorf("listed %+v, %v", all, err)
	}
	remove := func() error {
		return w.change(one, func(tx *store.Tx) error { return tx.DeleteSecret(ctx(t), "openai") })
	}
	w.must(remove())
	if err := remove(); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("deleting twice: %v", err)
	}
	if _, err := w.Store.Secret(ctx(t), one.Principal.Org, "openai"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a deleted secret: %v", err)
	}
	if diff := cmp.Diff(theirs, read(two), grantsEqual); diff != "" {
		t.Errorf("the other org's of the same name was changed:\n%s", diff)
	}
	// A name is free again after a deletion; the new one is another secret.
	again, err := w.Secret(one, "openai")
	if err != nil || again.ID == made.ID || read(one).Version != 1 {
		t.Errorf("made again: %+v, %v", again, err)
	}
}

func secretVersionsFollowEachOther(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by := w.Org("one")
	_, err := w.Secret(by, "key")
	w.must(err)
	set := func(version int64, sealed string) error {
		return w.change(by, func(tx *store.Tx) error { return tx.SetSecretValue(ctx(t), "key", version, []byte(sealed)) })
	}
	w.must(set(2, "two"))
	for _, version := range []int64{0, 1, 2, 4} {
		if err := set(version, "wrong"); !errors.Is(err, store.ErrVersion) {
			t.Errorf("version %d after 2: %v", version, err)
		}
	}
	if got, _ := w.Store.Secret(ctx(t), by.Principal.Org, "key"); got.Version != 2 || string(got.Sealed) != "two" {
		t.Errorf("after stale writes: version %d, %q", got.Version, got.Sealed)
	}
	won, winner := 0, ""
	for i, err := range together(8, func(i int) error { return set(3, fmt.Sprint("three ", i)) }) {
		if err == nil {
			won, winner = won+1, fmt.Sprint("three ", i)
		} else if !errors.Is(err, store.ErrVersion) {
			t.Error(err)
		}
	}
	if got, _ := w.Store.Secret(ctx(t), by.Principal.Org, "key"); won != 1 || got.Version != 3 || string(got.Sealed) != winner {
		t.Errorf("%d of 8 writers of one version won; version %d holds %q", won, got.Version, got.Sealed)
	}
}

// firstKeyStays: keys that were made once are never replaced, as what they signed would not be trusted any more.
func firstKeyStays(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	one, two := w.Org("one"), w.Org("two")
	org := one.Principal.Org
	if all, err := w.Roots(ctx(t), org); err != nil || len(all) != 0 {
		t.Errorf("before there is one: %+v, %v", all, err)
	}
	enter := func(by store.By, text string) error {
		return w.change(by, func(tx *store.Tx) error {
			return tx.CreateRoot(ctx(t), store.Root{Version: 1, State: store.RootSigning, Certificate: []byte("root " + text), SealedKey: []byte("key " + text)})
		})
	}
	winner := ""
	for i, err := range together(6, func(i int) error { return enter(one, fmt.Sprint(i)) }) {
		if err == nil {
			winner += fmt.Sprint(i)
		} else if !errors.Is(err, store.ErrConflict) {
			t.Errorf("a second root: %v", err)
		}
	}
	w.must(enter(two, "other"))
	got, err := w.Roots(ctx(t), org)
	if err != nil || len(got) != 1 || string(got[0].Certificate) != "root "+winner || string(got[0].SealedKey) != "key "+winner || got[0].Org != org || time.Since(got[0].CreatedAt) > time.Minute {
		t.Errorf("%q won, and there is %+v (%v)", winner, got, err)
	}

	platform := func(name, text string) (store.PlatformKey, error) {
		return w.PlatformKey(ctx(t), name, func() (store.PlatformKey, error) {
			return store.PlatformKey{Certificate: []byte("cert " + text), Sealed: []byte("key " + text)}, nil
		})
	}
	const n = 8
	var keys [n]store.PlatformKey
	for i, err := range together(n, func(i int) (err error) { keys[i], err = platform("tunnels", fmt.Sprint(i)); return err }) {
		if err != nil {
			t.Errorf("caller %d: %v", i, err)
		}
	}
	for i, k := range keys {
		if diff := cmp.Diff(keys[0], k); diff != "" || k.Name != "tunnels" || len(k.Sealed) == 0 {
			t.Errorf("caller %d has another key than the first:\n%s", i, diff)
		}
	}
	if k, err := platform("tunnels", "late"); err != nil || cmp.Diff(keys[0], k) != "" {
		t.Errorf("a late caller: %+v, %v", k, err)
	}
	// Somebody else comes between the look and the writing.
	var between store.PlatformKey
	slow, err := w.PlatformKey(ctx(t), "raced", func() (store.PlatformKey, error) {
		between, err = platform("raced", "first")
		return store.PlatformKey{Sealed: []byte("second")}, err
	})
	if err != nil || cmp.Diff(between, slow) != "" {
		t.Errorf("the slower of two has %+v, the first %+v, %v", slow, between, err)
	}
	if k, err := platform("cookies", "c"); err != nil || string(k.Sealed) != "key c" {
		t.Errorf("another name: %+v, %v", k, err)
	}
	boom := errors.New("boom")
	if _, err := w.PlatformKey(ctx(t), "broken", func() (store.PlatformKey, error) { return store.PlatformKey{}, boom }); !errors.Is(err, boom) {
		t.Errorf("a key that can't be made: %v", err)
	}
	if k, err := w.PlatformKey(ctx(t), "broken", func() (store.PlatformKey, error) { return store.PlatformKey{Sealed: []byte("x")}, nil }); err != nil || k.Certificate != nil {
		t.Errorf("after that, and without a certificate: %+v, %v", k, err)
	}
}

// secretsAreInTheFeed: the feed's snapshot has each org's secrets, and no other's.
func secretsAreInTheFeed(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	one := w.Org("one")
	w.Org("two")
	mine, err := w.Secret(one, "key")
	w.must(err)
	f, err := w.FeedState(ctx(t))
	w.must(err)
	for _, o := range f.Orgs {
		want := 0
		if o.Org == one.Principal.Org {
			want = 1
		}
		if len(o.Secrets) != want || want == 1 && o.Secrets[0].ID != mine.ID {
			t.Errorf("org %s has %+v", o.Org, o.Secrets)
		}
	}
}
