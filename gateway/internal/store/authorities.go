package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// A RootState is what one of an org's roots is for. The zero value is for nothing.
//
//	(none) ──► signing ──────────────────► leaving ──► retired
//	(none) ──► next ──► signing, and the one that signed is leaving
type RootState string

const (
	RootNext    RootState = "next"    // trusted by sandboxes, and signs nothing yet
	RootSigning RootState = "signing" // trusted, and signs: at most one of an org's
	RootLeaving RootState = "leaving" // trusted, and signs nothing any more
	RootRetired RootState = "retired" // neither; its key is gone
)

// Trusted reports whether sandboxes trust it.
func (s RootState) Trusted() bool { return s == RootNext || s == RootSigning || s == RootLeaving }

// A Root is one of an org's root certificates, and its key as sealed bytes.
type Root struct {
	Org         string
	Version     int64 // 1 is the first
	State       RootState
	Certificate []byte // DER
	SealedKey   []byte // as seal.Record{Kind: "ca_key", Org: Org, Version: Version}; none of a retired one
	CreatedAt   time.Time
	ChangesAt   time.Time // when it is to leave its state; for a retired one, when it came into it; zero: never
}

// An Intermediate is a certificate that a root signed for an edge.
type Intermediate struct {
	Org       string
	Serial    string // in hexadecimal
	Root      int64  // the version of the root
	CreatedAt time.Time
	EndsAt    time.Time
	RevokedAt time.Time // zero: it is not
}

// intermediatesMost is how many intermediates of an org may live at once. Edges get one a day and one at each start.
const intermediatesMost = 1000

// Roots returns all roots of an org, the newest first.
func (r reads) Roots(ctx context.Context, org string) ([]Root, error) {
	all, err := list(ctx, r.q, scanRoot, rootColumns+` WHERE org_id = $1 ORDER BY version DESC`, org)
	return all, wrap(err, "reading the roots of %q", org)
}

// ChangingRoots returns the roots of all orgs that are to leave their state by now, or are next.
func (r reads) ChangingRoots(ctx context.Context, now time.Time) ([]Root, error) {
	all, err := list(ctx, r.q, scanRoot, rootColumns+` WHERE state = 'next' OR state = 'leaving' AND changes_at <= $1 ORDER BY org_id, version`, micros(now))
	return all, wrap(err, "reading the roots that change")
}

// RotatedOrgs returns the orgs that have, or had, more than one root.
func (r reads) RotatedOrgs(ctx context.Context) ([]string, error) {
	all, err := list(ctx, r.q, func(row rowScanner) (org string, err error) { err = row.Scan(&org); return org, err },
		`SELECT org_id FROM roots GROUP BY org_id HAVING count(*) > 1 ORDER BY org_id`)
	return all, wrap(err, "reading which orgs have rotated")
}

const rootColumns = `SELECT org_id, version, state, certificate, sealed_key, created_at, changes_at FROM roots`

func scanRoot(row rowScanner) (a Root, err error) {
	var created int64
	var changes sql.NullInt64
	err = row.Scan(&a.Org, &a.Version, &a.State, &a.Certificate, &a.SealedKey, &created, &changes)
	a.CreatedAt, a.ChangesAt = fromMicros(created), fromOptional(changes)
	return a, err
}

// CreateRoot keeps a root as the org's newest; ErrConflict when its version is taken, or another of its state is there.
func (tx *Tx) CreateRoot(ctx context.Context, a Root) error {
	if a.State != RootNext && a.State != RootSigning {
		return fmt.Errorf("creating a root of %q: it can't begin as %q", tx.Org(), a.State)
	}
	if err := tx.onlyRoot(ctx, a.Version, a.State); err != nil {
		return err
	}
	_, err := tx.q.ExecContext(ctx, `INSERT INTO roots (org_id, version, state, certificate, sealed_key, created_at, changes_at) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		tx.Org(), a.Version, a.State, a.Certificate, a.SealedKey, micros(tx.now), optional(a.ChangesAt))
	tx.Bump()
	return wrap(err, "creating root %d of %q", a.Version, tx.Org())
}

// MoveRoot brings a root from one state into another, which it is to leave at the time changes. The key of a retired one is gone
// when the change is. ErrVersion when it is in another state, ErrConflict when a root is in that one which takes one only.
func (tx *Tx) MoveRoot(ctx context.Context, version int64, from, to RootState, changes time.Time) error {
	if err := tx.onlyRoot(ctx, version, to); err != nil {
		return err
	}
	res, err := tx.q.ExecContext(ctx, `UPDATE roots SET state = $1, changes_at = $2 WHERE org_id = $3 AND version = $4 AND state = $5`,
		to, optional(changes), tx.Org(), version, from)
	if err := one(res, err, ErrVersion); err != nil {
		return wrap(err, "moving root %d of %q", version, tx.Org())
	}
	if to == RootRetired {
		if _, err := tx.q.ExecContext(ctx, `UPDATE roots SET sealed_key = $1 WHERE org_id = $2 AND version = $3`, []byte{}, tx.Org(), version); err != nil {
			return wrap(err, "dropping the key of root %d of %q", version, tx.Org())
		}
	}
	tx.Bump()
	return nil
}

// onlyRoot refuses a second root of a state in which an org has one at most.
func (tx *Tx) onlyRoot(ctx context.Context, version int64, state RootState) error {
	if state != RootNext && state != RootSigning {
		return nil
	}
	var n int
	err := tx.q.QueryRowContext(ctx, `SELECT count(*) FROM roots WHERE org_id = $1 AND version <> $2 AND state = $3`, tx.Org(), version, state).Scan(&n)
	if err == nil && n > 0 {
		err = ErrConflict
	}
	return wrap(err, "a root of %q that is %s", tx.Org(), state)
}

// SandboxesBefore counts the org's sandboxes that live and were made before a time.
func (r reads) SandboxesBefore(ctx context.Context, org string, at time.Time) (n int, err error) {
	err = r.q.QueryRowContext(ctx, `SELECT count(*) FROM sandboxes WHERE org_id = $1 AND created_at < $2 AND status NOT IN ('terminated', 'error')`,
		org, micros(at)).Scan(&n)
	return n, wrap(err, "counting the sandboxes of %q", org)
}

// AddIntermediate writes down what a root signed. Those that ended are forgotten; ErrLimit when too many live.
func (tx *Tx) AddIntermediate(ctx context.Context, m Intermediate) error {
	if _, err := tx.q.ExecContext(ctx, `DELETE FROM intermediates WHERE org_id = $1 AND ends_at < $2`, tx.Org(), micros(tx.earliest)); err != nil {
		return wrap(err, "forgetting intermediates of %q", tx.Org())
	}
	var n int
	err := tx.q.QueryRowContext(ctx, `SELECT count(*) FROM intermediates WHERE org_id = $1`, tx.Org()).Scan(&n)
	if err == nil && n >= intermediatesMost {
		err = ErrLimit
	}
	if err != nil {
		return wrap(err, "intermediates of %q", tx.Org())
	}
	_, err = tx.q.ExecContext(ctx, `INSERT INTO intermediates (org_id, serial, root, created_at, ends_at) VALUES ($1, $2, $3, $4, $5)`,
		tx.Org(), m.Serial, m.Root, micros(tx.now), micros(m.EndsAt))
	return wrap(err, "keeping an intermediate of %q", tx.Org())
}

// Intermediates returns those of an org that have not ended, the newest first.
func (r reads) Intermediates(ctx context.Context, org string, now time.Time) ([]Intermediate, error) {
	all, err := list(ctx, r.q, scanIntermediate, `SELECT org_id, serial, root, created_at, ends_at, revoked_at FROM intermediates
		WHERE org_id = $1 AND ends_at >= $2 ORDER BY created_at DESC, serial`, org, micros(now))
	return all, wrap(err, "reading the intermediates of %q", org)
}

func scanIntermediate(row rowScanner) (m Intermediate, err error) {
	var created, ends int64
	var revoked sql.NullInt64
	err = row.Scan(&m.Org, &m.Serial, &m.Root, &created, &ends, &revoked)
	m.CreatedAt, m.EndsAt, m.RevokedAt = fromMicros(created), fromMicros(ends), fromOptional(revoked)
	return m, err
}

// RevokeIntermediate takes a certificate back, for good; ErrNotFound when the org has none of that serial. One that was taken back
// before stays as it is.
func (tx *Tx) RevokeIntermediate(ctx context.Context, serial string) error {
	var revoked sql.NullInt64
	err := tx.q.QueryRowContext(ctx, `SELECT revoked_at FROM intermediates WHERE org_id = $1 AND serial = $2`, tx.Org(), serial).Scan(&revoked)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil || revoked.Valid {
		return wrap(err, "intermediate %q", serial)
	}
	tx.Bump()
	_, err = tx.q.ExecContext(ctx, `UPDATE intermediates SET revoked_at = $1 WHERE org_id = $2 AND serial = $3`, micros(tx.now), tx.Org(), serial)
	return wrap(err, "revoking intermediate %q", serial)
}

// authorityMarks returns for each org that has a root what stands for its authority as it is now.
func (r reads) authorityMarks(ctx context.Context) (map[string]string, error) {
	type mark struct {
		org           string
		root, revoked int64
	}
	all, err := list(ctx, r.q, func(row rowScanner) (m mark, err error) { err = row.Scan(&m.org, &m.root, &m.revoked); return m, err },
		`SELECT org_id, version, (SELECT coalesce(max(revoked_at), 0) FROM intermediates i WHERE i.org_id = roots.org_id) FROM roots WHERE state = 'signing'`)
	marks := make(map[string]string, len(all))
	for _, m := range all {
		marks[m.org] = fmt.Sprint(m.root, "/", m.revoked)
	}
	return marks, wrap(err, "reading which roots sign")
}
