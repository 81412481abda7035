package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/secrets/seal"
)

// What control keeps in its directory.
const (
	storeFile   = "store.db"
	keyringFile = "master.key"
)

// openStore opens the store with its master key, or makes both where the directory is empty: a store without its key, or a key
// without its store, is a loss that nobody must paper over.
func openStore(ctx context.Context, dir string, now, earliest func() time.Time) (*store.Store, *seal.Keyring, error) {
	there, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("opening store: %w", err)
	}
	fresh := len(there) == 0
	keyring, err := openKeyring(filepath.Join(dir, keyringFile), fresh)
	if err != nil {
		return nil, nil, err
	}
	s, err := store.Open(ctx, filepath.Join(dir, storeFile), store.Options{Create: fresh, Now: now, Earliest: earliest})
	if errors.Is(err, store.ErrNoStore) {
		err = fmt.Errorf("the store %s is missing: restore it from its backup, or empty %s to begin anew", storeFile, dir)
	}
	return s, keyring, err
}

func openKeyring(path string, fresh bool) (*seal.Keyring, error) {
	if fresh {
		return seal.Create(path)
	}
	return seal.Load(path)
}
