package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"portreeve.dev/sso"
)

// A Key is an API key as it is kept: its hash, never its text.
type Key struct {
	ID        string
	Org       string
	Name      string
	Prefix    string
	Hash      []byte
	Scopes    []sso.Scope
	Policies  []string
	CreatedAt time.Time
	ExpiresAt time.Time // zero: never
	LastUsed  time.Time // zero: not yet
	RevokedAt time.Time // zero: not revoked
}

// Live reports whether the key may be used at that time.
func (k Key) Live(now time.Time) bool {
	return k.RevokedAt.IsZero() && (k.ExpiresAt.IsZero() || now.Before(k.ExpiresAt))
}

// CreateKey keeps a key of the org.
func (tx *Tx) CreateKey(ctx context.Context, k Key) (Key, error) {
	k.Org, k.CreatedAt = tx.Org(), tx.now
	scopes, err := json.Marshal(k.Scopes)
	if err != nil {
		return Key{}, err
	}
	if k.Policies == nil {
		k.Policies = []string{}
	}
	policies, err := json.Marshal(k.Policies)
	if err != nil {
		return Key{}, err
	}
	_, err = tx.q.ExecContext(ctx, `INSERT INTO api_keys (id, org_id, name, prefix, hash, scopes, policies, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		k.ID, k.Org, k.Name, k.Prefix, k.Hash, string(scopes), string(policies), micros(k.CreatedAt), optional(k.ExpiresAt))
	return k, wrap(err, "creating key %q", k.ID)
}

// RevokeKey ends a key; ErrNotFound when there is no live one.
func (tx *Tx) RevokeKey(ctx context.Context, id string) error {
	res, err := tx.q.ExecContext(ctx, `UPDATE api_keys SET revoked_at = $3 WHERE org_id = $1 AND id = $2 AND revoked_at IS NULL`,
		tx.Org(), id, micros(tx.now))
	return wrap(one(res, err, ErrNotFound), "revoking key %q", id)
}

// Keys lists the org's keys that are not revoked, oldest first.
func (r reads) Keys(ctx context.Context, org string) ([]Key, error) {
	all, err := list(ctx, r.q, scanKey, keyColumns+` WHERE org_id = $1 AND revoked_at IS NULL ORDER BY created_at, id`, org)
	return all, wrap(err, "listing keys of %q", org)
}

// Key returns one key of the org.
func (r reads) Key(ctx context.Context, org, id string) (Key, error) {
	k, err := scanKey(r.q.QueryRowContext(ctx, keyColumns+` WHERE org_id = $1 AND id = $2`, org, id))
	return k, wrap(err, "reading key %q", id)
}

// KeyForLogin returns a key by its id alone: who presents it tells the org by it. The caller compares the hash.
func (s *Store) KeyForLogin(ctx context.Context, id string) (Key, error) {
	k, err := scanKey(s.q.QueryRowContext(ctx, keyColumns+` WHERE id = $1`, id))
	return k, wrap(err, "reading key %q", id)
}

// TouchKey notes that a key was used. It is bookkeeping, not a change, and may be lost.
func (s *Store) TouchKey(ctx context.Context, id string, at time.Time) error {
	_, err := s.write.ExecContext(ctx, `UPDATE api_keys SET last_used_at = $2 WHERE id = $1`, id, micros(at))
	return wrap(err, "touching key %q", id)
}

const keyColumns = `SELECT id, org_id, name, prefix, hash, scopes, policies, created_at, expires_at, last_used_at, revoked_at FROM api_keys`

func scanKey(row rowScanner) (Key, error) {
	var k Key
	var scopes, policies string
	var created int64
	var expires, used, revoked sql.NullInt64
	if err := row.Scan(&k.ID, &k.Org, &k.Name, &k.Prefix, &k.Hash, &scopes, &policies, &created, &expires, &used, &revoked); err != nil {
		return k, err
	}
	k.CreatedAt, k.ExpiresAt, k.LastUsed, k.RevokedAt = fromMicros(created), fromOptional(expires), fromOptional(used), fromOptional(revoked)
	if err := json.Unmarshal([]byte(scopes), &k.Scopes); err != nil {
		return k, fmt.Errorf("scopes of key %q: %w", k.ID, err)
	}
	if err := json.Unmarshal([]byte(policies), &k.Policies); err != nil {
		return k, fmt.Errorf("policies of key %q: %w", k.ID, err)
	}
	return k, nil
}
