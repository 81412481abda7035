package authorities

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"portreeve.dev/egress/ca"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/internal/store/storetest"
	"portreeve.dev/secrets/seal"
)

// A world is a service over a real store, with a clock of its own and a node that remembers what it was told.
type world struct {
	storetest.World
	*Service
	t   *testing.T
	now time.Time

	mu   sync.Mutex
	told map[string]string // by org
	away bool
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: time.Now().UTC().Truncate(time.Second), told: map[string]string{}}
	clock := func() time.Time { return w.now }
	w.World = storetest.NewWorld(t, func(t *testing.T, opt store.Options) *store.Store {
		st, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		return st
	}, store.Options{Now: clock})
	ring, err := seal.Create(filepath.Join(t.TempDir(), "master.key"))
	if err != nil {
		t.Fatal(err)
	}
	if w.Service, err = New(Config{Store: w.World.Store, Keyring: ring, Node: w.node(), Now: clock}); err != nil {
		t.Fatal(err)
	}
	return w
}

type tell func(org string, pem []byte) error

func (f tell) Trust(_ context.Context, org string, pem []byte) error { return f(org, pem) }

func (w *world) node() Node {
	return tell(func(org string, pem []byte) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.away {
			return errors.New("the node is away")
		}
		w.told[org] = string(pem)
		return nil
	})
}

func (w *world) step(after time.Duration) error {
	w.now = w.now.Add(after)
	return w.Step(w.t.Context())
}

func (w *world) mustStep(after time.Duration) {
	w.t.Helper()
	if err := w.step(after); err != nil {
		w.t.Fatal(err)
	}
}

// signed returns an intermediate of the org's, and the version in the name of the root that signed it.
func (w *world) signed(by store.By) *x509.Certificate {
	w.t.Helper()
	chain, err := w.Sign(w.t.Context(), by.Principal.Org, edgeKey(w.t))
	if err != nil || len(chain) != 2 {
		w.t.Fatalf("%d certificates, %v", len(chain), err)
	}
	cert, err := x509.ParseCertificate(chain[0])
	if err != nil {
		w.t.Fatal(err)
	}
	return cert
}

func edgeKey(t *testing.T) *ecdsa.PublicKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &key.PublicKey
}

// trusts reports whether who trusts the PEM accepts the intermediate.
func (w *world) trusts(roots string, cert *x509.Certificate) bool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(roots))
	_, err := cert.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: w.now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err == nil
}

func (w *world) trust(by store.By) string {
	w.t.Helper()
	pem, err := w.Trust(w.t.Context(), by.Principal.Org)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(pem)
}

func (w *world) rotate(by store.By, wait time.Duration) {
	w.t.Helper()
	if _, err := w.Rotate(w.t.Context(), by, wait); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) states(by store.By) string {
	w.t.Helper()
	v, err := w.View(w.t.Context(), by.Principal.Org)
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, r := range v.Roots {
		all = append(all, string(r.State))
	}
	return strings.Join(all, " ")
}

// end ends a sandbox.
func (w *world) end(by store.By, b store.Sandbox) {
	w.t.Helper()
	b.Status = store.Terminated
	_, err := w.World.Change(w.t.Context(), by, func(tx *store.Tx) error {
		if _, err := tx.UpdateSandbox(w.t.Context(), b); err != nil {
			return err
		}
		return tx.Record(w.t.Context(), audit.SandboxDelete, b.ID, nil)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestNewRootWaitsForTheOld(t *testing.T) {
	w := newWorld(t)
	one := w.Org("one")
	org := one.Principal.Org
	before := w.trust(one)
	old := w.signed(one)
	b := w.Sandbox(one, "")
	w.now = w.now.Add(time.Minute)
	w.rotate(one, time.Hour)
	both := w.trust(one)
	if !strings.HasPrefix(both, before) || strings.Count(both, "BEGIN") != 2 {
		t.Fatalf("trusted are not both, the one that signs first:\n%s", both)
	}
	w.mustStep(time.Second)
	if w.told[org] != both {
		t.Error("running sandboxes were not told")
	}
	if got := w.states(one); got != "next signing" {
		t.Errorf("with a sandbox of before: %s", got)
	}
	if m := w.signed(one); !w.trusts(before, m) {
		t.Error("the new root signs while a sandbox of before lives")
	}
	if v, err := w.View(t.Context(), org); err != nil || v.Waiting != 1 || !v.Roots[0].ChangesAt.Equal(v.Roots[0].CreatedAt.Add(time.Hour)) {
		t.Errorf("it waits for %d, %v", v.Waiting, err)
	}
	if _, err := w.Rotate(t.Context(), one, time.Hour); !errors.Is(err, ErrRotating) {
		t.Errorf("a second rotation: %v", err)
	}

	// Its end is what the new one waited for; a sandbox that was made since has both roots.
	w.now = w.now.Add(time.Minute)
	w.Sandbox(one, "")
	w.end(one, b)
	w.mustStep(time.Second)
	m := w.signed(one)
	if got := w.states(one); got != "signing leaving" || w.trusts(before, m) || !w.trusts(both, m) || !w.trusts(w.trust(one), old) {
		t.Errorf("once no sandbox of before lives: %s", got)
	}

	// And of another rotation, its wait: that sandbox lives on.
	w.rotate(one, time.Hour)
	w.mustStep(59 * time.Minute)
	if got := w.states(one); got != "next signing leaving" {
		t.Errorf("before the wait is over: %s", got)
	}
	w.mustStep(2 * time.Minute)
	if got := w.states(one); got != "signing leaving leaving" {
		t.Errorf("after it: %s", got)
	}
	for _, wait := range []time.Duration{-1, MostWait + 1} {
		if _, err := w.Rotate(t.Context(), one, wait); err == nil || errors.Is(err, ErrRotating) {
			t.Errorf("a wait of %v: %v", wait, err)
		}
	}
}

func TestRetiredRootIsGone(t *testing.T) {
	w := newWorld(t)
	one := w.Org("one")
	org := one.Principal.Org
	w.signed(one)
	w.rotate(one, time.Hour)
	w.mustStep(time.Second)
	last := w.signed(one)
	if got := w.states(one); got != "signing leaving" {
		t.Fatalf("with no sandbox there is nothing to wait for: %s", got)
	}
	w.mustStep(ca.Lifetime - 2*time.Second)
	if got := w.states(one); got != "signing leaving" {
		t.Errorf("while something that it signed may live: %s", got)
	}
	w.mustStep(3 * time.Second)
	if got, trusted := w.states(one), w.trust(one); got != "signing retired" || strings.Count(trusted, "BEGIN") != 1 || w.told[org] != trusted {
		t.Errorf("after that: %s; %s", got, trusted)
	}

	// At once: what the one before signed is trusted no more, and neither is one that was next.
	w.rotate(one, time.Hour)
	w.rotate(one, 0)
	m := w.signed(one)
	if got, trusted := w.states(one), w.trust(one); got != "signing retired retired retired" || w.trusts(trusted, last) || !w.trusts(trusted, m) {
		t.Errorf("without a wait: %s", got)
	}
	kept, err := w.World.Roots(t.Context(), org)
	if err != nil || len(kept) != 4 {
		t.Fatal(kept, err)
	}
	for _, r := range kept {
		if gone := len(r.SealedKey) == 0; gone != (r.State == store.RootRetired) {
			t.Errorf("of root %d, which is %s, %d bytes of a key are kept", r.Version, r.State, len(r.SealedKey))
		}
	}
}

func TestNodeThatIsAwayIsToldLater(t *testing.T) {
	w := newWorld(t)
	one, two := w.Org("one"), w.Org("two")
	w.trust(one)
	w.trust(two)
	w.away = true
	w.rotate(one, time.Hour)
	if err := w.step(time.Second); err == nil || len(w.told) != 0 {
		t.Errorf("an absent node: %v", err)
	}
	w.away = false
	w.mustStep(time.Second)
	if w.told[one.Principal.Org] != w.trust(one) || len(w.told) != 1 {
		t.Errorf("told were %v", w.told)
	}
	// So is one that another process of ours did not reach.
	clear(w.told)
	again, err := New(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Step(t.Context()); err != nil || w.told[one.Principal.Org] != w.trust(one) || len(w.told) != 1 {
		t.Errorf("told by the next process: %v, %v", w.told, err)
	}
	// And one that made a sandbox with what was right a moment ago.
	clear(w.told)
	w.Check(t.Context(), one.Principal.Org, []byte(w.trust(one)))
	w.mustStep(time.Second)
	if len(w.told) != 0 {
		t.Errorf("told, though the sandbox knows: %v", w.told)
	}
	w.Check(t.Context(), one.Principal.Org, []byte("what was right"))
	w.mustStep(time.Second)
	if w.told[one.Principal.Org] != w.trust(one) {
		t.Errorf("told were %v", w.told)
	}
}

func TestUnrecordedIntermediateIsNotSigned(t *testing.T) {
	w := newWorld(t)
	one := w.Org("one")
	m := w.signed(one)
	kept, err := w.World.Intermediates(t.Context(), one.Principal.Org, w.now)
	if err != nil || len(kept) != 1 || kept[0].Serial != serial(m.SerialNumber) || kept[0].Root != 1 || !kept[0].EndsAt.Equal(m.NotAfter) {
		t.Fatalf("kept: %+v, %v", kept, err)
	}
	for range 999 { // as many as an org may have
		w.signed(one)
	}
	if chain, err := w.Sign(t.Context(), one.Principal.Org, edgeKey(t)); err == nil || len(chain) != 0 {
		t.Errorf("one that could not be recorded: %d certificates, %v", len(chain), err)
	}
	w.now = w.now.Add(ca.Lifetime + time.Second)
	w.signed(one)
}

func TestOrgsAuthoritiesDoNotMeet(t *testing.T) {
	w := newWorld(t)
	one, two := w.Org("one"), w.Org("two")
	m, theirs := w.signed(one), w.signed(two)
	view, err := w.View(t.Context(), one.Principal.Org)
	if err != nil {
		t.Fatal(err)
	}
	id := view.Roots[0].ID
	list := func(by store.By, id string) ([]x509.RevocationListEntry, error) {
		der, err := w.List(t.Context(), by.Principal.Org, id)
		if err != nil {
			return nil, err
		}
		l, err := x509.ParseRevocationList(der)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode([]byte(w.trust(by)))
		root, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return l.RevokedCertificateEntries, l.CheckSignatureFrom(root)
	}
	if l, err := list(one, id); err != nil || len(l) != 0 {
		t.Errorf("before anything is revoked: %v, %v", l, err)
	}
	for name, ask := range map[string]struct {
		by store.By
		id string
	}{"another org's": {two, id}, "no root's": {one, "00"}, "none": {one, ""}} {
		if _, err := list(ask.by, ask.id); !errors.Is(err, ca.ErrNoList) {
			t.Errorf("the list of %s: %v", name, err)
		}
	}
	if _, err := w.Revoke(t.Context(), two, serial(m.SerialNumber)); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another org revokes: %v", err)
	}
	for _, s := range []string{"", "x", "0a", serial(m.SerialNumber)[1:], serial(theirs.SerialNumber)} {
		if _, err := w.Revoke(t.Context(), one, s); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("revoking %q: %v", s, err)
		}
	}
	if revision, err := w.Revoke(t.Context(), one, serial(m.SerialNumber)); err != nil || revision == 0 {
		t.Errorf("its own: revision %d, %v", revision, err)
	}
	if l, err := list(one, id); err != nil || len(l) != 1 || l[0].SerialNumber.Cmp(m.SerialNumber) != 0 {
		t.Errorf("on the list: %v, %v", l, err)
	}
	for _, action := range []audit.Action{audit.AuthorityCreate, audit.AuthoritySign, audit.AuthorityRevoke} {
		if _, total, err := w.World.Audit(t.Context(), one.Principal.Org, store.AuditFilter{Action: string(action), Limit: 9}); err != nil || total != 1 {
			t.Errorf("%d entries %s, %v", total, action, err)
		}
	}
}

func TestFirstRootIsMadeOnce(t *testing.T) {
	w := newWorld(t)
	one, two := w.Org("one"), w.Org("two")
	var got [12][]byte
	var wait sync.WaitGroup
	for i := range got {
		wait.Go(func() {
			var err error
			if got[i], err = w.Trust(t.Context(), one.Principal.Org); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	for i := range got {
		if !bytes.Equal(got[i], got[0]) {
			t.Fatalf("caller %d has another root than the first", i)
		}
	}
	if other := w.trust(two); other == string(got[0]) {
		t.Error("another org has the same root")
	}
	if _, err := w.Trust(t.Context(), "org_nobody"); err == nil {
		t.Error("an org that is not there has a root")
	}
	again, err := New(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	if pem, err := again.Trust(t.Context(), one.Principal.Org); err != nil || !bytes.Equal(pem, got[0]) {
		t.Errorf("after a restart it is another, or none: %v", err)
	}
	if _, err := New(Config{Store: w.World.Store}); err == nil {
		t.Error("a service without a keyring")
	}
}

func TestSealedKeyOpensOnlyForItsOrg(t *testing.T) {
	w := newWorld(t)
	one, two := w.Org("one"), w.Org("two")
	w.trust(one)
	kept, err := w.World.Roots(t.Context(), one.Principal.Org)
	if err != nil || len(kept) != 1 {
		t.Fatal(kept, err)
	}
	_, err = w.World.Change(t.Context(), two, func(tx *store.Tx) error {
		if err := tx.CreateRoot(t.Context(), kept[0]); err != nil {
			return err
		}
		return tx.Record(t.Context(), audit.AuthorityCreate, two.Principal.Org, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	if chain, err := w.Sign(t.Context(), two.Principal.Org, edgeKey(t)); err == nil {
		t.Errorf("one org's root signs for another: %d certificates", len(chain))
	}
	w.signed(one) // for its own
	root, err := w.open(kept[0])
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := root.MarshalKey(); err != nil || bytes.Contains(kept[0].SealedKey, plain[8:40]) {
		t.Errorf("the key is in the store as it is (%v)", err)
	}
}
