package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"portreeve.dev/secrets"
)

// A Secret is a row: its value only as sealed bytes.
type Secret struct {
	ID        string
	Org       string
	Name      string
	Version   int64 // of the value
	Scope     string
	Sealed    []byte // as seal.Record{Kind: "secret", Org, Name: ID, Version}
	Grants    []secrets.Grant
	CreatedBy string
	CreatedAt time.Time
	UpdatedAt time.Time
}

// How many secrets an org may have, and how many bytes with their grants: they all go to each edge with every change.
const (
	SecretCount = 500
	SecretBytes = 2 << 20
)

// secretsBounded refuses what is more than the org's share.
func (tx *Tx) secretsBounded(ctx context.Context, name string) error {
	var all, count int64
	err := tx.q.QueryRowContext(ctx, `SELECT COALESCE(SUM(OCTET_LENGTH(sealed) + OCTET_LENGTH(grants)), 0), count(*) FROM secrets WHERE org_id = $1`, tx.Org()).
		Scan(&all, &count)
	if err == nil && (all > SecretBytes || count > SecretCount) {
		err = ErrLimit
	}
	return wrap(err, "storing secret %q: the org's %d secrets are %d bytes", name, count, all)
}

// CreateSecret keeps a new secret; ErrConflict when the name is taken, ErrLimit when the org has more than SecretCount or
// SecretBytes with it; that also holds for SetSecretValue and SetGrants. The caller chose its id, since the sealed bytes are
// bound to it.
func (tx *Tx) CreateSecret(ctx context.Context, s Secret) (Secret, error) {
	s.Org, s.Version, s.CreatedBy, s.CreatedAt, s.UpdatedAt = tx.Org(), 1, tx.by.Principal.ID, tx.now, tx.now
	grants, err := encodeGrants(s.Grants)
	if err != nil {
		return Secret{}, err
	}
	_, err = tx.q.ExecContext(ctx, `INSERT INTO secrets (org_id, name, id, version, scope, sealed, grants, created_by, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		s.Org, s.Name, s.ID, s.Version, s.Scope, s.Sealed, grants, s.CreatedBy, micros(s.CreatedAt), micros(s.UpdatedAt))
	if err != nil {
		return s, wrap(err, "creating secret %q", s.Name)
	}
	return s, tx.secretsBounded(ctx, s.Name)
}

// SetSecretValue keeps the next value, which is sealed for version. ErrVersion when another version came between.
func (tx *Tx) SetSecretValue(ctx context.Context, name string, version int64, sealed []byte) error {
	res, err := tx.q.ExecContext(ctx, `UPDATE secrets SET version = $3, sealed = $4, updated_at = $5 WHERE org_id = $1 AND name = $2 AND version = $3 - 1`,
		tx.Org(), name, version, sealed, micros(tx.now))
	if err := one(res, err, ErrVersion); err != nil {
		return wrap(err, "storing secret %q", name)
	}
	return tx.secretsBounded(ctx, name)
}

// SetGrants replaces the grants of a secret; ErrNotFound where there is none.
func (tx *Tx) SetGrants(ctx context.Context, name string, grants []secrets.Grant) error {
	encoded, err := encodeGrants(grants)
	if err != nil {
		return err
	}
	res, err := tx.q.ExecContext(ctx, `UPDATE secrets SET grants = $3, updated_at = $4 WHERE org_id = $1 AND name = $2`,
		tx.Org(), name, encoded, micros(tx.now))
	if err := one(res, err, ErrNotFound); err != nil {
		return wrap(err, "storing grants of %q", name)
	}
	return tx.secretsBounded(ctx, name)
}

// DeleteSecret takes a secret away with its grants.
func (tx *Tx) DeleteSecret(ctx context.Context, name string) error {
	res, err := tx.q.ExecContext(ctx, `DELETE FROM secrets WHERE org_id = $1 AND name = $2`, tx.Org(), name)
	return wrap(one(res, err, ErrNotFound), "deleting secret %q", name)
}

// Secret returns one secret of the org.
func (r reads) Secret(ctx context.Context, org, name string) (Secret, error) {
	s, err := scanSecret(r.q.QueryRowContext(ctx, secretColumns+` WHERE org_id = $1 AND name = $2`, org, name))
	return s, wrap(err, "reading secret %q", name)
}

// Secrets lists the secrets of the org by name.
func (r reads) Secrets(ctx context.Context, org string) ([]Secret, error) {
	all, err := list(ctx, r.q, scanSecret, secretColumns+` WHERE org_id = $1 ORDER BY name`, org)
	return all, wrap(err, "listing secrets of %q", org)
}

const secretColumns = `SELECT id, org_id, name, version, scope, sealed, grants, created_by, created_at, updated_at FROM secrets`

func scanSecret(row rowScanner) (Secret, error) {
	var s Secret
	var grants string
	var created, updated int64
	if err := row.Scan(&s.ID, &s.Org, &s.Name, &s.Version, &s.Scope, &s.Sealed, &grants, &s.CreatedBy, &created, &updated); err != nil {
		return s, err
	}
	s.CreatedAt, s.UpdatedAt = fromMicros(created), fromMicros(updated)
	if err := json.Unmarshal([]byte(grants), &s.Grants); err != nil {
		return s, fmt.Errorf("grants of secret %q: %w", s.Name, err)
	}
	return s, nil
}

func encodeGrants(grants []secrets.Grant) (string, error) {
	if grants == nil {
		grants = []secrets.Grant{}
	}
	b, err := json.Marshal(grants)
	return string(b), err
}
