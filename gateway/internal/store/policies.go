package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Ceiling is the name under which an org's own document is kept. No named policy can have it.
const Ceiling = ""

// AnyVersion as an expected version stands for whatever is stored: the last write wins.
const AnyVersion int64 = -1

// PolicyBytes is how much the documents of an org may be in all, without those that were replaced or deleted: they all go to
// each edge with every change.
const PolicyBytes = 8 << 20

// PolicyCount is how many documents an org may have, the ceiling among them.
const PolicyCount = 1000

// A Policy is one version of a document. A ceiling that was never written is version 0 with an empty document.
type Policy struct {
	ID       string
	Org      string
	Name     string
	Version  int64
	Document json.RawMessage
	Origin
	CreatedBy string
	CreatedAt time.Time // of this version
}

// An Origin says where a version comes from.
type Origin struct {
	Source   string // the author's own text, if it says more than the document: YAML with comments
	Restored int64  // the version that it is again; 0: a new one
}

// PutPolicy stores the next version of a document. expected is the version that the caller saw (0: none), or AnyVersion;
// ErrVersion if another is stored, ErrLimit if the org has more than PolicyBytes
// or PolicyCount with it. Versions go on counting after a deletion,
// so that a number never means two documents.
func (tx *Tx) PutPolicy(ctx context.Context, name string, document json.RawMessage, expected int64) (Policy, error) {
	return tx.PutPolicyFrom(ctx, name, document, Origin{}, expected)
}

// PutPolicyFrom is PutPolicy with where the document comes from.
func (tx *Tx) PutPolicyFrom(ctx context.Context, name string, document json.RawMessage, from Origin, expected int64) (Policy, error) {
	p := Policy{ID: NewID("pol"), Org: tx.Org(), Name: name, Document: document, Origin: from, CreatedBy: tx.by.Principal.ID, CreatedAt: tx.now}
	var last, deleted int64
	err := tx.q.QueryRowContext(ctx, `SELECT id, version, deleted FROM policies WHERE org_id = $1 AND name = $2`, tx.Org(), name).
		Scan(&p.ID, &last, &deleted)
	known := err == nil
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return Policy{}, wrap(err, "reading policy %q", name)
	}
	current := last
	if deleted != 0 {
		current = 0
	}
	if expected != AnyVersion && expected != current {
		return Policy{}, fmt.Errorf("storing policy %q: %w", name, ErrVersion)
	}
	p.Version = last + 1
	if known {
		var res sql.Result
		res, err = tx.q.ExecContext(ctx, `UPDATE policies SET version = $4, deleted = 0, updated_at = $5, bytes = $6 WHERE org_id = $1 AND name = $2 AND version = $3`,
			tx.Org(), name, last, p.Version, micros(tx.now), len(document))
		err = one(res, err, ErrVersion)
	} else {
		_, err = tx.q.ExecContext(ctx, `INSERT INTO policies (org_id, name, id, version, updated_at, bytes) VALUES ($1, $2, $3, $4, $5, $6)`,
			tx.Org(), name, p.ID, p.Version, micros(tx.now), len(document))
	}
	if err != nil {
		return Policy{}, wrap(err, "storing policy %q", name)
	}
	_, err = tx.q.ExecContext(ctx, `INSERT INTO policy_versions (org_id, name, version, document, source, restored, created_by, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		tx.Org(), name, p.Version, string(document), from.Source, from.Restored, p.CreatedBy, micros(p.CreatedAt))
	if err != nil {
		return p, wrap(err, "storing policy %q version %d", name, p.Version)
	}
	if err := tx.forgetVersions(ctx, name, p.Version); err != nil {
		return p, err
	}
	return p, tx.policiesBounded(ctx, name)
}

// policiesBounded refuses what is more than the org's share.
func (tx *Tx) policiesBounded(ctx context.Context, name string) error {
	var all, count int64
	err := tx.q.QueryRowContext(ctx, `SELECT COALESCE(SUM(bytes), 0), count(*) FROM policies WHERE org_id = $1 AND deleted = 0`, tx.Org()).Scan(&all, &count)
	if err == nil && (all > PolicyBytes || count > PolicyCount) {
		err = ErrLimit
	}
	return wrap(err, "storing policy %q: the org's %d policies are %d bytes", name, count, all)
}

// DeletePolicy takes a named policy away; its versions stay readable by number. ErrConflict while a live sandbox has it.
func (tx *Tx) DeletePolicy(ctx context.Context, name string, expected int64) error {
	used, err := tx.PolicyInUse(ctx, tx.Org(), name)
	if err != nil {
		return err
	}
	if used {
		return fmt.Errorf("deleting policy %q: %w", name, ErrConflict)
	}
	current, err := tx.Policy(ctx, tx.Org(), name)
	if err != nil {
		return err
	}
	if expected != AnyVersion && expected != current.Version {
		return fmt.Errorf("deleting policy %q: %w", name, ErrVersion)
	}
	res, err := tx.q.ExecContext(ctx, `UPDATE policies SET deleted = 1, updated_at = $3 WHERE org_id = $1 AND name = $2 AND deleted = 0`,
		tx.Org(), name, micros(tx.now))
	return wrap(one(res, err, ErrNotFound), "deleting policy %q", name)
}

// Policy returns the current version of a document. The ceiling is always there.
func (r reads) Policy(ctx context.Context, org, name string) (Policy, error) {
	p, err := scanPolicy(r.q.QueryRowContext(ctx, policyColumns+` AND v.version = p.version WHERE p.org_id = $1 AND p.name = $2 AND p.deleted = 0`, org, name))
	if name == Ceiling && errors.Is(err, sql.ErrNoRows) {
		return Policy{Org: org, Document: json.RawMessage(`{"rules":[]}`)}, nil
	}
	return p, wrap(err, "reading policy %q", name)
}

// PolicyVersion returns one version, current or not.
func (r reads) PolicyVersion(ctx context.Context, org, name string, version int64) (Policy, error) {
	p, err := scanPolicy(r.q.QueryRowContext(ctx, policyColumns+` WHERE p.org_id = $1 AND p.name = $2 AND v.version = $3`, org, name, version))
	return p, wrap(err, "reading policy %q version %d", name, version)
}

// Policies lists the current version of each named policy of the org.
func (r reads) Policies(ctx context.Context, org string) ([]Policy, error) {
	all, err := list(ctx, r.q, scanPolicy, policyColumns+` AND v.version = p.version
		WHERE p.org_id = $1 AND p.name <> '' AND p.deleted = 0 ORDER BY p.name`, org)
	return all, wrap(err, "listing policies of %q", org)
}

const policyColumns = `SELECT p.id, p.org_id, p.name, v.version, v.document, v.source, v.restored, v.created_by, v.created_at
	FROM policies p JOIN policy_versions v ON v.org_id = p.org_id AND v.name = p.name`

func scanPolicy(row rowScanner) (Policy, error) {
	var p Policy
	var document string
	var at int64
	err := row.Scan(&p.ID, &p.Org, &p.Name, &p.Version, &document, &p.Source, &p.Restored, &p.CreatedBy, &at)
	p.Document, p.CreatedAt = json.RawMessage(document), fromMicros(at)
	return p, err
}
