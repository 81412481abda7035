package server

import (
	"context"
	"time"

	"portreeve.dev/gateway/internal/store"
)

// Bounds of the decisions in the store. Beyond them the oldest go first.
const (
	orgDecisions = 512 << 20 // bytes, of one org
	allDecisions = 4 << 30   // bytes, of all orgs

	trimEvery = 5 * time.Second
	trimMost  = 200 // steps in one round, so that it ends before the next is due
	slack     = 20  // a budget that is passed is undercut by one part in so many, so that it isn't passed again at once
)

// trimDecisions deletes what is too old or too much, in small steps, until ctx ends.
func (c *control) trimDecisions(ctx context.Context) {
	due := time.NewTicker(trimEvery)
	defer due.Stop()
	for {
		n, err := c.trimRound(ctx, orgDecisions, allDecisions)
		if err != nil && ctx.Err() == nil {
			c.log.Error("old decisions could not be deleted", "err", err)
		} else if n > 0 {
			c.log.Info("old decisions deleted", "decisions", n)
		}
		select {
		case <-ctx.Done():
			return
		case <-due.C:
		}
	}
}

// trimRound goes over all orgs once. The largest come first: they are the ones that give when there is too much in all.
func (c *control) trimRound(ctx context.Context, orgMost, allMost int64) (gone int64, err error) {
	all, err := c.store.AllHoldings(ctx)
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, h := range all {
		sum += h.Bytes
	}
	steps := trimMost
	for _, h := range all {
		most := keepAtMost(h, sum, orgMost, allMost)
		if most < h.Bytes {
			most -= most / slack
		}
		sum -= max(0, h.Bytes-most)
		for ; steps > 0; steps-- {
			n, err := c.store.TrimDecisions(ctx, h, most)
			if err != nil {
				return gone, err
			}
			if gone += n; n == 0 {
				break
			}
		}
	}
	if gone > 0 {
		err = c.store.Shrink(ctx)
	}
	return gone, err
}

// keepAtMost is what an org may go on to hold: its budget, and less while all hold too much.
func keepAtMost(h store.Holdings, sum, orgMost, allMost int64) int64 {
	most := min(h.Bytes, orgMost)
	over := sum - (h.Bytes - most) - allMost
	if over <= 0 {
		return max(most, orgMost)
	}
	return max(0, most-over)
}
