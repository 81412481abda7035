package sso

import (
	"fmt"
	"log/slog"
)

const redacted = "[redacted]"

// A Secret is text that must not be seen: a key before it is hashed. It can't be compared with ==, and every way of
// printing it says "[redacted]".
type Secret struct {
	// A function, because fmt prints an address for it even where it asks no method of ours, as for %p.
	text func() string
}

// NewSecret wraps text.
func NewSecret(text string) Secret { return Secret{text: func() string { return text }} }

// Reveal returns the text. Each call is a place to look at in a review.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return s.text()
}

// IsZero reports whether there is no text.
func (s Secret) IsZero() bool { return s.Reveal() == "" }

func (s Secret) String() string               { return redacted }
func (s Secret) GoString() string             { return redacted }
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }

// Format covers the verbs that look into structs, as %x and %d do.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, redacted) }
