package server

import (
	"context"
	"errors"
	"time"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/role"
)

// retention is how long decisions are kept.
const retention = 30 * 24 * time.Hour

// settleLimit is how long a question about decisions waits for those that are on their way.
const settleLimit = 500 * time.Millisecond

// settle has the edge ship what it has. One that is gone or slow ships later.
func (c *control) settle(ctx context.Context) {
	conn := c.edge.Now()
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	if err := conn.Call(ctx, role.EdgeFlush, struct{}{}, nil); err != nil {
		c.log.Debug("decisions are not all here yet", "err", err)
	}
}

// keepDecisions stores what an edge ships. Only what is stored is acknowledged.
func (c *control) keepDecisions(ctx context.Context, s decisions.Shipment) (decisions.Acked, error) {
	var acked decisions.Acked
	batch := make([]decisions.Decision, 0, len(s.Rows))
	orgs := make(map[string]string) // of the sandboxes in this batch
	for _, row := range s.Rows {
		acked.Seq = max(acked.Seq, row.Seq)
		d, err := row.Decision()
		if err != nil {
			c.log.Error("a decision can't be read; it is dropped", "spool", s.Spool, "seq", row.Seq, "err", err)
			continue
		}
		if c.canary != nil && c.canary.Note(d) {
			continue // it has no org in the store
		}
		org, err := c.orgOf(ctx, d.Sandbox, orgs)
		if err != nil {
			return decisions.Acked{}, err
		}
		if org == "" || org != d.Org || row.Org != d.Org {
			c.log.Error("a decision names an org that is not its sandbox's; it is dropped", "sandbox", d.Sandbox, "seq", row.Seq)
			continue
		}
		batch = append(batch, d)
	}
	if len(batch) == 0 {
		return acked, nil
	}
	return acked, c.store.AppendDecisions(ctx, batch)
}

// orgOf is the org that the store knows for a sandbox; empty if it knows none.
func (c *control) orgOf(ctx context.Context, sandbox string, known map[string]string) (string, error) {
	if org, ok := known[sandbox]; ok {
		return org, nil
	}
	b, err := c.store.AnySandbox(ctx, sandbox)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return "", err
	}
	known[sandbox] = b.Org
	return b.Org, nil
}

// forgetDecisions deletes old ones once an hour.
func (c *control) forgetDecisions(ctx context.Context) {
	hourly := time.NewTicker(time.Hour)
	defer hourly.Stop()
	for {
		if n, err := c.store.ForgetDecisions(ctx, time.Now().Add(-retention)); err != nil && ctx.Err() == nil {
			c.log.Error("old decisions could not be deleted", "err", err)
		} else if n > 0 {
			c.log.Info("old decisions deleted", "decisions", n)
		}
		select {
		case <-ctx.Done():
			return
		case <-hourly.C:
		}
	}
}
