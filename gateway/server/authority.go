package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"portreeve.dev/egress/ca"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/role"
	"portreeve.dev/secrets/seal"
	"portreeve.dev/sso"
)

// authorityRecord is what the sealed key of an org's authority is bound to.
func authorityRecord(org string) seal.Record {
	return seal.Record{Kind: "ca_key", Org: org, Version: 1}
}

// signIntermediate signs an edge's own key under the authority of an org.
func (c *control) signIntermediate(ctx context.Context, in role.IntermediateRequest) (role.Intermediate, error) {
	parsed, err := x509.ParsePKIXPublicKey(in.Key)
	if err != nil {
		return role.Intermediate{}, fmt.Errorf("reading the edge's key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PublicKey)
	if !ok {
		return role.Intermediate{}, errors.New("the edge's key is none of ECDSA")
	}
	root, err := c.rootOf(ctx, in.Org)
	if err != nil {
		return role.Intermediate{}, err
	}
	cert, err := root.Intermediate(key, time.Now())
	if err != nil {
		return role.Intermediate{}, err
	}
	return role.Intermediate{Chain: [][]byte{cert.Raw, root.Certificate.Raw}}, nil
}

// authority opens the root of an org, which is made when it is needed first.
func (c *control) authority(ctx context.Context, org string) (*ca.Root, error) {
	a, err := c.store.Authority(ctx, org)
	if errors.Is(err, store.ErrNotFound) {
		if a, err = c.makeAuthority(ctx, org); errors.Is(err, store.ErrConflict) {
			a, err = c.store.Authority(ctx, org) // made by another call meanwhile
		}
	}
	if err != nil {
		return nil, err
	}
	key, err := c.keyring.Open(authorityRecord(org), a.SealedKey)
	if err != nil {
		return nil, err
	}
	return ca.LoadRoot(a.Certificate, key)
}

// trust is the root of an org in PEM, as its sandboxes get it.
func (c *control) trust(ctx context.Context, org string) ([]byte, error) {
	root, err := c.authority(ctx, org)
	if err != nil {
		return nil, err
	}
	return root.PEM(), nil
}

func (c *control) makeAuthority(ctx context.Context, org string) (store.Authority, error) {
	o, err := c.store.Org(ctx, org)
	if err != nil {
		return store.Authority{}, err
	}
	root, err := ca.NewRoot("Portreeve egress for "+o.Slug, time.Now())
	if err != nil {
		return store.Authority{}, err
	}
	key, err := root.MarshalKey()
	if err != nil {
		return store.Authority{}, err
	}
	a := store.Authority{Org: org, Certificate: root.Certificate.Raw}
	if a.SealedKey, err = c.keyring.Seal(authorityRecord(org), key); err != nil {
		return store.Authority{}, err
	}
	_, err = c.store.Change(ctx, store.By{Principal: sso.System("control", org)}, func(tx *store.Tx) error {
		if err := tx.CreateAuthority(ctx, a); err != nil {
			return err
		}
		return tx.Record(ctx, audit.AuthorityCreate, org, nil)
	})
	return a, err
}
