package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"portreeve.dev/egress/decisions"
)

// trimStep is how many decisions go in one transaction: writers wait for no more than that.
const trimStep = 500

// Holdings are what the store holds of an org's decisions, and what it no longer holds.
type Holdings struct {
	Org             string
	Count, Bytes    int64
	LastSeq         int64
	Forgotten       int64 // how many were deleted
	ForgottenSeq    int64 // no place up to here is sure to be there
	ForgottenBefore time.Time
	DecisionSettings
}

// DecisionSettings say how an org's decisions are recorded and how long they are kept.
type DecisionSettings struct {
	BestEffort bool
	Paths      string // full, prefix, none
	KeepDays   int64
	Version    int64
}

const selectHoldings = `SELECT o.id, coalesce(d.count, 0), coalesce(d.bytes, 0), coalesce(d.seq, 0), coalesce(d.forgotten, 0), coalesce(d.forgotten_seq, 0), d.forgotten_before,
	coalesce(d.best_effort, 0), coalesce(d.paths, 'full'), coalesce(d.keep_days, 30), coalesce(d.version, 0) FROM orgs o LEFT JOIN decision_orgs d ON d.org_id = o.id`

func scanHoldings(row rowScanner) (Holdings, error) {
	var h Holdings
	var before sql.NullInt64
	var best int64
	err := row.Scan(&h.Org, &h.Count, &h.Bytes, &h.LastSeq, &h.Forgotten, &h.ForgottenSeq, &before, &best, &h.Paths, &h.KeepDays, &h.Version)
	h.ForgottenBefore, h.BestEffort = fromOptional(before), best == 1
	return h, err
}

// Holdings returns what is held of an org.
func (r reads) Holdings(ctx context.Context, org string) (Holdings, error) {
	h, err := scanHoldings(r.q.QueryRowContext(ctx, selectHoldings+` WHERE o.id = $1`, org))
	return h, wrap(err, "reading what is held of %q", org)
}

// AllHoldings lists those of every org, the largest first. It is for jobs and the feed, never for an answer.
func (r reads) AllHoldings(ctx context.Context) ([]Holdings, error) {
	all, err := list(ctx, r.q, scanHoldings, selectHoldings+` ORDER BY 3 DESC, o.id`)
	return all, wrap(err, "reading what is held")
}

// PutDecisionSettings stores settings if the stored version is still the expected one, or AnyVersion.
func (tx *Tx) PutDecisionSettings(ctx context.Context, want DecisionSettings, expected int64) (DecisionSettings, error) {
	now, err := tx.Holdings(ctx, tx.Org())
	if err != nil {
		return want, err
	}
	if expected != AnyVersion && expected != now.Version {
		return want, wrap(ErrVersion, "storing settings of decisions of %q", tx.Org())
	}
	want.Version = now.Version + 1
	_, err = tx.q.ExecContext(ctx, `INSERT INTO decision_orgs (org_id, best_effort, paths, keep_days, version) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (org_id) DO UPDATE SET best_effort = excluded.best_effort, paths = excluded.paths, keep_days = excluded.keep_days, version = excluded.version`,
		tx.Org(), flag(want.BestEffort), want.Paths, want.KeepDays, want.Version)
	return want, wrap(err, "storing settings of decisions of %q", tx.Org())
}

// TrimDecisions deletes one step of what an org holds beyond its days or its budget, the oldest first, and says so in its holdings.
// It returns how many went; 0 says that nothing is over.
func (s *Store) TrimDecisions(ctx context.Context, h Holdings, most int64) (int64, error) {
	old := micros(s.earliest().AddDate(0, 0, -int(h.KeepDays)))
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return 0, wrap(err, "forgetting decisions")
	}
	defer tx.Rollback()
	// The counters first, as whoever appends has it.
	var bytes int64
	if err := tx.QueryRowContext(ctx, `UPDATE decision_orgs SET count = count WHERE org_id = $1 RETURNING bytes`, h.Org).Scan(&bytes); errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	} else if err != nil {
		return 0, wrap(err, "forgetting decisions of %q", h.Org)
	}
	gone, err := trim(ctx, tx, h.Org, old, bytes-most)
	if err != nil || gone.count == 0 {
		return 0, wrap(err, "forgetting decisions of %q", h.Org)
	}
	_, err = tx.ExecContext(ctx, `UPDATE decision_orgs SET count = count - $2, bytes = bytes - $3, forgotten = forgotten + $2,
		forgotten_seq = CASE WHEN forgotten_seq < $4 THEN $4 ELSE forgotten_seq END,
		forgotten_before = CASE WHEN coalesce(forgotten_before, 0) < $5 THEN $5 ELSE forgotten_before END WHERE org_id = $1`,
		h.Org, gone.count, gone.bytes, gone.seq, gone.time+1)
	if err == nil {
		err = tx.Commit()
	}
	return gone.count, wrap(err, "forgetting decisions of %q", h.Org)
}

type trimmed struct{ count, bytes, seq, time int64 }

// trim deletes the oldest rows: those before a time, and others while the org holds too much.
func trim(ctx context.Context, tx *sql.Tx, org string, old, over int64) (gone trimmed, err error) {
	type row struct {
		id              string
		time, seq, size int64
	}
	oldest, err := list(ctx, tx, func(r rowScanner) (v row, err error) { return v, r.Scan(&v.id, &v.time, &v.seq, &v.size) },
		`SELECT id, time, seq, size FROM decisions WHERE org_id = $1 ORDER BY time, id LIMIT $2`, org, trimStep)
	if err != nil {
		return gone, err
	}
	var last row
	for _, r := range oldest {
		if r.time >= old && over <= 0 {
			break
		}
		over -= r.size
		gone.count, gone.bytes, gone.seq, gone.time = gone.count+1, gone.bytes+r.size, max(gone.seq, r.seq), r.time
		last = r
	}
	if gone.count == 0 {
		return gone, nil
	}
	_, err = tx.ExecContext(ctx, `DELETE FROM decisions WHERE org_id = $1 AND (time < $2 OR (time = $2 AND id <= $3))`, org, last.time, last.id)
	return gone, err
}

// Shrink gives some of the room that was freed back to the disk. PostgreSQL does that by itself.
func (s *Store) Shrink(ctx context.Context) error {
	if !s.lite {
		return nil
	}
	_, err := s.write.ExecContext(ctx, `PRAGMA incremental_vacuum(256)`)
	return wrap(err, "shrinking the store")
}

// EndDead closes one step of the flows that were open in earlier lives of a node's spool, or in spools that it no longer has. Their
// edge died, and nobody will say how they ended. It returns how many that were.
func (s *Store) EndDead(ctx context.Context, spool string, life int64) (int, error) {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return 0, wrap(err, "closing flows")
	}
	defer tx.Rollback()
	dead, err := list(ctx, tx, scanSpooled, `SELECT d.body, d.spool, d.life FROM decisions d WHERE d.closed = 0 AND d.flow = 1 AND (d.spool = $1 AND d.life < $2
		OR d.spool IN (SELECT o.id FROM decision_spools o JOIN decision_spools n ON n.node = o.node WHERE n.id = $1 AND o.ended_at IS NOT NULL)) LIMIT $3`, spool, life, trimStep)
	if err != nil || len(dead) == 0 {
		return 0, wrap(err, "closing flows of spool %q", spool)
	}
	for i := range dead {
		dead[i].Closed, dead[i].Error = true, decisions.EdgeDied
	}
	if err := s.appendRows(ctx, tx, dead); err != nil {
		return 0, err
	}
	if err := tx.Commit(); err != nil {
		return 0, wrap(err, "closing flows")
	}
	s.announce()
	return len(dead), nil
}

func scanSpooled(row rowScanner) (Spooled, error) {
	var d Spooled
	var body string
	if err := row.Scan(&body, &d.Spool, &d.Life); err != nil {
		return d, err
	}
	return d, json.Unmarshal([]byte(body), &d.Decision)
}

// Settled notes that no flow of an earlier life is open.
func (s *Store) Settled(ctx context.Context, spool string, life int64) error {
	_, err := s.write.ExecContext(ctx, `UPDATE decision_spools SET settled = $2 WHERE id = $1 AND settled < $2`, spool, life)
	return wrap(err, "settling spool %q", spool)
}
