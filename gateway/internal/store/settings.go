package store

import (
	"context"
	"fmt"
)

// Settings are what an org chose once for all its sandboxes.
type Settings struct {
	DefaultPolicy string // given to a sandbox that names none; "" is the ceiling alone
	Version       int64
}

// Settings returns the org's settings.
func (r reads) Settings(ctx context.Context, org string) (Settings, error) {
	var s Settings
	err := r.q.QueryRowContext(ctx, `SELECT default_policy, version FROM settings WHERE org_id = $1`, org).Scan(&s.DefaultPolicy, &s.Version)
	return s, wrap(err, "reading settings of %q", org)
}

// PutSettings stores settings if the stored version is still the expected one, or AnyVersion.
func (tx *Tx) PutSettings(ctx context.Context, s Settings, expected int64) (Settings, error) {
	current, err := tx.Settings(ctx, tx.Org())
	if err != nil {
		return Settings{}, err
	}
	if expected != AnyVersion && expected != current.Version {
		return Settings{}, fmt.Errorf("storing settings of %q: %w", tx.Org(), ErrVersion)
	}
	s.Version = current.Version + 1
	res, err := tx.q.ExecContext(ctx, `UPDATE settings SET default_policy = $2, version = $3 WHERE org_id = $1 AND version = $4`,
		tx.Org(), s.DefaultPolicy, s.Version, current.Version)
	return s, wrap(one(res, err, ErrVersion), "storing settings of %q", tx.Org())
}
