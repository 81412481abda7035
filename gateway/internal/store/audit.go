package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"portreeve.dev/gateway/audit"
)

// Record appends an entry for a change that succeeded.
func (tx *Tx) Record(ctx context.Context, action audit.Action, object string, details map[string]string) error {
	return tx.RecordOutcome(ctx, action, object, audit.Success, details)
}

// RecordOutcome appends an entry to the org's chain.
func (tx *Tx) RecordOutcome(ctx context.Context, action audit.Action, object, outcome string, details map[string]string) error {
	if !action.Known() {
		return fmt.Errorf("recording %q: unknown action", action)
	}
	if details == nil {
		details = map[string]string{}
	}
	e := audit.Entry{
		ID: NewID("aud"), Org: tx.Org(), Time: tx.now, ActorKind: string(tx.by.Principal.Kind), Actor: tx.by.Principal.ID,
		Action: action, Object: object, Outcome: outcome, Address: tx.by.Address, RequestID: tx.by.RequestID, Details: details,
	}
	err := tx.q.QueryRowContext(ctx, `UPDATE orgs SET audit_seq = audit_seq + 1 WHERE id = $1 RETURNING audit_seq, audit_head`, e.Org).
		Scan(&e.Seq, &e.Prev)
	if err != nil {
		return wrap(err, "numbering an audit entry of %q", e.Org)
	}
	if e.Prev == "" {
		e.Prev = audit.Genesis(e.Org)
	}
	e.Hash = audit.Sum(e)
	text, err := json.Marshal(e.Details)
	if err != nil {
		return err
	}
	_, err = tx.q.ExecContext(ctx, `INSERT INTO audit
		(org_id, seq, id, time, actor_kind, actor, action, object, outcome, address, request_id, details, prev_hash, hash)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
		e.Org, e.Seq, e.ID, micros(e.Time), e.ActorKind, e.Actor, string(e.Action), e.Object, e.Outcome, e.Address, e.RequestID,
		string(text), e.Prev, e.Hash)
	if err != nil {
		return wrap(err, "writing an audit entry of %q", e.Org)
	}
	if _, err = tx.q.ExecContext(ctx, `UPDATE orgs SET audit_head = $2 WHERE id = $1`, e.Org, e.Hash); err != nil {
		return wrap(err, "moving the audit chain of %q", e.Org)
	}
	tx.entries++
	return nil
}

// An AuditFilter narrows a list of entries; zero fields don't.
type AuditFilter struct {
	Object  string
	Action  string
	Outcome string
	Since   time.Time // inclusive
	Until   time.Time // exclusive
	Limit   int
	Offset  int
}

// Audit lists entries of an org, newest first, and says how many match in all.
func (r reads) Audit(ctx context.Context, org string, f AuditFilter) ([]audit.Entry, int64, error) {
	where, args := []string{"org_id = $1"}, []any{org}
	add := func(clause string, value any) {
		args = append(args, value)
		where = append(where, fmt.Sprintf(clause, len(args)))
	}
	if f.Object != "" {
		add("object = $%d", f.Object)
	}
	if f.Action != "" {
		add("action = $%d", f.Action)
	}
	if f.Outcome != "" {
		add("outcome = $%d", f.Outcome)
	}
	if !f.Since.IsZero() {
		add("time >= $%d", micros(f.Since))
	}
	if !f.Until.IsZero() {
		add("time < $%d", micros(f.Until))
	}
	cond := strings.Join(where, " AND ")
	var total int64
	if err := r.q.QueryRowContext(ctx, `SELECT count(*) FROM audit WHERE `+cond, args...).Scan(&total); err != nil {
		return nil, 0, wrap(err, "counting audit entries of %q", org)
	}
	args = append(args, f.Limit, f.Offset)
	query := fmt.Sprintf(auditColumns+` WHERE `+cond+` ORDER BY seq DESC LIMIT $%d OFFSET $%d`, len(args)-1, len(args))
	all, err := list(ctx, r.q, scanEntry, query, args...)
	return all, total, wrap(err, "listing audit entries of %q", org)
}

// AuditChain returns entries oldest first from a number on, as audit.Verify wants them.
func (r reads) AuditChain(ctx context.Context, org string, from int64, limit int) ([]audit.Entry, error) {
	all, err := list(ctx, r.q, scanEntry, auditColumns+` WHERE org_id = $1 AND seq >= $2 ORDER BY seq LIMIT $3`, org, from, limit)
	return all, wrap(err, "reading the audit chain of %q", org)
}

const auditColumns = `SELECT id, org_id, seq, time, actor_kind, actor, action, object, outcome, address, request_id, details, prev_hash, hash FROM audit`

func scanEntry(row rowScanner) (audit.Entry, error) {
	var e audit.Entry
	var at int64
	var details string
	err := row.Scan(&e.ID, &e.Org, &e.Seq, &at, &e.ActorKind, &e.Actor, &e.Action, &e.Object, &e.Outcome, &e.Address, &e.RequestID,
		&details, &e.Prev, &e.Hash)
	if err != nil {
		return e, err
	}
	e.Time = fromMicros(at)
	return e, json.Unmarshal([]byte(details), &e.Details)
}
