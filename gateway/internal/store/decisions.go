package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"portreeve.dev/egress/decisions"
)

// A Decision is a stored one with its place in the order in which they arrived.
type Decision struct {
	decisions.Decision
	Seq int64 `json:"-"`
}

// AppendDecisions keeps a batch: all of it, or nothing. A decision that is there already stays as it is, but for its first
// closing. One that names an unknown org, or an id that another org's decision has, is dropped; the rest of the batch is kept.
func (s *Store) AppendDecisions(ctx context.Context, batch []decisions.Decision) error {
	if len(batch) == 0 {
		return nil
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return wrap(err, "appending decisions")
	}
	defer tx.Rollback()
	var last int64
	// The row stays locked until the commit: numbers appear in the order in which they were given, and a tail misses none.
	err = tx.QueryRowContext(ctx, `UPDATE counters SET value = value + $1 WHERE name = 'decisions' RETURNING value`, len(batch)).Scan(&last)
	if err != nil {
		return wrap(err, "numbering decisions")
	}
	for i, d := range batch {
		d.Time = d.Time.UTC()
		body, err := json.Marshal(d)
		if err != nil {
			return wrap(err, "writing decision %q", d.ID)
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO decisions (id, org_id, seq, time, sandbox_id, verdict, host, closed, body)
			SELECT CAST($1 AS TEXT), o.id, CAST($3 AS BIGINT), CAST($4 AS BIGINT), CAST($5 AS TEXT), CAST($6 AS TEXT), CAST($7 AS TEXT),
				CAST($8 AS BIGINT), CAST($9 AS TEXT) FROM orgs o WHERE o.id = $2
			ON CONFLICT (id) DO UPDATE SET closed = excluded.closed, body = excluded.body
			WHERE decisions.org_id = excluded.org_id AND decisions.closed = 0 AND excluded.closed = 1`,
			d.ID, d.Org, last-int64(len(batch)-1-i), micros(d.Time), d.Sandbox, d.Verdict, d.Host, flag(d.Closed), string(body))
		if err != nil {
			return wrap(err, "writing decision %q", d.ID)
		}
	}
	if err := noteUses(ctx, tx, batch); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return wrap(err, "appending decisions")
	}
	s.announce()
	return nil
}

// Appended returns a channel that is closed at the next append by this process.
func (s *Store) Appended() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.appended
}

func (s *Store) announce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.appended)
	s.appended = make(chan struct{})
}

// A Position is a place in a list of decisions, newest first.
type Position struct {
	Time int64 `json:"t"`
	Seq  int64 `json:"s"`
}

// A DecisionFilter narrows a list of decisions; zero fields don't.
type DecisionFilter struct {
	Sandbox string
	Verdict string
	Host    string
	Since   time.Time // inclusive
	After   Position  // older than this one; zero: from the newest
	Limit   int
}

// Decisions lists decisions of the org, newest first.
func (r reads) Decisions(ctx context.Context, org string, f DecisionFilter) ([]Decision, error) {
	where, args := []string{"org_id = $1"}, []any{org}
	add := func(clause string, values ...any) {
		numbers := make([]any, len(values))
		for i, v := range values {
			args = append(args, v)
			numbers[i] = len(args)
		}
		where = append(where, fmt.Sprintf(clause, numbers...))
	}
	if f.Sandbox != "" {
		add("sandbox_id = $%d", f.Sandbox)
	}
	if f.Verdict != "" {
		add("verdict = $%d", f.Verdict)
	}
	if f.Host != "" {
		add("host = $%d", f.Host)
	}
	if !f.Since.IsZero() {
		add("time >= $%d", micros(f.Since))
	}
	if f.After != (Position{}) {
		add("(time < $%d OR (time = $%d AND seq < $%d))", f.After.Time, f.After.Time, f.After.Seq)
	}
	args = append(args, f.Limit)
	all, err := list(ctx, r.q, scanDecision, fmt.Sprintf(`SELECT seq, body FROM decisions WHERE `+strings.Join(where, " AND ")+
		` ORDER BY time DESC, seq DESC LIMIT $%d`, len(args)), args...)
	return all, wrap(err, "listing decisions of %q", org)
}

// DecisionsAfter lists decisions of the org in the order of their arrival, after a number.
func (r reads) DecisionsAfter(ctx context.Context, org string, seq int64, limit int) ([]Decision, error) {
	all, err := list(ctx, r.q, scanDecision, `SELECT seq, body FROM decisions WHERE org_id = $1 AND seq > $2 ORDER BY seq LIMIT $3`, org, seq, limit)
	return all, wrap(err, "following decisions of %q", org)
}

// LastDecision returns the number of the newest arrival in the store.
func (r reads) LastDecision(ctx context.Context) (int64, error) {
	var n int64
	err := r.q.QueryRowContext(ctx, `SELECT value FROM counters WHERE name = 'decisions'`).Scan(&n)
	return n, wrap(err, "reading the decision counter")
}

// Decision returns one decision of the org.
func (r reads) Decision(ctx context.Context, org, id string) (Decision, error) {
	d, err := scanDecision(r.q.QueryRowContext(ctx, `SELECT seq, body FROM decisions WHERE org_id = $1 AND id = $2`, org, id))
	return d, wrap(err, "reading decision %q", id)
}

// Place returns where d stands in a list, newest first.
func (d Decision) Place() Position { return Position{Time: micros(d.Time), Seq: d.Seq} }

func scanDecision(row rowScanner) (Decision, error) {
	var d Decision
	var body string
	if err := row.Scan(&d.Seq, &body); err != nil {
		return d, err
	}
	return d, json.Unmarshal([]byte(body), &d.Decision)
}

// ForgetDecisions deletes decisions older than before, and returns how many.
func (s *Store) ForgetDecisions(ctx context.Context, before time.Time) (int64, error) {
	res, err := s.write.ExecContext(ctx, `DELETE FROM decisions WHERE time < $1`, micros(before))
	if err != nil {
		return 0, wrap(err, "forgetting decisions")
	}
	n, err := res.RowsAffected()
	return n, wrap(err, "forgetting decisions")
}
