package hostname

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/net/idna"
)

var (
	// ErrInvalid: the text is no host name in any reading.
	ErrInvalid = errors.New("not a host name")
	// ErrAddress: the text is an address, in one of the spellings that some resolver understands.
	ErrAddress = errors.New("an address, not a host name")
)

// MaxLength is the longest name, in its normal form.
const MaxLength = 253

// lookup maps as browsers do before a lookup (UTS 46). What it lets through is checked again as ASCII.
var lookup = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false), idna.StrictDomainName(false))

// Normalize returns the one form in which host is judged, compared, looked up and recorded:
// lower case, A-labels, without the dot of the root.
func Normalize(host string) (string, error) {
	if len(host) > 4*MaxLength {
		return "", fmt.Errorf("%d bytes: %w", len(host), ErrInvalid)
	}
	if s := strings.TrimSuffix(host, "."); Normal(s) {
		if !strings.Contains(s, "xn--") {
			return s, nil
		}
	}
	return normalize(host)
}

func normalize(host string) (string, error) {
	if err := barred(host); err != nil {
		return "", err
	}
	name := host
	if !plain(host) {
		mapped, err := lookup.ToASCII(host)
		if err != nil {
			return "", fmt.Errorf("%q: %w", host, ErrInvalid)
		}
		name = mapped
	}
	name = strings.TrimSuffix(lower(name), ".")
	if err := barred(name); err != nil {
		return "", err
	}
	if endsInNumber(name) {
		return "", fmt.Errorf("%q: %w", host, ErrAddress)
	}
	if !Normal(name) {
		return "", fmt.Errorf("%q: %w", host, ErrInvalid)
	}
	return name, nil
}

// Normal reports whether host has the shape that Normalize returns. It does not look inside A-labels.
func Normal(host string) bool {
	if host == "" || len(host) > MaxLength || endsInNumber(host) {
		return false
	}
	label := 0 // length of the label so far
	for i := 0; i < len(host); i++ {
		c := host[i]
		switch {
		case c == '.':
			if label == 0 || host[i-1] == '-' {
				return false
			}
			label = 0
			continue
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '_':
		case c == '-':
			if label == 0 {
				return false
			}
		default:
			return false
		}
		if label++; label > 63 {
			return false
		}
	}
	return label > 0 && host[len(host)-1] != '-'
}

// barred refuses what makes the text something else than a bare host, and says which.
func barred(host string) error {
	for i := 0; i < len(host); i++ {
		c := host[i]
		switch {
		case c == ':' || c == '[' || c == ']':
			if strings.Count(host, ":") > 1 || c != ':' {
				return fmt.Errorf("%q: %w", host, ErrAddress)
			}
			return fmt.Errorf("%q has a port: %w", host, ErrInvalid)
		case c == '@':
			return fmt.Errorf("%q has user information: %w", host, ErrInvalid)
		case c <= ' ' || c == 0x7f || strings.IndexByte(`%/\?#*"<>^|{}`+"`", c) >= 0:
			return fmt.Errorf("%q has the byte %q: %w", host, c, ErrInvalid)
		}
	}
	return nil
}

// plain reports whether the IDNA tables have nothing to say: ASCII without an A-label.
func plain(host string) bool {
	for i := 0; i < len(host); i++ {
		if host[i] >= 0x80 {
			return false
		}
	}
	return !strings.Contains(lower(host), "xn--")
}

// endsInNumber reports whether the last label is a number, decimal or hexadecimal. No such top-level domain exists,
// and every resolver that accepts odd spellings of IPv4 addresses (2130706433, 0x7f.1, 0177.0.0.1, 127.1) sees one here.
func endsInNumber(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	if last == "" {
		return false
	}
	digits, hex := true, len(last) >= 2 && last[0] == '0' && (last[1] == 'x' || last[1] == 'X')
	for i := 0; i < len(last); i++ {
		c := last[i]
		digits = digits && '0' <= c && c <= '9'
		if i >= 2 {
			hex = hex && ('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F')
		}
	}
	return digits || hex
}

// lower is ASCII only, so that no letter outside of it turns into one inside of it here.
func lower(s string) string {
	for i := 0; i < len(s); i++ {
		if c := s[i]; 'A' <= c && c <= 'Z' {
			b := []byte(s)
			for j := i; j < len(b); j++ {
				if c := b[j]; 'A' <= c && c <= 'Z' {
					b[j] = c + 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}
