package proxy

import "encoding/binary"

// http2Preface is what a client begins with (RFC 9113, section 3.4).
const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// The kinds of frames that matter here.
const (
	frameData    = 0
	frameHeaders = 1
	frameReset   = 3
	frameGoAway  = 7
)

const frameHead = 9 // bytes

// A frame is what is known of one without looking into it.
type frame struct {
	kind, flags byte
	stream      uint32
	code        uint32 // of a reset, or of the connection's end
}

// ends reports whether nothing of the stream follows on this side.
func (f frame) ends() bool { return f.flags&1 != 0 && (f.kind == frameData || f.kind == frameHeaders) }

// frames finds the frames in what goes by one way, in pieces of any size.
type frames struct {
	skip int // bytes of no interest before the next head
	head [frameHead + 8]byte
	have int // bytes of head
}

// follow calls tell for each frame whose head is whole now.
func (s *frames) follow(p []byte, tell func(frame)) {
	for {
		n := min(s.skip, len(p))
		s.skip -= n
		if p = p[n:]; len(p) == 0 {
			return
		}
		for s.have < s.wanted() { // which grows once the kind is known
			if len(p) == 0 {
				return
			}
			n = copy(s.head[s.have:s.wanted()], p)
			s.have += n
			p = p[n:]
		}
		tell(s.frame())
		s.skip = s.length() - (s.have - frameHead)
		s.have = 0
	}
}

func (s *frames) length() int { return int(s.head[0])<<16 | int(s.head[1])<<8 | int(s.head[2]) }

// wanted is how much of a frame is looked at: its head, and what stands before the end of a code.
func (s *frames) wanted() int {
	if s.have < frameHead {
		return frameHead
	}
	return frameHead + min(s.length(), codeEnd(s.head[3]))
}

func codeEnd(kind byte) int {
	switch kind {
	case frameReset:
		return 4
	case frameGoAway:
		return 8
	}
	return 0
}

func (s *frames) frame() frame {
	f := frame{kind: s.head[3], flags: s.head[4], stream: binary.BigEndian.Uint32(s.head[5:]) & (1<<31 - 1)}
	if end := codeEnd(f.kind); end > 0 && s.length() >= end {
		f.code = binary.BigEndian.Uint32(s.head[frameHead+end-4:])
	}
	return f
}
