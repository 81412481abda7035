package secrets

import "io"

// bodyBuffer is how much of a body is read at a time, in bytes.
const bodyBuffer = 16 << 10

// A ScrubbedBody is a body in which values are replaced as it passes. It holds back only what may be the beginning of one, so that an
// event which is complete goes on at once.
type ScrubbedBody struct {
	io.ReadCloser
	s       *Scrubber
	buf     []byte // of what was read: the first give bytes may go, the others may begin a form
	give    int
	covered int // how many bytes behind those are part of a form that was found
	err     error
	found   bool
}

// Body returns r with values replaced.
func (s *Scrubber) Body(r io.ReadCloser) *ScrubbedBody { return &ScrubbedBody{ReadCloser: r, s: s} }

// Found reports whether anything was replaced so far. It is for whoever reads.
func (b *ScrubbedBody) Found() bool { return b.found }

func (b *ScrubbedBody) Read(p []byte) (int, error) {
	for b.give == 0 {
		if b.err != nil {
			return 0, b.err
		}
		b.fill()
	}
	n := copy(p, b.buf[:b.give])
	b.give -= n
	b.buf = b.buf[:copy(b.buf, b.buf[n:])]
	return n, nil
}

// fill reads once, and searches what is there.
func (b *ScrubbedBody) fill() {
	if b.buf == nil {
		b.buf = make([]byte, 0, bodyBuffer+b.s.longest)
	}
	n, err := b.ReadCloser.Read(b.buf[len(b.buf):cap(b.buf)])
	b.buf, b.err = b.buf[:len(b.buf)+n], err
	spans := append(b.s.search(b.buf), span{0, b.covered})
	b.found = b.found || len(spans) > 1
	if b.give = len(b.buf); err == nil {
		b.give = b.s.unfinished(b.buf)
	}
	b.covered = 0
	for _, p := range spans {
		if p.from <= b.give { // what begins later will be found again
			b.covered = max(b.covered, p.to-b.give)
		}
	}
	overwrite(b.buf[:b.give], spans)
}
