package httphead

import "bytes"

// MaxHead and MaxLines bound a request head, and a body's trailers.
const (
	MaxHead  = 64 << 10
	MaxLines = 100
)

// A Head is what is known of a request that was let through. The slices point into the parsed bytes.
type Head struct {
	Method, Target, Host []byte
	Minor                int   // HTTP/1.Minor
	ContentLength        int64 // -1 when there is none
	Chunked              bool

	proxy bool // it is judged as a request to a proxy
}

// Parse judges a whole request head, the empty line at its end included.
func Parse(b []byte) (Head, *Refusal) {
	h := Head{ContentLength: -1}
	err := h.parse(b)
	return h, err
}

func (h *Head) parse(b []byte) *Refusal {
	if len(b) > MaxHead {
		return errTooLarge
	}
	line, rest, ok := cutLine(b)
	if !ok {
		return errLineEnd
	}
	if err := h.requestLine(line); err != nil {
		return err
	}
	var hosts, lines int
	for {
		line, rest, ok = cutLine(rest)
		if !ok {
			return errLineEnd
		}
		if len(line) == 0 {
			break
		}
		if lines++; lines > MaxLines {
			return errTooMany
		}
		name, value, err := field(line)
		if err == nil {
			err = h.field(name, value, &hosts)
		}
		if err != nil {
			return err
		}
	}
	if len(rest) != 0 {
		return errLineEnd
	}
	if hosts == 0 && h.mayOmitHost() {
		hosts = 1
	}
	if hosts != 1 {
		return errHostCount
	}
	if h.Chunked && h.ContentLength >= 0 {
		return errTwoFramings
	}
	if h.Chunked && h.Minor == 0 {
		return errEncoding
	}
	if h.proxy {
		return h.proxyTarget()
	}
	return h.target()
}

// cutLine cuts a line off the front of b; false when it isn't ended by CRLF.
func cutLine(b []byte) (line, rest []byte, ok bool) {
	i := bytes.IndexByte(b, '\n')
	if i < 1 || b[i-1] != '\r' {
		return nil, b, false
	}
	return b[:i-1], b[i+1:], true
}

func (h *Head) requestLine(line []byte) *Refusal {
	method, rest, ok := bytes.Cut(line, []byte{' '})
	target, version, ok2 := bytes.Cut(rest, []byte{' '})
	if !ok || !ok2 || len(method) == 0 || len(target) == 0 {
		return errRequestLine
	}
	switch string(version) {
	case "HTTP/1.1":
		h.Minor = 1
	case "HTTP/1.0":
	default:
		if bytes.HasPrefix(version, []byte("HTTP/")) && all(version[5:], isToken) {
			return errVersion
		}
		return errRequestLine
	}
	if !all(method, isUpper) || len(method) > 32 {
		return errMethodName // also lower case: methods are case-sensitive, but not every server keeps to that
	}
	if !all(target, isTarget) {
		return errTarget
	}
	h.Method, h.Target = method, target
	switch string(method) {
	case "CONNECT":
		if !h.proxy {
			return errMethod
		}
	case "TRACE", "TRACK", Refused:
		return errMethod
	}
	return nil
}

// field splits a header line, without looking at what it means.
func field(line []byte) (name, value []byte, err *Refusal) {
	if line[0] == ' ' || line[0] == '\t' {
		return nil, nil, errFold
	}
	name, value, ok := bytes.Cut(line, []byte{':'})
	if !ok || len(name) == 0 || !all(name, isToken) {
		return nil, nil, errFieldName
	}
	if !all(value, isValue) {
		return nil, nil, errFieldValue
	}
	return name, trim(value), nil
}

func (h *Head) field(name, value []byte, hosts *int) *Refusal {
	switch {
	case equalFold(name, "host"):
		*hosts++
		h.Host = value
		if !validAuthority(value) {
			return errHost
		}
	case equalFold(name, "content-length"):
		n, ok := decimal(value)
		if !ok || h.ContentLength >= 0 {
			return errLength
		}
		h.ContentLength = n
	case equalFold(name, "transfer-encoding"):
		if h.Chunked || !equalFold(value, "chunked") {
			return errEncoding
		}
		h.Chunked = true
	case equalFold(name, "expect"):
		if !equalFold(value, "100-continue") {
			return errExpectation
		}
	}
	return nil
}

// target holds the target to origin form, or to an absolute form that names the same authority as Host.
func (h *Head) target() *Refusal {
	if !escaped(h.Target) {
		return errTarget
	}
	if h.Target[0] == '/' {
		return nil
	}
	rest, ok := cutPrefixFold(h.Target, "http://")
	if !ok {
		rest, ok = cutPrefixFold(h.Target, "https://")
	}
	if !ok {
		return errTarget
	}
	authority := rest
	if i := bytes.IndexAny(rest, "/?"); i >= 0 {
		if rest[i] == '?' {
			return errTarget // no path: whether it is "/" is a matter of taste
		}
		authority = rest[:i]
	}
	if !validAuthority(authority) {
		return errTarget
	}
	if !bytes.EqualFold(authority, h.Host) {
		return errAuthority
	}
	return nil
}

// escaped reports whether every percent sign before the query begins an escape. net/http would refuse the others by itself,
// where nobody records it.
func escaped(target []byte) bool {
	path, _, _ := bytes.Cut(target, []byte{'?'})
	for i, c := range path {
		if c == '%' && (i+2 >= len(path) || class[path[i+1]]&isHex == 0 || class[path[i+2]]&isHex == 0) {
			return false
		}
	}
	return true
}

func cutPrefixFold(b []byte, prefix string) ([]byte, bool) {
	if len(b) < len(prefix) || !equalFold(b[:len(prefix)], prefix) {
		return b, false
	}
	return b[len(prefix):], true
}

// validAuthority accepts host, host:port, [v6] and [v6]:port: no userinfo, no empty, zero, padded or oversized port.
func validAuthority(b []byte) bool {
	if len(b) == 0 || len(b) > 262 {
		return false
	}
	host, port := b, []byte(nil)
	if b[0] == '[' {
		end := bytes.IndexByte(b, ']')
		if end < 3 {
			return false
		}
		for _, c := range b[1:end] {
			if class[c]&isHex == 0 && c != ':' && c != '.' {
				return false
			}
		}
		if end+1 == len(b) {
			return true
		}
		if b[end+1] != ':' {
			return false
		}
		return validPort(b[end+2:])
	}
	if i := bytes.IndexByte(b, ':'); i >= 0 {
		host, port = b[:i], b[i+1:]
		if !validPort(port) {
			return false
		}
	}
	return len(host) > 0 && all(host, isHost)
}

func validPort(b []byte) bool {
	n, ok := decimal(b)
	return ok && b[0] != '0' && n <= 65535
}

// decimal reads up to 18 digits and nothing else.
func decimal(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}
