package edge

import (
	"context"
	"time"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
)

// batch is how many decisions go in one message.
const batch = 500

// ship sends the spool to control over one link, in order, until the link ends.
func (e *Edge) ship(ctx context.Context, conn *link.Conn) {
	for ctx.Err() == nil {
		n, err := e.shipBatch(ctx, conn)
		if err != nil && ctx.Err() == nil {
			e.log.Warn("decisions could not be shipped", "err", err)
			wait(ctx, nil, time.Second)
			continue
		}
		if n == 0 {
			wait(ctx, e.spool.Ready(), time.Second)
		}
	}
}

func (e *Edge) shipBatch(ctx context.Context, conn *link.Conn) (int, error) {
	rows, err := e.spool.Batch(batch)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	var acked decisions.Acked
	shipment := decisions.Shipment{Spool: e.spool.ID(), Rows: rows, Lost: e.spool.Lost()}
	if err := conn.Call(ctx, role.ControlDecisions, shipment, &acked); err != nil {
		return 0, err
	}
	return len(rows), e.spool.Ack(acked.Seq)
}

// wait returns when ready says so, ctx ends or the time is over.
func wait(ctx context.Context, ready <-chan struct{}, limit time.Duration) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-ready:
	case <-t.C:
	}
}
