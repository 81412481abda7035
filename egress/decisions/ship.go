package decisions

import (
	"context"
	"encoding/json"
	"fmt"
)

// A Row is one spooled decision on its way to control.
type Row struct {
	Seq  uint64          `json:"seq"`
	Org  string          `json:"org_id"`
	Body json.RawMessage `json:"decision"` // a Decision
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

// Batch returns up to max of the oldest rows, in order. They stay until Ack.
func (s *Spool) Batch(max int) ([]Row, error) {
	f := s.file
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.open(); err != nil {
		return nil, err
	}
	rows, err := f.db.Query(`SELECT seq, org, body FROM decisions ORDER BY seq LIMIT ?`, max)
	if err != nil {
		return nil, fmt.Errorf("reading spool: %w", err)
	}
	defer rows.Close()
	var out []Row
	for size := 0; size < batchBytes && rows.Next(); {
		var r Row
		if err := rows.Scan(&r.Seq, &r.Org, &r.Body); err != nil {
			return nil, fmt.Errorf("reading spool: %w", err)
		}
		size += len(r.Body)
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("reading spool: %w", err)
	}
	return out, nil
}

// Ack removes all rows up to seq: the other side has stored them.
func (s *Spool) Ack(seq uint64) error {
	freed, err := s.file.ack(seq)
	if err != nil {
		return fmt.Errorf("acknowledging decisions up to %d: %w", seq, err)
	}
	for org, n := range freed {
		s.share.give(org, n)
	}
	return nil
}

func (f *file) ack(seq uint64) (map[string]int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.open(); err != nil {
		return nil, err
	}
	freed, err := f.remove(seq)
	if err != nil {
		f.fail()
	}
	return freed, err
}

func (f *file) remove(seq uint64) (map[string]int64, error) {
	ctx := context.Background()
	tx, err := f.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	freed, err := sizes(ctx, tx, int64(seq))
	if err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM decisions WHERE seq <= ?`, int64(seq)); err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE head SET acked = max(acked, ?)`, int64(seq)); err != nil {
		return nil, err
	}
	return freed, tx.Commit()
}
