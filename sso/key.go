package sso

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"strings"
	"uuid"
)

const (
	keyPrefix   = "prk_"
	idLen       = 32 // hex of the UUID
	secretBytes = 32
	secretLen   = 52 // base 32 of 32 bytes
	sumLen      = 7  // base 32 of a CRC-32
)

// ErrKeyForm says that a text can't be a key of ours. It never holds the text.
var ErrKeyForm = errors.New("not a key of the form prk_<id>_<secret>")

var alphabet = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// A Key is a key without its text: enough to find the row and to compare.
type Key struct {
	ID     string   // key_<uuidv7>
	Prefix string   // prk_<id>: what a list shows
	Hash   [32]byte // SHA-256 of the whole text
}

// NewKey makes a key. The secret is the text, to be shown once.
func NewKey() (Secret, Key, error) {
	id := uuid.NewV7()
	var random [secretBytes]byte
	rand.Read(random[:])
	body := keyPrefix + hex.EncodeToString(id[:]) + "_" + alphabet.EncodeToString(random[:])
	text := body + checksum(body)
	key, err := ParseKey(text)
	return NewSecret(text), key, err
}

// ParseKey takes a key's text apart and checks its sum. It does not say that the key is known.
func ParseKey(text string) (Key, error) {
	if len(text) != len(keyPrefix)+idLen+1+secretLen+sumLen || !strings.HasPrefix(text, keyPrefix) || text[len(keyPrefix)+idLen] != '_' {
		return Key{}, ErrKeyForm
	}
	body, sum := text[:len(text)-sumLen], text[len(text)-sumLen:]
	if checksum(body) != sum {
		return Key{}, ErrKeyForm
	}
	raw, err := hex.DecodeString(text[len(keyPrefix) : len(keyPrefix)+idLen])
	if err != nil || hex.EncodeToString(raw) != text[len(keyPrefix):len(keyPrefix)+idLen] {
		return Key{}, ErrKeyForm
	}
	return Key{
		ID:     "key_" + uuid.UUID(raw).String(),
		Prefix: text[:len(keyPrefix)+idLen],
		Hash:   sha256.Sum256([]byte(text)),
	}, nil
}

// Matches compares the key with a stored hash in constant time.
func (k Key) Matches(stored []byte) bool {
	return subtle.ConstantTimeCompare(k.Hash[:], stored) == 1
}

func checksum(body string) string {
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], crc32.ChecksumIEEE([]byte(body)))
	return alphabet.EncodeToString(sum[:])
}
