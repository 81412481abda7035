package store

import (
	"context"
	"errors"
)

// A PlatformKey is a key of the installation itself, of no org: the development authority of tunnels, the key of their cookies.
type PlatformKey struct {
	Name        string
	Certificate []byte // DER; nil where there is none
	Sealed      []byte // as seal.Record{Kind: "platform_key", Name: Name, Version: 1}
}

// PlatformKey returns the key of that name, or keeps the one that make returns if there is none: whoever comes first. It is set-up,
// not a change of anybody's, and so not in an org's audit log.
func (s *Store) PlatformKey(ctx context.Context, name string, make func() (PlatformKey, error)) (PlatformKey, error) {
	k, err := s.platformKey(ctx, name)
	if !errors.Is(err, ErrNotFound) {
		return k, err
	}
	if k, err = make(); err != nil {
		return k, err
	}
	_, err = s.write.ExecContext(ctx, `INSERT INTO platform_keys (name, certificate, sealed, created_at) VALUES ($1, $2, $3, $4) ON CONFLICT (name) DO NOTHING`,
		name, k.Certificate, k.Sealed, micros(s.now()))
	if err != nil {
		return k, wrap(err, "keeping the platform key %q", name)
	}
	return s.platformKey(ctx, name)
}

func (s *Store) platformKey(ctx context.Context, name string) (PlatformKey, error) {
	k := PlatformKey{Name: name}
	err := s.write.QueryRowContext(ctx, `SELECT certificate, sealed FROM platform_keys WHERE name = $1`, name).Scan(&k.Certificate, &k.Sealed)
	return k, wrap(err, "reading the platform key %q", name)
}
