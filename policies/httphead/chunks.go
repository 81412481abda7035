package httphead

import "bytes"

const maxChunkLine = 16 + 2 // the longest size line: sixteen digits and CRLF

// chunkSize reads the size line at the start of b. n is 0 when more bytes are needed.
func chunkSize(b []byte) (size int64, n int, err *Refusal) {
	i := bytes.IndexByte(b[:min(len(b), maxChunkLine)], '\n')
	if i < 0 {
		if len(b) >= maxChunkLine || len(b) > 0 && class[b[0]]&isHex == 0 {
			return 0, 0, errChunkSize
		}
		return 0, 0, nil
	}
	if i < 2 || b[i-1] != '\r' || i-1 > 15 {
		return 0, 0, errChunkSize
	}
	for _, c := range b[:i-1] {
		if class[c]&isHex == 0 { // a chunk extension too: nobody needs them, and parsers differ on them
			return 0, 0, errChunkSize
		}
		size = size<<4 | int64(hexValue(c))
	}
	return size, i + 1, nil
}

func hexValue(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	default:
		return c - 'a' + 10
	}
}

// trailer judges one line of a body's trailers, without its CRLF.
func trailer(line []byte) *Refusal {
	name, _, err := field(line)
	if err != nil {
		return err
	}
	for _, no := range [...]string{
		"host", "content-length", "transfer-encoding", "trailer", "te", "connection", "upgrade", "expect", "authorization",
		"proxy-authorization", "cookie", "content-encoding", "content-type", "content-range",
	} {
		if equalFold(name, no) {
			return errTrailerField
		}
	}
	return nil
}
