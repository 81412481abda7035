package server

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies"
	"portreeve.dev/sso"
)

// bareFloor is the floor without any exemption, which names are judged by, and new exemptions.
func (c *control) bareFloor() (*policies.Floor, error) { return policies.NewFloor(c.floorBase()) }

func (c *control) floorBase() policies.FloorConfig {
	return policies.FloorConfig{Hard: c.setup.Hard, Always: c.setup.Always}
}

// floorNow is the edges' own floor, as it is at this moment. An exemption that can't be used opens nothing here either; the edges say which.
func (c *control) floorNow(ctx context.Context) (*policies.Floor, error) {
	kept, err := c.store.FloorExemptions(ctx)
	if err != nil {
		return nil, err
	}
	all, err := c.exemptions(ctx, kept)
	if err != nil {
		return nil, err
	}
	floor, _, err := feed.NewFloor(all, c.floorBase())
	return floor.At(c.now()), err
}

// exemptions are what is open of the soft floor: what the configuration says, with the slugs of orgs turned into ids, and what is kept.
// A slug that no org has opens nothing.
func (c *control) exemptions(ctx context.Context, kept []store.FloorExemption) ([]feed.Exemption, error) {
	orgs, err := c.store.Orgs(ctx)
	if err != nil {
		return nil, err
	}
	out := []feed.Exemption{}
	for _, e := range c.setup.Exempt {
		ids := slices.Clone(e.Orgs)
		for i, name := range ids {
			for _, o := range orgs {
				if o.Slug == name {
					ids[i] = o.ID
				}
			}
		}
		out = append(out, feed.Exemption{CIDR: e.CIDR, Ports: e.Ports, Orgs: ids})
	}
	for _, e := range kept {
		out = append(out, feed.Exemption{CIDR: e.CIDR.String(), Ports: e.Ports, Orgs: e.Orgs, ExpiresAt: e.ExpiresAt})
	}
	return out, nil
}

// configured are the exemptions of the configuration, as they are written there.
func (c *control) configured() (out []policies.Exemption, err error) {
	for _, e := range c.setup.Exempt {
		p, err := netip.ParsePrefix(e.CIDR)
		if err != nil {
			return nil, err
		}
		out = append(out, policies.Exemption{CIDR: p, Ports: e.Ports, Orgs: e.Orgs})
	}
	return out, nil
}

// exemptionsEvery is how late an exemption whose time is up may be taken away. Edges close what it opened on time: they look themselves.
const exemptionsEvery = time.Second

// endExemptions takes away what has ended, and writes it down, until ctx ends.
func (c *control) endExemptions(ctx context.Context) {
	c.every(ctx, exemptionsEvery, "exemptions of the floor whose time is up", func(ctx context.Context) error { return c.endDueExemptions(ctx, c.now()) })
}

func (c *control) endDueExemptions(ctx context.Context, now time.Time) error {
	all, err := c.store.FloorExemptions(ctx)
	for _, e := range all {
		if !e.Ended(now) {
			continue
		}
		_, failed := c.store.Change(ctx, store.By{Principal: sso.System("control", e.Org)}, func(tx *store.Tx) error {
			was, err := tx.EndFloorExemption(ctx, e.ID)
			if err != nil {
				return err
			}
			return tx.Record(ctx, audit.FloorExpire, was.ID, api.FloorDetails(was))
		})
		if errors.Is(failed, store.ErrNotFound) { // somebody was faster
			continue
		}
		err = errors.Join(err, failed)
		c.publisher.Publish()
	}
	return err
}
