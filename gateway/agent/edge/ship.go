package edge

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
)

// batch is how many decisions go in one message.
const batch = 500

// linger is how long what was recorded may wait for more to be sent with it, unless somebody asks: a batch costs both sides a
// transaction, and one for each decision would cost more than the decision.
const linger = 200 * time.Millisecond

// ship sends the spool to control over one link, in order, until the link ends.
func (e *Edge) ship(ctx context.Context, conn *link.Conn) {
	var told said
	for ctx.Err() == nil {
		waiting := e.flushes.take()
		n, err := e.shipBatch(ctx, conn, &told, len(waiting) > 0)
		if err != nil || n > 0 {
			e.flushes.add(waiting...)
		}
		if err != nil && ctx.Err() == nil {
			e.log.Warn("decisions could not be shipped", "err", err)
			wait(ctx, nil, nil, time.Second)
			continue
		}
		switch {
		case n == 0:
			for _, done := range waiting {
				close(done)
			}
			wait(ctx, e.spool.Ready(), e.flushes.asked, time.Second)
		case n < batch:
			wait(ctx, nil, e.flushes.asked, linger)
		}
	}
}

// said is what control was told last over a link, about what isn't in the rows.
type said struct {
	run, err string
	orgs     map[string]decisions.OrgState
	at       time.Time
}

// sayAgain is how long an unchanged state stays unsaid.
const sayAgain = 5 * time.Second

func (s *said) knows(sent decisions.Shipment) bool {
	return len(sent.Rows) == 0 && s.run == sent.Run && s.err == sent.Error && maps.Equal(s.orgs, sent.Orgs) && time.Since(s.at) < sayAgain
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
	if err := e.spool.Flush(ctx); err != nil {
		return struct{}{}, err
	}
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

// shipBatch sends what waits, if only the word that something was lost, and returns how many rows that were.
func (e *Edge) shipBatch(ctx context.Context, conn *link.Conn, told *said, now bool) (int, error) {
	sent, readErr := e.spool.Batch(batch, now)
	sent.Node = e.machine
	sent.Join()
	if told.knows(sent) {
		return 0, readErr
	}
	var acked decisions.Acked
	if err := conn.Call(ctx, role.ControlDecisions, sent, &acked); err != nil {
		return 0, errors.Join(readErr, err)
	}
	*told = said{sent.Run, sent.Error, sent.Orgs, time.Now()}
	if readErr != nil {
		return 0, readErr
	}
	for org, next := range acked.Skip {
		if err := e.spool.Skip(sent.Spool, org, next); err != nil {
			return 0, err
		}
	}
	if len(sent.Rows) == 0 {
		e.spool.Told(sent)
		return 0, nil
	}
	err := e.spool.Ack(sent.Spool, acked.Seq)
	if err == nil {
		e.spool.Told(sent)
	}
	return len(sent.Rows), err
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
