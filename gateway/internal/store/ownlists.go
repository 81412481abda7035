package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// OwnBytes is how much the own lists of an org's live sandboxes may be in all: they all go to each edge with every change.
const OwnBytes = 4 << 20

// SetOwnList replaces a live sandbox's own list; nil takes it away. expected is the version that the caller saw (0: none), or
// AnyVersion; ErrVersion if another is stored, ErrLimit if the org has more than OwnBytes with it. Versions go on counting
// after a list was taken away. The sandbox's own Version stays: commands under way don't write what is changed here.
func (tx *Tx) SetOwnList(ctx context.Context, id string, list json.RawMessage, expected int64) (Sandbox, error) {
	b, err := tx.Sandbox(ctx, tx.Org(), id)
	if err != nil {
		return b, err
	}
	current := b.OwnVersion
	if b.Own == nil {
		current = 0
	}
	if expected != AnyVersion && expected != current {
		return b, fmt.Errorf("storing the own list of %q: %w", id, ErrVersion)
	}
	res, err := tx.q.ExecContext(ctx, `UPDATE sandboxes SET own = $3, own_version = $4, updated_at = $5
		WHERE org_id = $1 AND id = $2 AND own_version = $6 AND ended_at IS NULL`,
		tx.Org(), id, nullable(list), b.OwnVersion+1, micros(tx.now), b.OwnVersion)
	if err := one(res, err, ErrVersion); err != nil {
		return b, wrap(err, "storing the own list of %q", id)
	}
	b.Own, b.OwnVersion, b.UpdatedAt = list, b.OwnVersion+1, tx.now
	return b, tx.ownBounded(ctx, id)
}

// ownBounded refuses what is more than the org's share.
func (tx *Tx) ownBounded(ctx context.Context, id string) error {
	var all int64
	err := tx.q.QueryRowContext(ctx, `SELECT COALESCE(SUM(OCTET_LENGTH(own)), 0) FROM sandboxes WHERE org_id = $1 AND ended_at IS NULL`, tx.Org()).Scan(&all)
	if err == nil && all > OwnBytes {
		err = ErrLimit
	}
	return wrap(err, "storing the own list of %q: the org's are %d bytes", id, all)
}

// SetSandboxPolicy puts a live sandbox under another named policy, or under the ceiling alone. ErrVersion if it isn't under
// the one that the caller saw.
func (tx *Tx) SetSandboxPolicy(ctx context.Context, id, seen, policy string) (Sandbox, error) {
	res, err := tx.q.ExecContext(ctx, `UPDATE sandboxes SET policy = $4, updated_at = $5 WHERE org_id = $1 AND id = $2 AND policy = $3 AND ended_at IS NULL`,
		tx.Org(), id, seen, policy, micros(tx.now))
	if err := one(res, err, ErrVersion); err != nil {
		if _, missing := tx.Sandbox(ctx, tx.Org(), id); errors.Is(missing, ErrNotFound) {
			err = ErrNotFound
		}
		return Sandbox{}, wrap(err, "setting the policy of %q", id)
	}
	return tx.Sandbox(ctx, tx.Org(), id)
}

// nullable is a document that may be absent.
func nullable(document json.RawMessage) any {
	if document == nil {
		return nil
	}
	return string(document)
}
