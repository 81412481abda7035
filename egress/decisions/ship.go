package decisions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// A Row is one spooled decision on its way to control.
type Row struct {
	Seq  uint64          `json:"seq"` // its place in the spool
	Org  string          `json:"org_id"`
	Num  uint64          `json:"num"`                // its number among those of the org
	Body json.RawMessage `json:"decision,omitempty"` // a Decision
	// With, instead of a body: the row that has this place in the same shipment closes the same decision, and says all of it.
	With uint64 `json:"with,omitempty"`
}

// Decision decodes the row.
func (r Row) Decision() (d Decision, err error) {
	if err = json.Unmarshal(r.Body, &d); err != nil {
		err = fmt.Errorf("reading decision %d: %w", r.Seq, err)
	}
	return d, err
}

// batchBytes bounds one batch, so that a shipper's frame has a bounded size whatever max says.
const batchBytes = 1 << 20

const maxSeq = math.MaxInt64

// Batch returns up to max of the oldest rows, in order, and what the spool says about itself. They stay until Ack. With now, also
// what is still counted comes, unless it has only begun.
func (s *Spool) Batch(max int, now bool) (Shipment, error) {
	f := s.file
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.moved && f.told {
		f.fail() // all of it is shipped
		f.moved, f.told = false, false
	}
	if err := f.open(); err != nil {
		return Shipment{Error: "spool_unusable"}, err
	}
	age := foldMinute
	if now {
		age = foldSoon
	}
	if f.inPlace() != nil {
		age = 0 // nothing more will be counted in it
	}
	if err := f.roll(age); err != nil {
		f.fail()
		return Shipment{Error: "spool_unusable"}, fmt.Errorf("closing counts: %w", err)
	}
	out := Shipment{Spool: f.id, Life: f.life, Run: f.run, Began: f.began, Orgs: make(map[string]OrgState)}
	var err error
	if out.Rows, out.More, err = f.oldest(max); err != nil {
		return out, err
	}
	if f.moved {
		out.Error = "spool_moved"
	}
	s.describe(&out)
	return out, nil
}

// A reading is what a batch of the oldest rows held, by org: whoever acknowledges all of it needs no sum.
type reading struct {
	upTo uint64
	held map[string]int64
}

func (f *file) oldest(max int) (out []Row, more bool, err error) {
	held := make(map[string]int64)
	defer func() {
		f.read = reading{}
		if err == nil && len(out) > 0 {
			f.read = reading{out[len(out)-1].Seq, held}
		}
	}()
	rows, err := f.conn.QueryContext(context.Background(), `SELECT seq, org, num, size, body FROM decisions ORDER BY seq LIMIT ?`, max+1)
	if err != nil {
		return nil, false, fmt.Errorf("reading spool: %w", err)
	}
	defer rows.Close()
	for size := 0; rows.Next(); {
		if len(out) == max || size >= batchBytes {
			return out, true, nil
		}
		var r Row
		var cost int64
		if err := rows.Scan(&r.Seq, &r.Org, &r.Num, &cost, &r.Body); err != nil {
			return nil, false, fmt.Errorf("reading spool: %w", err)
		}
		size += len(r.Body)
		held[r.Org] += cost
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, false, fmt.Errorf("reading spool: %w", err)
	}
	return out, false, nil
}

// describe says of each org up to which number everything is accounted for once this batch is stored.
func (s *Spool) describe(out *Shipment) {
	f := s.file
	last := make(map[string]uint64)
	for _, r := range out.Rows {
		last[r.Org] = r.Num
	}
	for _, org := range f.known() {
		n, l := f.settled(org), f.book.Load().losses(org)
		state := OrgState{Upto: n.next - 1, Reserved: f.book.Load().reserved(org), Written: n.written, Budget: l.budget, Unsure: l.unsure, Bytes: s.share.of(org)}
		if out.More {
			state.Upto = last[org] // of others, nothing is said this time
		}
		out.Orgs[org] = state
	}
}

// known lists the orgs that have a number or a loss.
func (f *file) known() (all []string) {
	for org := range f.orgs {
		all = append(all, org)
	}
	l := f.book.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	for org := range l.slots {
		if _, ok := f.orgs[org]; !ok {
			all = append(all, org)
		}
	}
	return all
}

// Told notes that the other side knows what a batch said.
func (s *Spool) Told(sent Shipment) {
	f := s.file
	f.mu.Lock()
	defer f.mu.Unlock()
	if sent.Spool != f.id || sent.Run != f.run {
		return
	}
	l := f.book.Load()
	l.mu.Lock()
	for org, state := range sent.Orgs {
		if slot := l.slots[org]; slot != nil && !sent.More {
			slot.told.budget = state.Budget
			slot.told.lost = state.Upto - state.Written - state.Unsure
		}
	}
	l.mu.Unlock()
	f.told = f.moved && len(sent.Rows) == 0 && !sent.More && sent.Error == "spool_moved"
}

// Skip leaves out the numbers of an org before next: the other side has seen higher ones, so this file is an older copy.
func (s *Spool) Skip(spool, org string, next uint64) error {
	f := s.file
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.id != spool {
		return nil
	}
	n := f.settled(org)
	if next <= n.next {
		return nil
	}
	if err := f.book.Load().skip(org, next-n.next); err != nil {
		return fmt.Errorf("leaving out numbers: %w", err)
	}
	return f.book.Load().reserve(org, next)
}

// Ack removes all rows up to seq: the other side has stored them.
func (s *Spool) Ack(spool string, seq uint64) error {
	freed, err := s.file.ack(spool, seq)
	if err != nil {
		return fmt.Errorf("acknowledging decisions up to %d: %w", seq, err)
	}
	for org, n := range freed {
		s.share.give(org, n)
	}
	return nil
}

func (f *file) ack(spool string, seq uint64) (map[string]int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.open(); err != nil {
		return nil, err
	}
	if f.id != spool {
		return nil, errors.New("another spool has taken the place of that one")
	}
	freed, err := f.remove(seq)
	if err != nil {
		f.fail()
	}
	return freed, err
}

func (f *file) remove(seq uint64) (freed map[string]int64, err error) {
	late := make(map[string]numbers, len(f.stale))
	for org := range f.stale {
		late[org] = f.orgs[org]
	}
	err = f.inTx(func(ctx context.Context) (err error) {
		if err = f.writeHeads(ctx, late); err != nil {
			return err
		}
		if freed = f.read.held; f.read.upTo != seq {
			if freed, err = sizes(ctx, f.conn, int64(seq)); err != nil {
				return err
			}
		}
		if _, err = f.leave.ExecContext(ctx, int64(seq)); err != nil {
			return err
		}
		_, err = f.acked.ExecContext(ctx, int64(seq))
		return err
	})
	if err == nil {
		f.read = reading{}
		clear(f.stale)
	}
	return freed, err
}

// Oldest is when the oldest row that waits was decided; the zero time if none waits.
func (s *Shipment) Oldest() time.Time {
	if len(s.Rows) == 0 {
		return time.Time{}
	}
	first := s.Rows[0]
	for _, r := range s.Rows {
		if r.Seq == first.With {
			first = r // it has the time of the verdict, too
		}
	}
	d, err := first.Decision()
	if err != nil {
		return time.Time{}
	}
	return d.Time
}
