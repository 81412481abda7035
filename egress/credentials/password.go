package credentials

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/netip"
	"time"
)

// A Door is one way in.
type Door string

const (
	HTTP  Door = "http"  // an HTTP proxy over TLS
	SOCKS Door = "socks" // SOCKS5 over TLS
)

// Lifetime is how long a password is good for.
const Lifetime = 15 * time.Minute

// A Key signs the passwords of one org.
type Key struct {
	Version uint32
	Secret  []byte // at least 32 bytes
}

// Claims is what a password says.
type Claims struct {
	Sandbox     string
	Incarnation uint64
	Door        Door
	Source      netip.Addr // of the connections that may use it
	Expires     time.Time
}

// The form of a password: base64url of
//
//	form (1), key version (4), end in seconds since 1970 (8), door (1), source (16), random (8), MAC (32)
//
// Its first byte is in the MAC, so that a later form can't be taken for this one.
const (
	form        = 1
	payloadSize = 1 + 4 + 8 + 1 + 16 + 8
	size        = payloadSize + sha256.Size
	domain      = "portreeve door password v1"
)

var encoding = base64.RawURLEncoding.Strict()

var doors = map[Door]byte{HTTP: 1, SOCKS: 2}

// Mint makes a password.
func Mint(k Key, c Claims) (string, error) {
	door := doors[c.Door]
	if len(k.Secret) < 32 || c.Sandbox == "" || door == 0 || !c.Source.IsValid() || c.Expires.IsZero() {
		return "", errors.New("making a password: key, sandbox, door, source and end are all needed")
	}
	b := make([]byte, payloadSize, size)
	b[0] = form
	binary.BigEndian.PutUint32(b[1:], k.Version)
	binary.BigEndian.PutUint64(b[5:], uint64(c.Expires.Unix()))
	b[13] = door
	source := c.Source.Unmap().As16()
	copy(b[14:30], source[:])
	if _, err := rand.Read(b[30:38]); err != nil {
		return "", err
	}
	return encoding.EncodeToString(append(b, mac(k, b, c.Sandbox, c.Incarnation)...)), nil
}

func mac(k Key, payload []byte, sandbox string, incarnation uint64) []byte {
	m := hmac.New(sha256.New, k.Secret)
	m.Write([]byte(domain))
	m.Write(payload) // of one length, so nothing runs into what follows
	m.Write(binary.BigEndian.AppendUint64(nil, incarnation))
	m.Write([]byte(sandbox))
	return m.Sum(nil)
}

// decode splits a password; ok is false when it can't be one.
func decode(password string) (b [size]byte, version uint32, ok bool) {
	if encoding.DecodedLen(len(password)) != size {
		return b, 0, false
	}
	n, err := encoding.Decode(b[:], []byte(password))
	if err != nil || n != size || b[0] != form {
		return b, 0, false
	}
	return b, binary.BigEndian.Uint32(b[1:]), true
}

func door(b *[size]byte) byte         { return b[13] }
func source(b *[size]byte) netip.Addr { return netip.AddrFrom16([16]byte(b[14:30])).Unmap() }
func expires(b *[size]byte) time.Time { return time.Unix(int64(binary.BigEndian.Uint64(b[5:])), 0) }
func signature(b *[size]byte) []byte  { return b[payloadSize:] }
func payloadOf(b *[size]byte) []byte  { return b[:payloadSize] }
