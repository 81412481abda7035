package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"portreeve.dev/nodes/images"
)

// busybox is where Debian's and Ubuntu's package busybox-static puts it.
const busybox = "/bin/busybox"

func writeTiny(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(images.WriteTiny(context.Background(), f, busybox), f.Close())
}

// buildBase builds base with Debian's packages more beside its own.
func buildBase(dir string, more []string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	store, err := images.Open(images.Config{Dir: dir, BasePackages: more, Log: slog.New(slog.NewJSONHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	if err := store.StartBase(context.Background()); err != nil {
		return err
	}
	store.Wait()
	_, err = store.Resolve("base")
	return err
}
