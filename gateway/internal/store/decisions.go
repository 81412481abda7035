package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"portreeve.dev/egress/decisions"
)

// A Decision is a stored one with its place in the order in which those of its org arrived. The end of a flow takes a new place.
type Decision struct {
	decisions.Decision
	Seq int64 `json:"-"`
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

// A Position is a place in a list of decisions, newest first. It stays good while flows end.
type Position struct {
	Time int64  `json:"t"`
	ID   string `json:"i"`
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
		add("(time < $%d OR (time = $%d AND id < $%d))", f.After.Time, f.After.Time, f.After.ID)
	}
	args = append(args, f.Limit)
	all, err := list(ctx, r.q, scanDecision, fmt.Sprintf(`SELECT seq, body FROM decisions WHERE `+strings.Join(where, " AND ")+
		` ORDER BY time DESC, id DESC LIMIT $%d`, len(args)), args...)
	return all, wrap(err, "listing decisions of %q", org)
}

// DecisionsAfter lists decisions of the org in the order of their arrival, after a number. A flow that has ended comes once, with
// its end.
func (r reads) DecisionsAfter(ctx context.Context, org string, seq int64, limit int) ([]Decision, error) {
	all, err := list(ctx, r.q, scanDecision, `SELECT seq, body FROM decisions WHERE org_id = $1 AND seq > $2 ORDER BY seq LIMIT $3`, org, seq, limit)
	return all, wrap(err, "following decisions of %q", org)
}

// Decision returns one decision of the org.
func (r reads) Decision(ctx context.Context, org, id string) (Decision, error) {
	d, err := scanDecision(r.q.QueryRowContext(ctx, `SELECT seq, body FROM decisions WHERE org_id = $1 AND id = $2`, org, id))
	return d, wrap(err, "reading decision %q", id)
}

// Place returns where d stands in a list, newest first.
func (d Decision) Place() Position { return Position{Time: micros(d.Time), ID: d.ID} }

func scanDecision(row rowScanner) (Decision, error) {
	var d Decision
	var body string
	if err := row.Scan(&d.Seq, &body); err != nil {
		return d, err
	}
	return d, json.Unmarshal([]byte(body), &d.Decision)
}
