package server

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

// BenchmarkRecordToStore watches what the whole way of a decision costs, from 64 callers at once over spool and shipments into the
// store: one operation is one decision with its end. It fails if one is missing.
func BenchmarkRecordToStore(b *testing.B) {
	ctx := b.Context()
	c := &control{life: ctx, log: slog.New(slog.DiscardHandler), edge: &child.Sibling{}}
	var err error
	if c.store, c.keyring, err = openStore(ctx, b.TempDir(), nil, nil); err != nil {
		b.Fatal(err)
	}
	defer c.store.Close()
	defer c.running.Wait()
	by := sso.Principal{Kind: sso.KindSetup, ID: "setup", Org: store.NewID("org")}
	box := store.NewID("sbx")
	if _, err := c.store.Change(ctx, store.By{Principal: by}, func(tx *store.Tx) error {
		if _, err := tx.CreateOrg(ctx, "one", "one"); err != nil {
			return err
		}
		if _, err := tx.CreateSandbox(ctx, store.Sandbox{ID: box, Status: store.Running, ExpiresAt: tx.Now().Add(time.Hour)}, 0); err != nil {
			return err
		}
		return tx.Record(ctx, audit.OrgRegister, by.Org, nil)
	}); err != nil {
		b.Fatal(err)
	}
	spool, err := decisions.Open(b.TempDir(), decisions.Config{MaxBytes: 1 << 40, OrgShare: 1, Rate: 1e9, Burst: 1e9})
	if err != nil {
		b.Fatal(err)
	}
	defer spool.Close()
	b.ResetTimer()
	written := make(chan struct{})
	go func() {
		defer close(written)
		recordAll(b, ctx, spool, by.Org, box)
	}()
	shipAll(b, ctx, c, spool, written)
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
	h, err := c.store.Holdings(ctx, by.Org)
	numbers, err2 := c.store.Numbers(ctx, by.Org)
	if err != nil || err2 != nil || h.Count != int64(b.N) || len(numbers) != 1 || numbers[0].Lost() != 0 || spool.Lost() != 0 {
		b.Fatalf("%d of %d are in the store, %d lost: %+v, %v, %v", h.Count, b.N, spool.Lost(), numbers, err, err2)
	}
}

func recordAll(b *testing.B, ctx context.Context, spool *decisions.Spool, org, box string) {
	var callers sync.WaitGroup
	work := make(chan struct{}, 64)
	for range 64 {
		callers.Go(func() {
			for range work {
				d := decisions.Decision{ID: decisions.NewID(), Time: time.Now(), Org: org, Sandbox: box, Incarnation: 1, Layer: "http", Level: "http", Verdict: "allow", Reason: "allowed",
					Rule: "r1", RuleLayer: "ceiling", Version: 3, Host: "api.example.com", Port: 443, Protocol: "https", Method: "GET", Path: "/v1/things/17"}
				if err := spool.Record(ctx, &d); err != nil {
					b.Error(err)
				}
				if err := spool.CloseFlow(ctx, &d, decisions.Closing{Status: 200, BytesIn: 1234, DurationMS: 56}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	callers.Wait()
}

// shipAll brings everything into the store until nothing comes any more.
func shipAll(b *testing.B, ctx context.Context, c *control, spool *decisions.Spool, written <-chan struct{}) {
	for {
		over := false
		select {
		case <-written:
			over = true
		case <-spool.Ready():
		case <-time.After(10 * time.Millisecond):
		}
		for {
			sent, err := spool.Batch(500, false)
			if err != nil {
				b.Fatal(err)
			}
			acked, err := c.keepDecisions(ctx, sent)
			if err != nil {
				b.Fatal(err)
			}
			if len(sent.Rows) == 0 {
				break
			}
			if err := spool.Ack(sent.Spool, acked.Seq); err != nil {
				b.Fatal(err)
			}
		}
		if over {
			return
		}
	}
}
