package seal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func ring(t *testing.T) (*Keyring, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "master.key")
	k, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	return k, path
}

var record = Record{Kind: "secret", Org: "org_a", Name: "api", Version: 3}

func sealed(t *testing.T, k *Keyring) []byte {
	t.Helper()
	b, err := k.Seal(record, []byte("the value"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSealedBytesAreBound(t *testing.T) {
	k, _ := ring(t)
	b := sealed(t, k)
	if plain, err := k.Open(record, b); err != nil || string(plain) != "the value" {
		t.Fatalf("as itself: %q, %v", plain, err)
	}
	for name, r := range map[string]Record{
		"another kind":    {"ca_key", "org_a", "api", 3},
		"another org":     {"secret", "org_b", "api", 3},
		"another name":    {"secret", "org_a", "apj", 3},
		"another version": {"secret", "org_a", "api", 4},
		"shifted fields":  {"secretorg_a", "", "api", 3},
	} {
		if _, err := k.Open(r, b); !errors.Is(err, ErrSealed) {
			t.Errorf("as %s: got %v, want ErrSealed", name, err)
		}
	}
}

func TestChangedBytesFail(t *testing.T) {
	k, _ := ring(t)
	b := sealed(t, k)
	for i := range b {
		changed := bytes.Clone(b)
		changed[i] ^= 1
		if _, err := k.Open(record, changed); err == nil {
			t.Fatalf("byte %d changed, and it opened", i)
		}
	}
	for n := range b {
		if _, err := k.Open(record, b[:n]); err == nil {
			t.Fatalf("cut to %d bytes, it opened", n)
		}
	}
}

func TestTheSameValueNeverLooksTheSame(t *testing.T) {
	k, _ := ring(t)
	if bytes.Equal(sealed(t, k), sealed(t, k)) {
		t.Fatal("sealing twice gave the same bytes")
	}
}

func TestKeyringIsMadeOnlyOnPurpose(t *testing.T) {
	k, path := ring(t)
	if _, err := Create(path); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("a keyring was made over another: %v", err)
	}
	back, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := back.Open(record, sealed(t, k)); err != nil || string(plain) != "the value" {
		t.Fatalf("through the file: %q, %v", plain, err)
	}
	if _, err := Load(path + ".gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a missing keyring: got %v", err)
	}
	other, _ := ring(t)
	if _, err := other.Open(record, sealed(t, k)); !errors.Is(err, ErrSealed) {
		t.Fatalf("under another master key: got %v", err)
	}
}

func TestReadableKeyringIsRefused(t *testing.T) {
	_, path := ring(t)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Fatalf("got %v", err)
	}
}

func TestKeyringPrintsNothing(t *testing.T) {
	k, path := ring(t)
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, key, _ := strings.Cut(strings.TrimSpace(string(file)), " ")
	encoded, _ := json.Marshal(k)
	for _, s := range []string{fmt.Sprint(k), fmt.Sprintf("%+v", k), fmt.Sprintf("%#v", k), string(encoded)} {
		if strings.Contains(s, key) || strings.Contains(s, "keys") || !strings.Contains(s, "redacted") {
			t.Errorf("printed as %q", s)
		}
	}
	if err := os.WriteFile(path, []byte("1 "+key[:20]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || strings.Contains(err.Error(), key[:20]) {
		t.Errorf("a broken file: %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	k, err := decode([]byte("1 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := k.Open(record, b); err == nil {
			t.Fatal("bytes that nobody sealed opened")
		}
	})
}
