package decisions

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	rowCost = 64   // what a row costs beside its body
	maxPath = 2048 // bytes of a path that are kept
)

// A Spool keeps decisions until they are acknowledged. It is safe for concurrent use.
type Spool struct {
	cfg     Config
	file    *file
	share   *share
	budgets *budgets
	folds   *folds
	ready   chan struct{}

	queue   *queue
	closing sync.Mutex
	closed  bool // and the file with it
	ended   chan struct{}
}

// An entry waits for its commit: a row, or with fold something that counts in one.
type entry struct {
	org  string
	size int64
	body []byte
	done chan error // nil: nobody waits

	ticket   uint64 // given by the queue
	seq, num uint64 // given by the writer

	fold    *fold
	n       uint64
	until   int64 // microseconds
	out, in int64
	charges bool   // the fold's size was taken for this one
	row     string // the id under which the fold counted it; given by the writer
}

// Open opens the spool in dir, which has to exist and belongs to it alone, and starts its writer. Close it.
func Open(dir string, cfg Config) (*Spool, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return openAt(dir, cfg, bootID())
}

func openAt(dir string, cfg Config, boot string) (*Spool, error) {
	s := &Spool{cfg: cfg, share: newShare(cfg), budgets: newBudgets(cfg), folds: newFolds(cfg), ready: make(chan struct{}, 1),
		queue: newQueue(), ended: make(chan struct{})}
	s.file = &file{dir: dir, sync: "NORMAL", boot: boot, now: cfg.Now, opened: s.opened,
		orgs: make(map[string]numbers), counts: make(map[string]*fold), stale: make(map[string]bool)}
	s.file.book.Store(newLedger())
	if cfg.PowerSafe {
		s.file.sync = "FULL"
	}
	s.file.mu.Lock()
	err := s.file.open()
	s.file.mu.Unlock()
	if err != nil && !cfg.Late {
		return nil, err
	}
	go s.writer()
	return s, nil
}

func (s *Spool) opened(held map[string]int64) {
	s.share.begin(held)
	if len(held) > 0 {
		s.nudge()
	}
}

// Ready has something in it when rows may wait for a shipper.
func (s *Spool) Ready() <-chan struct{} { return s.ready }

// ID names this file: sequence numbers are unique together with it.
func (s *Spool) ID() string {
	s.file.mu.Lock()
	defer s.file.mu.Unlock()
	return s.file.id
}

// Lost counts the decisions that were not written since the file was made, and the numbers of which nobody knows.
func (s *Spool) Lost() uint64 {
	return s.file.book.Load().totals().total()
}

// Size is the bytes held, including what is being written.
func (s *Spool) Size() int64 { return s.share.used() }

// Record returns nil when d is committed. On any error the caller must act as if there were no verdict; d may then still be
// found in the spool if ctx ended while its commit was under way. Where d is counted with others it gets the id of their row; where it
// is not, its Fold is cleared, so that its end is written too. A caller that finds nobody writing writes by itself, and is then held by a stalled disk
// also when ctx ends. A d with a Count stands for so many, and comes with Until, and closed.
func (s *Spool) Record(ctx context.Context, d *Decision) error {
	if err := check(d); err != nil {
		return s.lose(d, err)
	}
	now := s.cfg.Now()
	row, more, err := s.folds.of(d, now, s.newFold)
	if err != nil {
		return s.lose(d, err)
	}
	d.Fold = d.Fold && row != nil
	if more {
		return s.count(ctx, d, row, now)
	}
	ok, note := s.budgets.spend(d.Sandbox, now)
	switch {
	case ok && row != nil:
		return s.count(ctx, d, row, now)
	case ok:
		return s.put(ctx, d, false)
	case row != nil:
		s.folds.drop(d, row)
	}
	if !note {
		return s.lose(d, ErrBudget)
	}
	over := *d
	over.Verdict, over.Reason, over.Rule, over.RuleLayer, over.Guidance = "deny", "budget", "", "", ""
	over.Secrets = nil
	if err := s.put(ctx, &over, false); err != nil {
		return err
	}
	return ErrBudget
}

// lose counts d as lost, and returns why it is.
func (s *Spool) lose(d *Decision, why error) error {
	if d.Org == "" {
		return why // nobody's: there is nobody to tell
	}
	if err := s.file.book.Load().lose(d.Org, 1, errors.Is(why, ErrBudget)); err != nil {
		return errors.Join(why, err)
	}
	return why
}

// check refuses what could not be read later as what it is.
func check(d *Decision) error {
	switch {
	case d.ID == "" || d.Org == "" || len(d.Org) > maxOrgName:
		return fmt.Errorf("recording decision %q: %w: id and org are needed", d.ID, errDecision)
	case d.Layer != "dns" && d.Level != "http" && d.Level != "sni" && d.Level != "address":
		return fmt.Errorf("recording decision %q: %w: level says how the destination is known: http, sni or address", d.ID, errDecision)
	}
	return nil
}

// A Closing is how a flow ended.
type Closing struct {
	Status            int
	BytesOut, BytesIn int64
	DurationMS        int64
	Error             string
}

// CloseFlow has the closing row of d written, which was recorded before; of one that is only counted, it adds the bytes to the
// count. It costs no budget: d paid for both. Nobody waits for it, so it goes with the next commit, or a moment later in one with
// others of its kind; one that fails then is counted as lost. Flush waits.
func (s *Spool) CloseFlow(ctx context.Context, d *Decision, c Closing) error {
	if d.Fold {
		return s.closeCounted(ctx, d, c)
	}
	end := *d
	end.Closed = true
	end.Status, end.BytesOut, end.BytesIn, end.DurationMS, end.Error = c.Status, c.BytesOut, c.BytesIn, c.DurationMS, c.Error
	return s.put(ctx, &end, true)
}

func (s *Spool) closeCounted(ctx context.Context, d *Decision, c Closing) error {
	row, _, err := s.folds.of(d, s.cfg.Now(), s.newFold)
	if err == nil && row == nil { // more is watched than there is room for: a row for these bytes alone
		row, err = s.newFold(d)
	}
	if err != nil {
		return s.lose(d, err)
	}
	return s.enter(ctx, d, &entry{org: d.Org, fold: row, out: c.BytesOut, in: c.BytesIn, until: s.cfg.Now().UnixMicro()}, true)
}

// newFold makes a row that counts decisions like d. What may differ between them is left out.
func (s *Spool) newFold(d *Decision) (*fold, error) {
	same := *d
	same.ID, same.Flow, same.Method, same.Path, same.Foreign, same.ForeignHash = NewID(), "", "", "", nil, nil
	same.Count, same.Until, same.Closed = 0, time.Time{}, false
	body := same.AppendJSON(nil)
	return &fold{id: same.ID, org: d.Org, begun: s.cfg.Now(), body: body, size: int64(len(body)) + 2*rowCost}, nil
}

// count counts d in the row.
func (s *Spool) count(ctx context.Context, d *Decision, row *fold, now time.Time) error {
	e := &entry{org: d.Org, fold: row, n: max(d.Count, 1), until: now.UnixMicro()}
	if err := s.enter(ctx, d, e, false); err != nil {
		return err
	}
	d.ID = e.row
	return nil
}

func (s *Spool) put(ctx context.Context, d *Decision, closing bool) error {
	if len(d.Path) > maxPath {
		short := *d
		short.Path = d.Path[:maxPath] + "…"
		d = &short
	}
	body := d.AppendJSON(make([]byte, 0, 1024))
	return s.enter(ctx, d, &entry{org: d.Org, size: int64(len(body)) + rowCost, body: body}, closing)
}

// Flush returns once everything that was given to the spool before is written, or lost and counted.
func (s *Spool) Flush(ctx context.Context) error {
	settled, err := s.queue.settled()
	if err != nil {
		return err
	}
	select {
	case <-settled:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the spool: %w", ctx.Err())
	}
}

// enter has e committed, by the writer or by its caller, and unless e closes something waits for that.
func (s *Spool) enter(ctx context.Context, d *Decision, e *entry, closing bool) error {
	if !closing {
		e.done = make(chan error, 1)
	}
	if e.fold != nil && e.fold.charged.CompareAndSwap(false, true) {
		e.size, e.charges = e.fold.size, true
	}
	if e.size > 0 {
		if err := s.share.take(e.org, e.size, closing); err != nil {
			if e.charges {
				e.fold.charged.Store(false)
			}
			return s.lose(d, err)
		}
	}
	lead, err := s.queue.push(ctx, e)
	if err != nil {
		s.giveBack(e)
		return s.lose(d, err)
	}
	if lead {
		s.lead()
	}
	if closing {
		return nil
	}
	select {
	case err := <-e.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("recording decision %q: %w", d.ID, ctx.Err())
	}
}

// giveBack frees what e took.
func (s *Spool) giveBack(e *entry) {
	if e.size == 0 {
		return
	}
	s.share.give(e.org, e.size)
	if e.charges {
		e.fold.charged.Store(false)
	}
}

// Close lets what is queued be written, then closes the file.
func (s *Spool) Close() error {
	s.queue.close()
	<-s.ended
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.file.close()
}

// sizes sums what each org holds up to a row.
func sizes(ctx context.Context, q interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}, upTo int64) (map[string]int64, error) {
	const rows, counts = `SELECT org, sum(size) FROM decisions WHERE seq <= ? GROUP BY org`, ` UNION ALL SELECT org, sum(size) FROM counts GROUP BY org`
	query := rows
	if upTo == maxSeq {
		query += counts
	}
	found, err := q.QueryContext(ctx, query, upTo)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	out := make(map[string]int64)
	for found.Next() {
		var org string
		var n int64
		if err := found.Scan(&org, &n); err != nil {
			return nil, err
		}
		out[org] += n
	}
	return out, found.Err()
}
