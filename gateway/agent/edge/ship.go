package edge

import (
	"context"
	"sync"
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
		waiting := e.flushes.take()
		n, err := e.shipBatch(ctx, conn)
		if err != nil || n > 0 {
			e.flushes.add(waiting...)
		}
		if err != nil && ctx.Err() == nil {
			e.log.Warn("decisions could not be shipped", "err", err)
			wait(ctx, nil, nil, time.Second)
			continue
		}
		if n == 0 {
			for _, done := range waiting {
				close(done)
			}
			wait(ctx, e.spool.Ready(), e.flushes.asked, time.Second)
		}
	}
}

// flushes are those who wait until everything that was recorded before them is with control.
type flushes struct {
	asked chan struct{} // has something in it when somebody came

	mu      sync.Mutex
	waiting []chan struct{}
}

func newFlushes() *flushes { return &flushes{asked: make(chan struct{}, 1)} }

func (f *flushes) add(waiting ...chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, waiting...)
}

func (f *flushes) take() []chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	waiting := f.waiting
	f.waiting = nil
	return waiting
}

// flush is control's call.
func (e *Edge) flush(ctx context.Context, _ struct{}) (struct{}, error) {
	done := make(chan struct{})
	e.flushes.add(done)
	select {
	case e.flushes.asked <- struct{}{}:
	default:
	}
	select {
	case <-done:
		return struct{}{}, nil
	case <-ctx.Done():
		return struct{}{}, ctx.Err()
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

// wait returns when one of the channels says so, ctx ends or the time is over.
func wait(ctx context.Context, ready, asked <-chan struct{}, limit time.Duration) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-ready:
	case <-asked:
	case <-t.C:
	}
}
