package server

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"sync"
	"testing"
	"time"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/internal/store/storetest"
	"portreeve.dev/gateway/role"
)

// controlIn is a control over a directory that outlives it.
func controlIn(t *testing.T, dir string) *control {
	t.Helper()
	c := &control{life: t.Context(), log: slog.New(slog.DiscardHandler), node: &child.Sibling{}, edge: &child.Sibling{}, inward: &child.Sibling{}, ingress: &child.Sibling{}}
	var err error
	if c.store, c.keyring, err = openStore(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.store.Close() })
	return c
}

func worldOf(t *testing.T, c *control) storetest.World {
	return storetest.NewWorld(t, func(*testing.T, store.Options) *store.Store { return c.store }, store.Options{})
}

func TestAuthorityIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	c := controlIn(t, dir)
	w := worldOf(t, c)
	one, two := w.Org("one").Principal.Org, w.Org("two").Principal.Org
	const n = 12
	var got [n][]byte
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() {
			var err error
			if got[i], err = c.trust(t.Context(), one); err != nil {
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
	block, rest := pem.Decode(got[0])
	if block == nil || block.Type != "CERTIFICATE" || len(rest) != 0 {
		t.Fatalf("not one certificate: %s", got[0])
	}
	root, err := x509.ParseCertificate(block.Bytes)
	if err != nil || !root.IsCA {
		t.Fatalf("%+v, %v", root, err)
	}
	if _, total, err := c.store.Audit(t.Context(), one, store.AuditFilter{Action: string(audit.AuthorityCreate), Limit: 9}); err != nil || total != 1 {
		t.Errorf("%d entries, %v", total, err)
	}
	other, err := c.trust(t.Context(), two)
	if err != nil || bytes.Equal(other, got[0]) {
		t.Errorf("another org has the same root, or none: %v", err)
	}
	if _, err := c.trust(t.Context(), "org_nobody"); err == nil {
		t.Error("an org that is not there has a root")
	}
	c.store.Close()
	if again, err := controlIn(t, dir).trust(t.Context(), one); err != nil || !bytes.Equal(again, got[0]) {
		t.Errorf("after a restart it is another, or none: %v", err)
	}
}

func TestAuthorityOpensOnlyForItsOrg(t *testing.T) {
	c := controlIn(t, t.TempDir())
	w := worldOf(t, c)
	one, two := w.Org("one"), w.Org("two")
	if _, err := c.trust(t.Context(), one.Principal.Org); err != nil {
		t.Fatal(err)
	}
	kept, err := c.store.Authority(t.Context(), one.Principal.Org)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.store.Change(t.Context(), two, func(tx *store.Tx) error {
		if err := tx.CreateAuthority(t.Context(), kept); err != nil {
			return err
		}
		return tx.Record(t.Context(), audit.AuthorityCreate, two.Principal.Org, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	if root, err := c.authority(t.Context(), two.Principal.Org); err == nil {
		t.Errorf("one org's authority signs for another: %v", root.Certificate.Subject)
	}
	if root, err := c.authority(t.Context(), one.Principal.Org); err != nil {
		t.Errorf("for its own: %v, %v", root, err)
	}
	if key, err := c.authority(t.Context(), one.Principal.Org); err == nil {
		if plain, err := key.MarshalKey(); err != nil || bytes.Contains(kept.SealedKey, plain[8:40]) {
			t.Errorf("the key is in the store as it is (%v)", err)
		}
	}
}

func public(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestIntermediateIsForAKeyOfTheEdge(t *testing.T) {
	c := controlIn(t, t.TempDir())
	org := worldOf(t, c).Org("one").Principal.Org
	good, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	wide, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	edwards, _, _ := ed25519.GenerateKey(rand.Reader)
	old, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der := public(t, good.Public())
	for name, r := range map[string]role.IntermediateRequest{
		"no key":              {Org: org},
		"garbage":             {Org: org, Key: []byte("garbage")},
		"bytes after the key": {Org: org, Key: append(bytes.Clone(der), 0)},
		"another curve":       {Org: org, Key: public(t, wide.Public())},
		"RSA":                 {Org: org, Key: public(t, old.Public())},
		"Ed25519":             {Org: org, Key: public(t, edwards)},
		"an unknown org":      {Org: "org_nobody", Key: der},
		"no org":              {Key: der},
	} {
		if got, err := c.signIntermediate(t.Context(), r); err == nil || len(got.Chain) != 0 {
			t.Errorf("%s: %d certificates, %v", name, len(got.Chain), err)
		}
	}
	got, err := c.signIntermediate(t.Context(), role.IntermediateRequest{Org: org, Key: der})
	if err != nil || len(got.Chain) != 2 {
		t.Fatalf("%d certificates, %v", len(got.Chain), err)
	}
	between, err := x509.ParseCertificate(got.Chain[0])
	if err != nil {
		t.Fatal(err)
	}
	root, err := x509.ParseCertificate(got.Chain[1])
	if err != nil {
		t.Fatal(err)
	}
	trust, _ := c.trust(t.Context(), org)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(trust) {
		t.Fatal("the sandboxes trust nothing")
	}
	if _, err := between.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		t.Errorf("what sandboxes trust does not stand above it: %v", err)
	}
	if !good.PublicKey.Equal(between.PublicKey) || !bytes.Equal(root.Raw, func() []byte { b, _ := pem.Decode(trust); return b.Bytes }()) || time.Until(between.NotAfter) > 24*time.Hour {
		t.Errorf("signed for %v until %v", between.PublicKey, between.NotAfter)
	}
}
