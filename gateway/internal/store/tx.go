package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"portreeve.dev/sso"
)

// By says who makes a change and from where.
type By struct {
	Principal sso.Principal
	Address   string // of the client, without the port; empty for parts of ours
	RequestID string // req_..., or what the client sent
}

// A Tx is a change being made by a principal within its org. It is gone after the function that got it returns.
type Tx struct {
	reads
	by       By
	now      time.Time
	entries  int
	bump     bool
	earliest time.Time // see Options
	requests bool      // a request for access was entered or decided
	queued   bool      // an event waits for a webhook
	revision int64
}

// Change runs fn in one transaction on behalf of by. It commits only if fn returns nil and recorded what it did; the
// revision is the one that the change made known (0 when fn asked for none). What fn wrote is durable when Change returns.
func (s *Store) Change(ctx context.Context, by By, fn func(*Tx) error) (revision int64, err error) {
	if !by.Principal.Valid() {
		return 0, ErrNoPrincipal
	}
	sqlTx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return 0, wrap(err, "beginning a change")
	}
	defer sqlTx.Rollback() // nothing after a commit
	tx := &Tx{reads: reads{q: sqlTx}, by: by, now: s.now().UTC().Truncate(time.Microsecond), earliest: s.earliest()}
	if err := tx.lockOrg(ctx); err != nil {
		return 0, err
	}
	if err := fn(tx); err != nil {
		return 0, err
	}
	if tx.entries == 0 {
		return 0, ErrUnaudited
	}
	if err := tx.takeRevision(ctx); err != nil {
		return 0, err
	}
	err = sqlTx.Commit()
	if err == nil && tx.requests {
		s.announceAccess()
	}
	if err == nil && tx.queued {
		s.announceWebhooks()
	}
	return tx.revision, wrap(err, "committing a change")
}

// lockOrg makes changes of one org wait for each other, so that the audit chain has one end. It is the first lock of each
// change and the revision's row the last: no two changes wait for each other in a ring.
func (tx *Tx) lockOrg(ctx context.Context) error {
	res, err := tx.q.ExecContext(ctx, `UPDATE orgs SET audit_seq = audit_seq WHERE id = $1`, tx.Org())
	if err != nil {
		return wrap(err, "locking org %q", tx.Org())
	}
	n, err := res.RowsAffected()
	if err != nil {
		return wrap(err, "locking org %q", tx.Org())
	}
	if n == 0 && tx.by.Principal.Kind != sso.KindSetup { // a registration makes its org within
		return fmt.Errorf("org %q: %w", tx.Org(), ErrNotFound)
	}
	return nil
}

// Org is the org within which the change happens.
func (tx *Tx) Org() string { return tx.by.Principal.Org }

// Now is the time of the change.
func (tx *Tx) Now() time.Time { return tx.now }

// Earliest is no later than Now: see Options. Whatever is restricted holds for all that has not ended by it.
func (tx *Tx) Earliest() time.Time { return tx.earliest }

// Bump asks for a new revision: edge must learn of this change.
func (tx *Tx) Bump() { tx.bump = true }

func (tx *Tx) takeRevision(ctx context.Context) error {
	if !tx.bump || tx.revision != 0 {
		return nil
	}
	// The row stays locked until the commit, so that revisions are seen in the order in which they were given.
	err := tx.q.QueryRowContext(ctx, `UPDATE counters SET value = value + 1 WHERE name = 'revision' RETURNING value`).Scan(&tx.revision)
	return wrap(err, "taking a revision")
}

// Revision returns the revision of this change, taking it now. Call it last: every other change waits for this one from here on.
func (tx *Tx) Revision(ctx context.Context) (int64, error) {
	tx.bump = true
	err := tx.takeRevision(ctx)
	return tx.revision, err
}

// one insists that a statement changed exactly one row.
func one(res sql.Result, err error, otherwise error) error {
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return err
	}
	if n != 1 {
		return otherwise
	}
	return nil
}
