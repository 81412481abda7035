package seal

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A Keyring holds master keys of 32 bytes by version; the newest one seals. It says "redacted" wherever it is printed.
type Keyring struct {
	keys   map[uint32][]byte
	newest uint32
}

func (k *Keyring) String() string               { return "redacted" }
func (k *Keyring) GoString() string             { return "redacted" }
func (k *Keyring) LogValue() slog.Value         { return slog.StringValue("redacted") }
func (k *Keyring) MarshalText() ([]byte, error) { return []byte("redacted"), nil }
func (k *Keyring) MarshalJSON() ([]byte, error) { return []byte(`"redacted"`), nil }

// Create makes a keyring with one new key and writes it to path, mode 0600. It fails where a file is already.
// Call it only for a store that is empty: a new key opens nothing that an old one sealed.
func Create(path string) (*Keyring, error) {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("making a master key: %w", err)
	}
	k := &Keyring{keys: map[uint32][]byte{1: key}, newest: 1}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making a master key: %w", err)
	}
	_, err = f.Write(k.encode())
	if err := errors.Join(err, f.Sync(), f.Close(), syncDir(filepath.Dir(path))); err != nil {
		return nil, fmt.Errorf("writing the master key: %w", err)
	}
	return k, nil
}

// syncDir makes a new name in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Load reads the keyring at path. It refuses a file that others than its owner can read.
func Load(path string) (*Keyring, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("master key %s is missing: restore it from its backup; without it nothing sealed can be opened: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the master key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("master key %s has mode %o: others can read it; chmod 600 it, and rotate the key if they did", path, info.Mode().Perm())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the master key: %w", err)
	}
	return decode(data)
}

// A keyring file has a line "VERSION KEY" for each key, the key in base64.
func (k *Keyring) encode() []byte {
	var b bytes.Buffer
	for version := uint32(1); version <= k.newest; version++ {
		if key, ok := k.keys[version]; ok {
			fmt.Fprintf(&b, "%d %s\n", version, base64.StdEncoding.EncodeToString(key))
		}
	}
	return b.Bytes()
}

func decode(data []byte) (*Keyring, error) {
	k := &Keyring{keys: make(map[uint32][]byte)}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		number, text, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		if number == "" {
			continue
		}
		version, err := strconv.ParseUint(number, 10, 32)
		key, kerr := base64.StdEncoding.DecodeString(text)
		if err != nil || kerr != nil || len(key) != 32 || version == 0 {
			return nil, errors.New("reading the master key: a line is not VERSION and 32 bytes in base64") // never the line itself
		}
		k.keys[uint32(version)] = key
		k.newest = max(k.newest, uint32(version))
	}
	if k.newest == 0 {
		return nil, errors.New("reading the master key: the file is empty")
	}
	return k, nil
}
