package server

import (
	"context"
	"errors"
	"strconv"

	"portreeve.dev/egress/flows"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/limits"
	"portreeve.dev/gateway/role"
	"portreeve.dev/sso"
)

// limitsOf is what an edge must know of an org's limits, and of what of them is used.
func (c *control) limitsOf(ctx context.Context, org string, own store.OrgLimits) (feed.Limits, error) {
	l := feed.Limits{Limits: c.setup.Egress.Lowered(own.Limits), Month: flows.MonthOf(c.now())}
	if l.MonthlyQuota == 0 {
		return l, nil
	}
	counted, err := c.store.Usage(ctx, org, l.Month)
	for _, u := range counted {
		l.Counted = append(l.Counted, feed.Counted{Source: u.Source, In: u.In, Out: u.Out})
	}
	return l, err
}

// keepUsage stores what an edge counted, answers with what is known of the same, and notices quotas that are nearly used up.
func (c *control) keepUsage(ctx context.Context, r role.UsageReport) (role.UsageKnown, error) {
	if err := c.store.CountUsage(ctx, r.Source, r.Rows); err != nil {
		return role.UsageKnown{}, err
	}
	known := role.UsageKnown{Rows: []role.KnownUsage{}}
	for _, row := range r.Rows {
		k := role.KnownUsage{Usage: flows.Usage{Org: row.Org, Month: row.Month}}
		counted, err := c.store.Usage(ctx, row.Org, row.Month)
		if err != nil {
			return role.UsageKnown{}, err
		}
		for _, u := range counted {
			if u.Source == r.Source {
				k.In, k.Out = u.In, u.Out
			} else {
				k.Elsewhere += u.In + u.Out
			}
		}
		known.Rows = append(known.Rows, k)
		if err := c.noticeQuota(ctx, row.Org, row.Month, k.In+k.Out+k.Elsewhere); err != nil {
			return role.UsageKnown{}, err
		}
	}
	return known, nil
}

// noticeQuota writes down, once a month each, that an org has used most of its quota and that it has used all of it.
func (c *control) noticeQuota(ctx context.Context, org, month string, used int64) error {
	own, err := c.store.Limits(ctx, org)
	if err != nil {
		return err
	}
	quota := c.setup.Egress.Lowered(own.Limits).MonthlyQuota
	state := limits.StateOf(quota, used)
	if state == limits.OK || month != flows.MonthOf(c.now()) {
		return nil
	}
	if noted, err := c.store.QuotaNoted(ctx, org, month, state); err != nil || noted {
		return err
	}
	action := audit.QuotaWarning
	if state == limits.Used {
		action = audit.QuotaUsed
	}
	_, err = c.store.Change(ctx, store.By{Principal: sso.System("edge", org)}, func(tx *store.Tx) error {
		if first, err := tx.NoteQuota(ctx, month, state); err != nil || !first {
			return errors.Join(err, errNoted)
		}
		return tx.Record(ctx, action, month, map[string]string{"quota_bytes": strconv.FormatInt(quota, 10), "used_bytes": strconv.FormatInt(used, 10)})
	})
	if err != nil && errors.Is(err, errNoted) {
		return nil // by somebody who was faster
	}
	if err == nil {
		c.log.Warn("an org comes to the end of its bytes of the month", "org", org, "state", state, "bytes", used)
	}
	return err
}

var errNoted = errors.New("noted already")
