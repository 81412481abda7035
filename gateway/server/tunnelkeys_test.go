package server

import (
	"bytes"
	"context"
	"testing"

	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/ingress/certs"
)

func TestTunnelKeysStay(t *testing.T) {
	dir := t.TempDir()
	open := func(domain string) (*control, []byte) {
		t.Helper()
		c := controlIn(t, dir)
		c.setup.TunnelDomain = domain
		authority, err := c.openTunnelKeys(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return c, authority
	}
	first, authority := open("tunnel.localhost")
	if ca, err := certs.LoadDevCA(first.keys.Certificate, first.keys.Key); err != nil || !bytes.Equal(ca.PEM(), authority) || len(first.keys.Cookie) < 32 {
		t.Fatalf("%v, a cookie key of %d bytes", err, len(first.keys.Cookie))
	}
	first.store.Close()
	second, again := open("tunnel.localhost")
	if !bytes.Equal(again, authority) || !bytes.Equal(second.keys.Key, first.keys.Key) || !bytes.Equal(second.keys.Cookie, first.keys.Cookie) {
		t.Error("after a restart the keys are others: browsers would trust none, and every cookie is void")
	}
	for _, name := range []string{tunnelAuthority + "tunnel.localhost", tunnelCookies} {
		kept, err := second.store.PlatformKey(t.Context(), name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(kept.Sealed, second.keys.Cookie) || bytes.Contains(kept.Sealed, second.keys.Key[:32]) {
			t.Errorf("%s is in the store as it is", name)
		}
		if _, err := second.keyring.Open(platformRecord("another"), kept.Sealed); err == nil {
			t.Errorf("%s opens under another name", name)
		}
	}
	second.store.Close()
	// An authority is good for its own domain only, so another domain has another.
	third, other := open("sandboxes.example.com")
	if bytes.Equal(other, authority) || !bytes.Equal(third.keys.Cookie, first.keys.Cookie) {
		t.Error("another domain has the same authority, or other cookies")
	}
	third.store.Close()
	if _, back := open("tunnel.localhost"); !bytes.Equal(back, authority) {
		t.Error("the first domain's authority did not stay")
	}
}

// TestEachIngressIsEquipped: keys come with each link, before anything is asked for.
func TestEachIngressIsEquipped(t *testing.T) {
	c := controlIn(t, t.TempDir())
	c.setup.TunnelDomain = "tunnel.localhost"
	if _, err := c.openTunnelKeys(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.ingress = &child.Sibling{Mux: link.NewMux(), Up: c.equipIngress}
	supervisor := supervise(t, child.Spec{Siblings: map[string]*child.Sibling{"ingress": c.ingress}})
	for range 2 {
		got := make(chan role.TunnelKeys, 1)
		mux := link.NewMux()
		link.Handle(mux, role.IngressKeys, func(_ context.Context, k role.TunnelKeys) (struct{}, error) { got <- k; return struct{}{}, nil })
		meet(t, supervisor, "ingress", mux)
		if k := <-got; !bytes.Equal(k.Key, c.keys.Key) || !bytes.Equal(k.Cookie, c.keys.Cookie) || !bytes.Equal(k.Certificate, c.keys.Certificate) {
			t.Error("other keys came")
		}
	}
}
