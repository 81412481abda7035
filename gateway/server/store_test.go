package server

import (
	"os"
	"path/filepath"
	"testing"

	"portreeve.dev/secrets/seal"
)

func TestStoreIsNotMadeTwice(t *testing.T) {
	dir := t.TempDir()
	first, keyring, err := openStore(t.Context(), dir, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	record := seal.Record{Kind: "secret", Org: "org_1", Name: "a", Version: 1}
	sealed, err := keyring.Seal(record, []byte("value"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(dir, keyringFile))
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	again, keyring, err := openStore(t.Context(), dir, nil, nil)
	if err != nil {
		t.Fatalf("opening what is there: %v", err)
	}
	defer again.Close()
	if value, err := keyring.Open(record, sealed); err != nil || string(value) != "value" {
		t.Errorf("what was sealed opens as %q, %v", value, err)
	}

	for name, files := range map[string]map[string][]byte{
		"a key without its store":     {keyringFile: key},
		"a store that is empty":       {keyringFile: key, storeFile: nil},
		"a store without its key":     {storeFile: []byte("SQLite format 3\x00")},
		"something of somebody else":  {"notes.txt": []byte("x")},
		"the rest of a store's files": {storeFile + "-wal": []byte("x"), keyringFile: key},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range files {
				if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // the first try must not make the second one succeed
				if s, _, err := openStore(t.Context(), dir, nil, nil); err == nil {
					s.Close()
					t.Error("a store was made in its place")
				}
			}
			for file, content := range files {
				if now, err := os.ReadFile(filepath.Join(dir, file)); err != nil || len(content) > 0 && string(now) != string(content) {
					t.Errorf("%s was changed: %v", file, err)
				}
			}
			if _, ok := files[keyringFile]; !ok {
				if _, err := os.Stat(filepath.Join(dir, keyringFile)); err == nil {
					t.Error("a master key was made")
				}
			}
		})
	}
}
