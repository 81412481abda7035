package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// Sealed bytes are: magic (4), master key version (4, big endian), salt (32), nonce (12), ciphertext and tag.
const (
	magic    = "prs1"
	saltSize = 32
	nonce    = 12
	header   = len(magic) + 4 + saltSize + nonce
)

// Errors of Open.
var (
	ErrNoKey  = errors.New("the master key of this version is not in the keyring")
	ErrSealed = errors.New("sealed bytes do not open as this record")
	ErrFormat = errors.New("bytes are not sealed ones")
)

// A Record is what sealed bytes are bound to.
type Record struct {
	Kind    string // secret, ca_key, ...
	Org     string
	Name    string
	Version int64
}

// bytes encodes a record so that no two records have the same encoding.
func (r Record) bytes() []byte {
	var b []byte
	for _, s := range []string{r.Kind, r.Org, r.Name} {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	return binary.BigEndian.AppendUint64(b, uint64(r.Version))
}

// Seal encrypts plain as r under the newest master key.
func (k *Keyring) Seal(r Record, plain []byte) ([]byte, error) {
	out := make([]byte, header, header+len(plain)+16)
	copy(out, magic)
	binary.BigEndian.PutUint32(out[len(magic):], k.newest)
	if _, err := rand.Read(out[len(magic)+4:]); err != nil { // salt and nonce
		return nil, fmt.Errorf("sealing %s %q: %w", r.Kind, r.Name, err)
	}
	aead, err := k.aead(k.newest, out)
	if err != nil {
		return nil, fmt.Errorf("sealing %s %q: %w", r.Kind, r.Name, err)
	}
	return aead.Seal(out, out[header-nonce:header], plain, r.bytes()), nil
}

// Open decrypts what was sealed as r.
func (k *Keyring) Open(r Record, sealed []byte) ([]byte, error) {
	if len(sealed) < header || string(sealed[:len(magic)]) != magic {
		return nil, fmt.Errorf("opening %s %q: %w", r.Kind, r.Name, ErrFormat)
	}
	aead, err := k.aead(binary.BigEndian.Uint32(sealed[len(magic):]), sealed)
	if err != nil {
		return nil, fmt.Errorf("opening %s %q: %w", r.Kind, r.Name, err)
	}
	plain, err := aead.Open(nil, sealed[header-nonce:header], sealed[header:], r.bytes())
	if err != nil {
		return nil, fmt.Errorf("opening %s %q: %w", r.Kind, r.Name, ErrSealed)
	}
	return plain, nil
}

// aead derives the record's own key from the master key of that version and the salt in head.
func (k *Keyring) aead(version uint32, head []byte) (cipher.AEAD, error) {
	master, ok := k.keys[version]
	if !ok {
		return nil, fmt.Errorf("version %d: %w", version, ErrNoKey)
	}
	salt := head[len(magic)+4 : len(magic)+4+saltSize]
	key, err := hkdf.Key(sha256.New, master, salt, "portreeve record", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
