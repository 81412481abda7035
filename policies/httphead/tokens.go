package httphead

import "bytes"

// class tells what a byte may be part of.
var class [256]uint8

const (
	isToken  = 1 << iota // RFC 9110 tchar
	isUpper              // a method letter
	isTarget             // visible in a request target: ASCII without '#'
	isHost               // letters, digits, '-', '.', '_' and what IPv6 and ports need
	isValue              // a header value: no control characters but HTAB
	isHex
)

func init() {
	for c := range 256 {
		b := byte(c)
		letter := b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
		digit := b >= '0' && b <= '9'
		if letter || digit {
			class[c] |= isToken | isHost
		}
		if b >= 'A' && b <= 'Z' || digit {
			class[c] |= isUpper
		}
		if b > ' ' && b <= '~' && b != '#' {
			class[c] |= isTarget
		}
		if b == '\t' || b >= ' ' && b != 0x7f {
			class[c] |= isValue
		}
		if digit || b >= 'a' && b <= 'f' || b >= 'A' && b <= 'F' {
			class[c] |= isHex
		}
	}
	for _, b := range []byte("!#$%&'*+-.^_`|~") {
		class[b] |= isToken
	}
	for _, b := range []byte("-._") {
		class[b] |= isHost
	}
	for _, b := range []byte("-_") {
		class[b] |= isUpper
	}
}

func all(b []byte, c uint8) bool {
	for _, x := range b {
		if class[x]&c == 0 {
			return false
		}
	}
	return true
}

// equalFold reports whether b is s without regard to ASCII case. s is lower case.
func equalFold(b []byte, s string) bool {
	if len(b) != len(s) {
		return false
	}
	for i, x := range b {
		if x >= 'A' && x <= 'Z' {
			x += 'a' - 'A'
		}
		if x != s[i] {
			return false
		}
	}
	return true
}

// trim removes optional white space around a header value.
func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// FieldOf returns the values of a field, its name in lower case, as far as lines of a refused head are whole and plain. It is for saying who
// sent it, and never for what it asks.
func FieldOf(head []byte, name string) (values []string) {
	for line := range bytes.Lines(head) {
		line, whole := bytes.CutSuffix(line, []byte("\r\n"))
		if !whole || len(line) == 0 {
			break
		}
		if n, value, err := field(line); err == nil && equalFold(n, name) {
			values = append(values, string(value))
		}
	}
	return values
}
