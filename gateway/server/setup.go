package server

import (
	"context"
	"crypto/rand"

	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

// devKeyName marks the key of the info file among an org's keys; each run has a new one.
const devKeyName = "dev"

func newSetupToken() sso.Secret { return sso.NewSecret("prs_" + rand.Text()) }

// devKey returns the key for the info file: that of an earlier start in this run, or a new one of the first org, which is made
// if there is none. It is the installer's, and the one key that may change what holds for every org.
func (c *control) devKey(ctx context.Context, server *api.Server) (string, error) {
	if c.keyIsLive(ctx, c.setup.Key) {
		return c.setup.Key, nil
	}
	orgs, err := c.store.Orgs(ctx)
	if err != nil {
		return "", err
	}
	if len(orgs) == 0 {
		_, key, err := server.Bootstrap(ctx, "default", "dev@localhost.localdomain", sso.AllScopes())
		return key.Reveal(), err
	}
	return c.newDevKey(ctx, orgs[0].ID)
}

func (c *control) keyIsLive(ctx context.Context, text string) bool {
	key, err := sso.ParseKey(text)
	if err != nil {
		return false
	}
	k, err := c.store.KeyForLogin(ctx, key.ID)
	return err == nil && k.RevokedAt.IsZero() && key.Matches(k.Hash)
}

// newDevKey makes a key in place of those of earlier runs.
func (c *control) newDevKey(ctx context.Context, org string) (string, error) {
	secret, key, err := sso.NewKey()
	if err != nil {
		return "", err
	}
	_, err = c.store.Change(ctx, store.By{Principal: sso.System("control", org)}, func(tx *store.Tx) error {
		old, err := tx.Keys(ctx, org)
		if err != nil {
			return err
		}
		for _, k := range old {
			if k.Name != devKeyName {
				continue
			}
			if err := tx.RevokeKey(ctx, k.ID); err != nil {
				return err
			}
		}
		_, err = tx.CreateKey(ctx, store.Key{ID: key.ID, Name: devKeyName, Prefix: key.Prefix, Hash: key.Hash[:],
			Scopes: sso.AllScopes(), Policies: []string{sso.AnyPolicy}})
		if err != nil {
			return err
		}
		return tx.Record(ctx, audit.KeyCreate, key.ID, map[string]string{"name": devKeyName})
	})
	return secret.Reveal(), err
}
