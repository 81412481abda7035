package streams

import "encoding/binary"

// A scanner follows the frames of one direction of a WebSocket (RFC 6455, 5.2) without touching them, to know where one ends.
type scanner struct {
	head   [14]byte // of the frame, as far as it was read
	have   int
	left   uint64 // payload that is still to come
	last   bool   // the frame under way is a close frame
	closed bool   // a whole close frame went by
}

const opClose = 8

// between reports whether no frame is under way.
func (s *scanner) between() bool { return s.have == 0 && s.left == 0 }

// advance follows b and returns the length of its part that ends with the last whole frame; all of b where between holds
// before and after.
func (s *scanner) advance(b []byte) (whole int) {
	for i := 0; i < len(b); {
		if s.left > 0 {
			n := min(s.left, uint64(len(b)-i))
			s.left -= n
			i += int(n)
		} else {
			s.head[s.have] = b[i]
			s.have++
			i++
			if s.have < s.need() {
				continue
			}
			s.begin()
		}
		if s.between() {
			whole, s.closed = i, s.closed || s.last
		}
	}
	return whole
}

// need is the length of the head, as far as that can be told.
func (s *scanner) need() int {
	if s.have < 2 {
		return 2
	}
	n := 2
	switch s.head[1] & 0x7f {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if s.head[1]&0x80 != 0 {
		n += 4
	}
	return n
}

// begin goes from a whole head to the payload.
func (s *scanner) begin() {
	switch n := s.head[1] & 0x7f; n {
	case 126:
		s.left = uint64(binary.BigEndian.Uint16(s.head[2:]))
	case 127:
		s.left = binary.BigEndian.Uint64(s.head[2:])
	default:
		s.left = uint64(n)
	}
	s.last = s.head[0]&0x0f == opClose
	s.have = 0
}

// closeFrame is the frame that a server sends at the end.
func closeFrame(why Reason) []byte {
	code, text := why.Close()
	b := make([]byte, 0, 4+len(text))
	b = append(b, 0x80|opClose, byte(2+len(text)))
	b = binary.BigEndian.AppendUint16(b, code)
	return append(b, text...)
}
