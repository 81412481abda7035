package decisions

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
)

const (
	maxCommit = 512  // rows in one transaction
	maxQueue  = 4096 // callers that wait for the writer
	rowCost   = 64   // what a row costs beside its body
	maxPath   = 2048 // bytes of a path that are kept
)

// A Spool keeps decisions until they are acknowledged. It is safe for concurrent use.
type Spool struct {
	cfg     Config
	file    *file
	share   *share
	budgets *budgets
	skipped atomic.Uint64 // numbers drawn by calls that never reached the writer; it leaves them out
	ready   chan struct{}

	mu     sync.RWMutex // held for reading while sending to queue
	closed bool
	queue  chan *entry
	ended  chan struct{}
}

// An entry is one row that waits for its commit.
type entry struct {
	org  string
	size int64
	body []byte
	done chan error
}

// Open opens the spool in dir, which has to exist and belongs to it alone, and starts its writer. Close it.
func Open(dir string, cfg Config) (*Spool, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	f, err := openFile(dir, cfg.PowerSafe)
	if err != nil {
		return nil, err
	}
	s := &Spool{cfg: cfg, file: f, share: newShare(cfg), budgets: newBudgets(cfg), ready: make(chan struct{}, 1),
		queue: make(chan *entry, maxQueue), ended: make(chan struct{})}
	held, err := sizes(context.Background(), f.db, math.MaxInt64)
	if err != nil {
		f.close()
		return nil, fmt.Errorf("reading spool: %w", err)
	}
	for org, n := range held {
		s.share.add(org, n)
	}
	if len(held) > 0 {
		s.nudge()
	}
	go s.writer()
	return s, nil
}

// ID names this file: sequence numbers are unique together with it.
func (s *Spool) ID() string { return s.file.id }

// Ready has something in it when rows may wait for a shipper.
func (s *Spool) Ready() <-chan struct{} { return s.ready }

// Lost counts the decisions that were not written since the file was made: the sequence numbers without a row.
func (s *Spool) Lost() uint64 { return s.file.lost(&s.skipped) }

// Size is the bytes held, including what is being written.
func (s *Spool) Size() int64 { return s.share.used() }

// Record returns nil when d is committed. On any error the caller must act as if there were no verdict; d may then still be
// found in the spool if ctx ended while its commit was under way.
func (s *Spool) Record(ctx context.Context, d *Decision) error {
	ok, note := s.budgets.spend(d.Sandbox, s.cfg.Now())
	if ok {
		return s.put(ctx, d, false)
	}
	if !note {
		s.skipped.Add(1)
		return ErrBudget
	}
	over := *d
	over.Verdict, over.Reason, over.Rule, over.RuleLayer, over.Guidance = "deny", "budget", "", "", ""
	if err := s.put(ctx, &over, false); err != nil {
		return err
	}
	return ErrBudget
}

// A Closing is how a flow ended.
type Closing struct {
	Status            int
	BytesOut, BytesIn int64
	DurationMS        int64
	Error             string
}

// CloseFlow writes the closing row of d, which was recorded before. It costs no budget: d paid for both.
func (s *Spool) CloseFlow(ctx context.Context, d *Decision, c Closing) error {
	end := *d
	end.Closed = true
	end.Status, end.BytesOut, end.BytesIn, end.DurationMS, end.Error = c.Status, c.BytesOut, c.BytesIn, c.DurationMS, c.Error
	return s.put(ctx, &end, true)
}

func (s *Spool) put(ctx context.Context, d *Decision, closing bool) error {
	e, err := s.prepare(d, closing)
	if err != nil {
		s.skipped.Add(1)
		return err
	}
	if err := s.enqueue(ctx, e); err != nil {
		s.share.give(e.org, e.size)
		s.skipped.Add(1)
		return err
	}
	select {
	case err := <-e.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("recording decision %q: %w", d.ID, ctx.Err())
	}
}

func (s *Spool) prepare(d *Decision, closing bool) (*entry, error) {
	if d.ID == "" || d.Org == "" {
		return nil, fmt.Errorf("recording decision %q: id and org are needed", d.ID)
	}
	if len(d.Path) > maxPath {
		short := *d
		short.Path = d.Path[:maxPath] + "…"
		d = &short
	}
	body, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("recording decision %q: %w", d.ID, err)
	}
	e := &entry{org: d.Org, size: int64(len(body)) + rowCost, body: body, done: make(chan error, 1)}
	return e, s.share.take(e.org, e.size, closing)
}

func (s *Spool) enqueue(ctx context.Context, e *entry) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return ErrClosed
	}
	select {
	case s.queue <- e:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the spool: %w", ctx.Err())
	}
}

// Close lets what is queued be written, then closes the file.
func (s *Spool) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.ended
		return nil
	}
	s.closed = true
	close(s.queue)
	s.mu.Unlock()
	<-s.ended
	var err error
	if s.skipped.Load() > 0 {
		err = s.file.commit(nil, &s.skipped) // no rows, but the gap
	}
	return errors.Join(err, s.file.close())
}

// sizes sums what each org holds up to a sequence number.
func sizes(ctx context.Context, q interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}, upTo int64) (map[string]int64, error) {
	rows, err := q.QueryContext(ctx, `SELECT org, sum(size) FROM decisions WHERE seq <= ? GROUP BY org`, upTo)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := make(map[string]int64)
	for rows.Next() {
		var org string
		var n int64
		if err := rows.Scan(&org, &n); err != nil {
			return nil, err
		}
		out[org] = n
	}
	return out, rows.Err()
}
