package server

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"time"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/role"
)

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

// keepDecisions stores what an edge ships, with what that says about the numbers. Only what is stored is acknowledged.
func (c *control) keepDecisions(ctx context.Context, s decisions.Shipment) (acked decisions.Acked, err error) {
	if s.Spool == "" {
		return acked, c.store.SpoolFails(ctx, s.Node, s.Error)
	}
	if acked.Skip, err = c.olderCopy(ctx, s); err != nil {
		return decisions.Acked{}, err
	}
	got, err := c.receipt(ctx, s)
	if err != nil {
		return decisions.Acked{}, err
	}
	if err := c.store.AppendShipment(ctx, got); err != nil {
		return decisions.Acked{}, err
	}
	if c.denials != nil {
		for _, row := range got.Rows {
			c.denials.Add(row.Decision)
		}
	}
	for _, row := range s.Rows {
		acked.Seq = max(acked.Seq, row.Seq)
	}
	if !s.More || acked.Seq+1 >= s.Began {
		c.endDead(s.Spool, int64(s.Life)) // everything that the lives before had to say is here
	}
	return acked, nil
}

// receipt reads a shipment. A row that can't be kept is one that did not arrive.
func (c *control) receipt(ctx context.Context, s decisions.Shipment) (store.Receipt, error) {
	got := store.Receipt{Node: s.Node, Spool: s.Spool, Run: s.Run, Life: int64(s.Life), Error: s.Error, Orgs: s.Orgs, Nums: make(map[string][]uint64)}
	if s.More {
		got.Oldest = s.Oldest()
	}
	orgs := make(map[string]string)    // of the sandboxes in this batch
	kept := make(map[uint64]string)    // the orgs of the rows that were, by place
	joined := make([]decisions.Row, 0) // rows that another says all of
	for _, row := range s.Rows {
		if row.With != 0 {
			joined = append(joined, row)
			continue
		}
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
			return got, err
		}
		if org == "" || org != d.Org || row.Org != d.Org {
			c.log.Error("a decision names an org that is not its sandbox's; it is dropped", "sandbox", d.Sandbox, "seq", row.Seq)
			continue
		}
		life := s.Life
		if row.Seq < s.Began {
			life-- // of an earlier one: which, doesn't matter
		}
		got.Rows = append(got.Rows, store.Spooled{Decision: d, Spool: s.Spool, Life: int64(life)})
		got.Nums[org] = append(got.Nums[org], row.Num)
		kept[row.Seq] = org
	}
	for _, row := range joined {
		if org, ok := kept[row.With]; ok && org == row.Org {
			got.Nums[org] = append(got.Nums[org], row.Num)
		}
	}
	return got, nil
}

// olderCopy finds out whether a spool was replaced by an earlier copy of itself. Then it says from which numbers it goes on:
// behind all that the one before may have drawn.
func (c *control) olderCopy(ctx context.Context, s decisions.Shipment) (map[string]uint64, error) {
	known, err := c.store.Spool(ctx, s.Spool)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if life := int64(s.Life); life > known.Life || life == known.Life && s.Run == known.Run {
		return nil, nil
	}
	c.log.Error("a spool is an older copy of itself; numbers are left out", "spool", s.Spool)
	numbers, err := c.store.SpoolNumbers(ctx, s.Spool)
	skip := make(map[string]uint64, len(numbers))
	for org, n := range numbers {
		skip[org] = max(n.Highest, n.Reserved) + 1
	}
	return skip, err
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

// endDead closes, aside, what was open when an edge died: once per life of a spool.
func (c *control) endDead(spool string, life int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settled[spool] >= life {
		return
	}
	if c.settled == nil {
		c.settled = make(map[string]int64)
	}
	c.settled[spool] = life
	c.running.Go(func() {
		if err := c.endAll(c.life, spool, life); err != nil && c.life.Err() == nil {
			c.log.Error("flows of an edge that died could not be closed", "spool", spool, "err", err)
			c.mu.Lock()
			delete(c.settled, spool) // the next shipment tries again
			c.mu.Unlock()
		}
	})
}

func (c *control) endAll(ctx context.Context, spool string, life int64) error {
	total := 0
	for {
		n, err := c.store.EndDead(ctx, spool, life)
		if err != nil {
			return err
		}
		if total += n; n == 0 {
			break
		}
	}
	if total > 0 {
		c.log.Info("flows of an edge that died are closed", "spool", spool, "flows", total)
	}
	return c.store.Settled(ctx, spool, life)
}

// records is how an org's decisions are recorded, as its edges are told.
func (c *control) records(org string, s store.DecisionSettings) feed.Records {
	return feed.Records{BestEffort: s.BestEffort, Paths: s.Paths, Key: c.hashKey(org)}
}

const hashKeyName = "credential_hashes"

// openHashKey opens the key from which those of the orgs are made, or makes it.
func (c *control) openHashKey(ctx context.Context) error {
	_, key, err := c.platformKey(ctx, hashKeyName, func() ([]byte, []byte, error) {
		key := make([]byte, 32)
		_, err := rand.Read(key)
		return nil, key, err
	})
	c.hashes = key
	return err
}

// hashKey is an org's own: equal credentials of two orgs have different hashes.
func (c *control) hashKey(org string) []byte {
	if len(c.hashes) == 0 {
		return nil
	}
	h := hmac.New(sha256.New, c.hashes)
	h.Write([]byte(org))
	return h.Sum(nil)
}
