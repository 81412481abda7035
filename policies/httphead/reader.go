package httphead

import (
	"bytes"
	"io"
	"sync/atomic"
)

// Refused is the method of the request that stands in for a refused one. No client can send it.
const Refused = "PORTREEVE-REFUSED"

const standIn = Refused + " / HTTP/1.1\r\nHost: refused\r\nConnection: close\r\n\r\n"

const bufferSize = 4 << 10

// The states of a Reader. A request goes through
//
//	head -> head                                   no body
//	head -> body -> head                           Content-Length
//	head -> size -> data -> end -> size ... -> trailers -> head   chunked
//
// and ends in over (refused) or raw (the connection was upgraded).
type state uint8

const (
	inHead state = iota
	inBody
	inSize
	inData
	inEnd
	inTrailers
	isRaw
	isOver
)

// A Reader passes on the requests of one connection, each after its head was checked. Read is for one caller at a time;
// Refusal may be called from anywhere.
type Reader struct {
	// OnHead, if set, is told when a head has begun but must be waited for (true), and when that wait is over (false).
	// A head that arrives whole costs no call.
	OnHead func(begun bool)

	src     io.Reader
	refusal atomic.Pointer[Refusal]
	inside  atomic.Bool  // the refusal is of a body
	heads   atomic.Int64 // let through so far, the stand-in too

	state     state
	buf       []byte // buf[pass:] is unread; buf[pass:good] may be passed on, buf[good:] is still to be checked
	pass      int
	good      int
	scanned   int   // bytes behind good that hold no line end worth looking at again
	lines     int   // of the head or the trailers in progress
	remaining int64 // of the body or the chunk
	begun     bool  // a head is being waited for
	err       error // what every Read says from now on
}

// NewReader returns a Reader on src.
func NewReader(src io.Reader) *Reader { return &Reader{src: src} }

// Refusal returns why the stream ended, or nil.
func (r *Reader) Refusal() *Refusal { return r.refusal.Load() }

// BodyRefusal returns why the body of the last request let through is refused, or nil. It is set before the body's Read fails.
func (r *Reader) BodyRefusal() *Refusal {
	if !r.inside.Load() {
		return nil
	}
	return r.refusal.Load()
}

// Heads returns how many requests were let through so far, the stand-in for a refused one included.
func (r *Reader) Heads() int64 { return r.heads.Load() }

// Between reports whether everything that was read belongs to whole requests. Only the reading goroutine may ask.
func (r *Reader) Between() bool { return r.state == inHead && r.pass == len(r.buf) }

// Release ends all checking: the connection no longer speaks HTTP, because the upstream accepted an upgrade.
// No Read may be running.
func (r *Reader) Release() {
	if r.state != isOver {
		r.state = isRaw
		r.good = len(r.buf)
	}
}

// Read returns bytes that were checked.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if r.pass < r.good {
			n := copy(p, r.buf[r.pass:r.good])
			r.pass += n
			return n, nil
		}
		if r.err != nil {
			return 0, r.err
		}
		if r.pass == len(r.buf) {
			r.buf, r.pass, r.good = r.buf[:0], 0, 0
			if n, err, ok := r.direct(p); ok {
				return n, err
			}
		} else if r.advance() {
			continue
		}
		if r.err != nil || r.pass < r.good {
			continue
		}
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
}

// direct reads body bytes into p without the detour over buf.
func (r *Reader) direct(p []byte) (int, error, bool) {
	switch r.state {
	case inBody, inData:
		n, err := r.src.Read(p[:min(int64(len(p)), r.remaining)])
		r.consume(n)
		return n, err, true
	case isRaw:
		n, err := r.src.Read(p)
		return n, err, true
	}
	return 0, nil, false
}

// fill reads more bytes behind those to be checked.
func (r *Reader) fill() error {
	if r.pass > 0 {
		n := copy(r.buf, r.buf[r.pass:])
		r.buf, r.good, r.pass = r.buf[:n], r.good-r.pass, 0
	}
	if r.buf == nil || cap(r.buf) > bufferSize && len(r.buf) == 0 {
		r.buf = make([]byte, 0, bufferSize)
	}
	if len(r.buf) == cap(r.buf) {
		r.buf = append(make([]byte, 0, 2*cap(r.buf)), r.buf...)
	}
	n, err := r.src.Read(r.buf[len(r.buf):cap(r.buf)])
	r.buf = r.buf[:len(r.buf)+n]
	if n > 0 {
		return nil
	}
	if err == io.EOF && r.state != inHead && r.state != isRaw {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// advance checks what is in buf and reports whether some of it may be passed on.
func (r *Reader) advance() bool {
	b := r.buf[r.good:]
	switch r.state {
	case inHead:
		return r.head(b)
	case inBody, inData:
		n := int(min(int64(len(b)), r.remaining))
		r.good += n
		r.consume(n)
		return true
	case inSize:
		size, n, err := chunkSize(b)
		if err != nil {
			return r.refuseBody(err)
		}
		if n == 0 {
			return false
		}
		r.good += n
		r.remaining, r.state = size, inData
		if size == 0 {
			r.state, r.lines, r.scanned = inTrailers, 0, 0
		}
		return true
	case inEnd:
		if b[0] != '\r' || len(b) > 1 && b[1] != '\n' {
			return r.refuseBody(errChunkEnd)
		}
		if len(b) < 2 {
			return false
		}
		r.good += 2
		r.state = inSize
		return true
	case inTrailers:
		return r.trailers(b)
	case isRaw:
		r.good = len(r.buf)
		return true
	}
	return false
}

// consume counts n bytes of a body or a chunk.
func (r *Reader) consume(n int) {
	r.remaining -= int64(n)
	if r.remaining > 0 {
		return
	}
	if r.state == inData {
		r.state = inEnd
	} else {
		r.state = inHead
	}
}

// head looks for the end of a head in b and checks it.
func (r *Reader) head(b []byte) bool {
	if !r.begun {
		r.lines, r.scanned = 0, 0
	}
	end, err := r.headEnd(b)
	if err != nil {
		return r.refuseHead(err)
	}
	if end == 0 {
		r.wait(true)
		return false
	}
	h, err := Parse(b[:end])
	if err != nil {
		return r.refuseHead(err)
	}
	r.good += end
	r.heads.Add(1)
	switch {
	case h.Chunked:
		r.state = inSize
	case h.ContentLength > 0:
		r.state, r.remaining = inBody, h.ContentLength
	}
	r.wait(false)
	return true
}

// wait notes whether a head is being waited for.
func (r *Reader) wait(begun bool) {
	if r.begun != begun && r.OnHead != nil {
		r.OnHead(begun)
	}
	r.begun = begun
}

// headEnd returns the length of the head in b, 0 when it isn't complete. It refuses as soon as it can.
func (r *Reader) headEnd(b []byte) (int, *Refusal) {
	if class[b[0]]&isUpper == 0 {
		return 0, errRequestLine // no method begins so: an answer now, not at the deadline
	}
	for {
		i := bytes.IndexByte(b[r.scanned:], '\n')
		if i < 0 {
			if len(b) >= MaxHead {
				return 0, errTooLarge
			}
			return 0, nil
		}
		line := b[r.scanned : r.scanned+i]
		if len(line) == 0 || line[len(line)-1] != '\r' {
			return 0, errLineEnd
		}
		r.scanned += i + 1
		if r.scanned > MaxHead {
			return 0, errTooLarge
		}
		if len(line) == 1 {
			return r.scanned, nil
		}
		if r.lines++; r.lines > MaxLines+1 {
			return 0, errTooMany
		}
	}
}

// trailers checks the trailer lines in b, one by one.
func (r *Reader) trailers(b []byte) bool {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		if r.scanned+len(b) > MaxHead {
			return r.refuseBody(errTooLarge)
		}
		return false
	}
	if i < 1 || b[i-1] != '\r' {
		return r.refuseBody(errLineEnd)
	}
	if r.scanned += i + 1; r.scanned > MaxHead {
		return r.refuseBody(errTooLarge)
	}
	if i > 1 {
		if r.lines++; r.lines > MaxLines {
			return r.refuseBody(errTooMany)
		}
		if err := trailer(b[:i-1]); err != nil {
			return r.refuseBody(err)
		}
	} else {
		r.state = inHead
	}
	r.good += i + 1
	return true
}

// refuseHead puts the stand-in in place of everything that is left.
func (r *Reader) refuseHead(why *Refusal) bool {
	r.over(why, io.EOF)
	r.heads.Add(1)
	r.buf, r.pass, r.good = append(r.buf[:0], standIn...), 0, len(standIn)
	r.wait(false)
	return true
}

// refuseBody makes the body fail.
func (r *Reader) refuseBody(why *Refusal) bool {
	r.over(why, why)
	r.inside.Store(true)
	r.buf, r.pass, r.good = r.buf[:0], 0, 0
	return false
}

func (r *Reader) over(why *Refusal, err error) {
	r.refusal.Store(why)
	r.state, r.err = isOver, err
}
