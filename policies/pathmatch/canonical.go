package pathmatch

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ErrAmbiguous: servers differ in what the path means, or it is none.
var ErrAmbiguous = errors.New("not a plain path")

// MaxLength is the longest path, before and after.
const MaxLength = 8192

// Canonical returns the one form of a request's path (without its query) that is judged and also sent upstream.
// Unreserved characters are decoded, everything else that needs it is encoded with upper-case digits, dot segments are
// resolved. A slash that is encoded inside a segment stays so; Pattern reads it both ways.
func Canonical(raw string) (string, error) {
	if done, err := quick(raw); err != nil {
		return "", err
	} else if done {
		return raw, nil
	}
	out, err := encode(raw)
	if err != nil {
		return "", err
	}
	path, err := resolve(out)
	if err != nil {
		return "", fmt.Errorf("path %q: %w", raw, err)
	}
	if len(path) > MaxLength {
		return "", fmt.Errorf("path of %d bytes: %w", len(path), ErrAmbiguous)
	}
	return path, nil
}

// quick is done when the path is too long, or has nothing to change: nearly every path, without an allocation.
func quick(raw string) (done bool, err error) {
	if len(raw) > MaxLength {
		return true, fmt.Errorf("path of %d bytes: %w", len(raw), ErrAmbiguous)
	}
	if raw == "" || raw[0] != '/' {
		return true, fmt.Errorf("path %q does not begin with a slash: %w", raw, ErrAmbiguous)
	}
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		// A dot matters only at the start of a segment; a slash only after another one.
		if class[c] != plain || i > 0 && raw[i-1] == '/' && (c == '.' || c == '/') {
			return false, nil
		}
	}
	return true, nil
}

// encode brings every byte into its one spelling, and refuses what has none.
func encode(raw string) (string, error) {
	if !utf8.ValidString(raw) {
		return "", fmt.Errorf("path %q is not UTF-8: %w", raw, ErrAmbiguous)
	}
	out := make([]byte, 0, len(raw)+16)
	for i := 0; i < len(raw); i++ {
		c, escaped := raw[i], false
		if c == '%' {
			if i+2 >= len(raw) || unhex(raw[i+1]) < 0 || unhex(raw[i+2]) < 0 {
				return "", fmt.Errorf("path %q has a broken escape: %w", raw, ErrAmbiguous)
			}
			c, escaped = byte(unhex(raw[i+1])<<4|unhex(raw[i+2])), true
			i += 2
		}
		switch k := class[c]; {
		case k == refused, !escaped && (c == '?' || c == '#'):
			return "", fmt.Errorf("path %q has the byte %q: %w", raw, c, ErrAmbiguous)
		case k == plain && !(escaped && reserved(c)):
			out = append(out, c)
		default:
			out = append(out, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	once := decode(out)
	if !utf8.ValidString(once) {
		return "", fmt.Errorf("path %q is not UTF-8: %w", raw, ErrAmbiguous)
	}
	for i := 0; i+2 < len(once); i++ {
		if once[i] == '%' && unhex(once[i+1]) >= 0 && unhex(once[i+2]) >= 0 {
			return "", fmt.Errorf("path %q is encoded twice: %w", raw, ErrAmbiguous)
		}
	}
	return string(out), nil
}

// resolve takes out dot segments, and refuses empty ones, as well as both where only a decoded slash makes them.
func resolve(path string) (string, error) {
	if hidden := strings.ReplaceAll(path, "%2F", "/"); hidden != path {
		for _, segment := range strings.Split(hidden, "/") {
			if segment == "." || segment == ".." {
				return "", fmt.Errorf("a dot segment beside an encoded slash: %w", ErrAmbiguous)
			}
		}
		if strings.Contains(hidden, "//") {
			return "", fmt.Errorf("an empty segment beside an encoded slash: %w", ErrAmbiguous)
		}
	}
	if strings.Contains(path, "//") {
		return "", fmt.Errorf("an empty segment: %w", ErrAmbiguous)
	}
	segments := strings.Split(path[1:], "/")
	kept := segments[:0]
	for i, segment := range segments {
		last := i == len(segments)-1
		switch segment {
		case ".":
		case "..":
			if len(kept) == 0 {
				return "", fmt.Errorf("it leaves the root: %w", ErrAmbiguous)
			}
			kept = kept[:len(kept)-1]
		default:
			kept = append(kept, segment)
			continue
		}
		if last {
			kept = append(kept, "") // "/a/." is the folder /a/
		}
	}
	return "/" + strings.Join(kept, "/"), nil
}
