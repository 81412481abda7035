package secrets

import (
	"crypto/subtle"
	"errors"
	"log/slog"
)

// MaxValue is how long a value may be, in bytes: what header lines of common servers take.
const MaxValue = 8 << 10

const redacted = "redacted"

// A Value is a credential. It can't be compared with ==, and prints as "redacted" everywhere. The bytes are behind a function:
// fmt prints what it finds in unexported fields, whatever methods say.
type Value struct {
	reveal func() []byte
}

// NewValue checks b and keeps a copy. A value is 1 byte to MaxValue of visible ASCII, spaces and tabs inside: what an HTTP
// field value can hold without changing its meaning (RFC 9110, section 5.5).
func NewValue(b []byte) (Value, error) {
	switch {
	case len(b) == 0:
		return Value{}, errors.New("the value is empty")
	case len(b) > MaxValue:
		return Value{}, errors.New("the value is over 8 KiB")
	case !fieldValue(b):
		return Value{}, errors.New("the value has bytes that no HTTP header can hold, such as a line end; a file often ends in one: remove it")
	}
	kept := append([]byte(nil), b...)
	return Value{func() []byte { return kept }}, nil
}

func fieldValue(b []byte) bool {
	if b[0] == ' ' || b[0] == '\t' || b[len(b)-1] == ' ' || b[len(b)-1] == '\t' {
		return false
	}
	for _, c := range b {
		if (c < ' ' && c != '\t') || c > '~' {
			return false
		}
	}
	return true
}

// Reveal returns the bytes. Each call is a place to look at in a review.
func (v Value) Reveal() []byte {
	if v.reveal == nil {
		return nil
	}
	return v.reveal()
}

// Equal compares in constant time.
func (v Value) Equal(other Value) bool {
	return subtle.ConstantTimeCompare(v.Reveal(), other.Reveal()) == 1
}

// IsZero reports whether there is no value.
func (v Value) IsZero() bool { return v.reveal == nil }

func (v Value) String() string               { return redacted }
func (v Value) GoString() string             { return redacted }
func (v Value) MarshalText() ([]byte, error) { return []byte(redacted), nil }
func (v Value) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
func (v Value) LogValue() slog.Value         { return slog.StringValue(redacted) }
