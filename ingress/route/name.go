package route

import (
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"portreeve.dev/policies/hostname"
)

// SlugLength is the length of a slug: 16 characters of base 32, 80 bits that nobody guesses.
const SlugLength = 16

// ErrNotATunnel: the name is not one that a Zone prints.
var ErrNotATunnel = errors.New("not the name of a tunnel")

var base32Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewSlug draws the slug of a new tunnel. A slug is never used twice.
func NewSlug() string {
	var b [SlugLength * 5 / 8]byte
	rand.Read(b[:])
	return base32Lower.EncodeToString(b[:])
}

// A Zone is the domain under which tunnels have their names. The zero Zone contains no name.
type Zone struct{ domain string }

// NewZone returns the Zone of a domain, which has to leave room for the longest name under it.
func NewZone(domain string) (Zone, error) {
	normal, err := hostname.Normalize(domain)
	if err != nil {
		return Zone{}, fmt.Errorf("tunnel domain: %w", err)
	}
	if longest := SlugLength + len("-65535."); len(normal)+longest > hostname.MaxLength {
		return Zone{}, fmt.Errorf("tunnel domain %q: longer than %d characters", normal, hostname.MaxLength-longest)
	}
	return Zone{normal}, nil
}

// Domain is the domain in normal form.
func (z Zone) Domain() string { return z.domain }

// Contains reports whether a host in normal form is the domain or lies under it.
func (z Zone) Contains(host string) bool {
	return z.domain != "" && (host == z.domain || z.label(host) != "")
}

// label is what stands before the domain.
func (z Zone) label(host string) string {
	cut := len(host) - len(z.domain) - 1
	if z.domain == "" || cut < 1 || host[cut] != '.' || host[cut+1:] != z.domain {
		return ""
	}
	return host[:cut]
}

// Host prints the name of a tunnel.
func (z Zone) Host(slug string, port uint16) (string, error) {
	if z.domain == "" || !validSlug(slug) || port == 0 {
		return "", fmt.Errorf("slug %q, port %d: %w", slug, port, ErrNotATunnel)
	}
	return slug + "-" + strconv.Itoa(int(port)) + "." + z.domain, nil
}

// Parse reads the name of a tunnel, in normal form.
func (z Zone) Parse(host string) (slug string, port uint16, err error) {
	slug, digits, ok := strings.Cut(z.label(host), "-")
	n, good := parsePort(digits)
	if !ok || !good || !validSlug(slug) {
		return "", 0, fmt.Errorf("%q: %w", host, ErrNotATunnel)
	}
	return slug, n, nil
}

func validSlug(s string) bool {
	if len(s) != SlugLength {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// parsePort reads a port in its only spelling: no sign, no leading zero.
func parsePort(s string) (uint16, bool) {
	if len(s) == 0 || len(s) > 5 || s[0] < '1' || s[0] > '9' {
		return 0, false
	}
	n := 0
	for i := range len(s) {
		c := s[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return uint16(n), n <= 65535
}

// Split takes a Host or :authority apart: the host in normal form, and the port as it was given, "" for none.
// An empty port ("host:") is what URLs allow, and none.
func Split(authority string) (host, port string, err error) {
	name := authority
	if i := strings.IndexByte(authority, ':'); i >= 0 {
		name, port = authority[:i], authority[i+1:]
		if _, ok := parsePort(port); !ok && port != "" {
			return "", "", fmt.Errorf("port of %q: %w", authority, hostname.ErrInvalid)
		}
	}
	host, err = hostname.Normalize(name)
	if err != nil {
		return "", "", err
	}
	return host, port, nil
}
