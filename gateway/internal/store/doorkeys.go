package store

import (
	"context"
	"time"
)

// A DoorKey signs the passwords with which attached sandboxes of an org come in. It is kept only as sealed bytes.
type DoorKey struct {
	Org       string
	Version   int64
	Sealed    []byte // as seal.Record{Kind: "door_key", Org: Org, Version: Version}
	CreatedAt time.Time
}

// DoorKeys returns the keys of an org that may still have signed a password, the newest first.
func (r reads) DoorKeys(ctx context.Context, org string) ([]DoorKey, error) {
	all, err := list(ctx, r.q, scanDoorKey, `SELECT org_id, version, sealed, created_at FROM door_keys WHERE org_id = $1 ORDER BY version DESC`, org)
	return all, wrap(err, "reading the door keys of %q", org)
}

func scanDoorKey(row rowScanner) (k DoorKey, err error) {
	var created int64
	err = row.Scan(&k.Org, &k.Version, &k.Sealed, &created)
	k.CreatedAt = fromMicros(created)
	return k, err
}

// RotateDoorKey keeps a new key of the org, and of those before it the last. ErrConflict when its version is taken.
func (tx *Tx) RotateDoorKey(ctx context.Context, k DoorKey) error {
	_, err := tx.q.ExecContext(ctx, `INSERT INTO door_keys (org_id, version, sealed, created_at) VALUES ($1, $2, $3, $4)`,
		tx.Org(), k.Version, k.Sealed, micros(tx.now))
	if err != nil {
		return wrap(err, "keeping a door key of %q", tx.Org())
	}
	_, err = tx.q.ExecContext(ctx, `DELETE FROM door_keys WHERE org_id = $1 AND version < $2`, tx.Org(), k.Version-1)
	tx.Bump()
	return wrap(err, "dropping old door keys of %q", tx.Org())
}
