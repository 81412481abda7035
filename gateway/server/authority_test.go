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
	"testing"
	"time"

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
	if c.store, c.keyring, err = openStore(t.Context(), dir, nil, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.store.Close() })
	if c.authorities, err = c.newAuthorities(); err != nil {
		t.Fatal(err)
	}
	return c
}

func worldOf(t *testing.T, c *control) storetest.World {
	return storetest.NewWorld(t, func(*testing.T, store.Options) *store.Store { return c.store }, store.Options{})
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
	trust, _ := c.authorities.Trust(t.Context(), org)
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
