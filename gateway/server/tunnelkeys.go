package server

import (
	"context"
	"crypto/rand"
	"fmt"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/ingress/certs"
	"portreeve.dev/secrets/seal"
)

// Names of the keys that ingress holds. The authority is one domain's: it can sign for no other.
const (
	tunnelAuthority = "tunnel_authority:"
	tunnelCookies   = "tunnel_cookies"
)

func platformRecord(name string) seal.Record {
	return seal.Record{Kind: "platform_key", Name: name, Version: 1}
}

// openTunnelKeys opens the keys of ingress, or makes them, and returns the authority's certificate in PEM.
func (c *control) openTunnelKeys(ctx context.Context) ([]byte, error) {
	ca, caKey, err := c.platformKey(ctx, tunnelAuthority+c.setup.TunnelDomain, func() ([]byte, []byte, error) {
		made, err := certs.NewDevCA(c.setup.TunnelDomain, c.now())
		if err != nil {
			return nil, nil, err
		}
		key, err := made.MarshalKey()
		return made.Certificate(), key, err
	})
	if err != nil {
		return nil, err
	}
	_, cookie, err := c.platformKey(ctx, tunnelCookies, func() ([]byte, []byte, error) {
		key := make([]byte, 32)
		_, err := rand.Read(key)
		return nil, key, err
	})
	if err != nil {
		return nil, err
	}
	authority, err := certs.LoadDevCA(ca, caKey)
	if err != nil {
		return nil, err
	}
	c.keys = role.TunnelKeys{Certificate: ca, Key: caKey, Cookie: cookie}
	return authority.PEM(), nil
}

// platformKey opens one key of the installation, or makes and seals it.
func (c *control) platformKey(ctx context.Context, name string, create func() (certificate, key []byte, err error)) (certificate, key []byte, err error) {
	kept, err := c.store.PlatformKey(ctx, name, func() (store.PlatformKey, error) {
		certificate, key, err := create()
		if err != nil {
			return store.PlatformKey{}, fmt.Errorf("making the key %q: %w", name, err)
		}
		sealed, err := c.keyring.Seal(platformRecord(name), key)
		return store.PlatformKey{Name: name, Certificate: certificate, Sealed: sealed}, err
	})
	if err != nil {
		return nil, nil, err
	}
	key, err = c.keyring.Open(platformRecord(name), kept.Sealed)
	return kept.Certificate, key, err
}

// equipIngress hands a new ingress its keys.
func (c *control) equipIngress(ctx context.Context, conn *link.Conn) {
	if err := conn.Call(ctx, role.IngressKeys, c.keys, nil); err != nil && ctx.Err() == nil {
		c.log.Error("ingress did not take its keys", "err", err)
	}
}
