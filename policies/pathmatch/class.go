package pathmatch

// What may become of a byte.
const (
	coded   byte = iota // has to be escaped
	plain               // stands for itself
	refused             // servers differ about it, escaped or not
)

const (
	unreserved = "-._~"
	reservedOK = "!$&'()*+,=:@" // may stand in a segment; escaped they are other characters to some servers
	upperHex   = "0123456789ABCDEF"
)

var class = func() (t [256]byte) {
	for c := range 256 {
		switch b := byte(c); {
		case b < ' ' || b == 0x7f:
			t[c] = refused
		case b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z', b == '/':
			t[c] = plain
		}
	}
	for _, b := range []byte(unreserved + reservedOK) {
		t[b] = plain
	}
	t['\\'] = refused // a slash to some
	t[';'] = refused  // cut off by some, with what follows
	return t
}()

// reserved reports whether an escaped b must stay escaped.
func reserved(b byte) bool {
	for i := 0; i < len(reservedOK); i++ {
		if reservedOK[i] == b {
			return true
		}
	}
	return b == '/'
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// decode undoes the escapes of a path in which each is well formed.
func decode(path []byte) string {
	out := make([]byte, 0, len(path))
	for i := 0; i < len(path); i++ {
		if path[i] != '%' {
			out = append(out, path[i])
			continue
		}
		out = append(out, byte(unhex(path[i+1])<<4|unhex(path[i+2])))
		i += 2
	}
	return string(out)
}
