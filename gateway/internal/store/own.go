package store

import (
	"context"
	"encoding/json"
	"errors"
)

// own reads what an org has one of: JSON in a column of a table, beside its version. Version 0: there is none.
func (r reads) own(ctx context.Context, table, column, org string) (text string, version int64, err error) {
	err = r.q.QueryRowContext(ctx, `SELECT `+column+`, version FROM `+table+` WHERE org_id = $1`, org).Scan(&text, &version)
	if err = wrap(err, "reading %s of %q", table, org); errors.Is(err, ErrNotFound) {
		return "", 0, nil
	}
	return text, version, err
}

// putOwn stores it if the stored version is still the expected one, or AnyVersion, and returns the new one. What is stored need not be
// readable: it can always be replaced.
func (tx *Tx) putOwn(ctx context.Context, table, column string, value any, expected int64) (version int64, err error) {
	_, version, err = tx.own(ctx, table, column, tx.Org())
	if err != nil {
		return 0, err
	}
	if expected != AnyVersion && expected != version {
		return 0, wrap(ErrVersion, "storing %s of %q", table, tx.Org())
	}
	text, err := json.Marshal(value)
	if err != nil {
		return 0, err
	}
	_, err = tx.q.ExecContext(ctx, `INSERT INTO `+table+` (org_id, `+column+`, version, updated_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (org_id) DO UPDATE SET `+column+` = excluded.`+column+`, version = excluded.version, updated_at = excluded.updated_at`,
		tx.Org(), string(text), version+1, micros(tx.now))
	return version + 1, wrap(err, "storing %s of %q", table, tx.Org())
}
