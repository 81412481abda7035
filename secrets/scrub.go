package secrets

import (
	"bytes"
	"net/http"
)

// What of an answer is searched for the value that a grant is of.
const (
	ScrubHeaders = "headers" // header and trailer fields; the default
	ScrubBodies  = "bodies"  // the body too
)

// scrubbed is what each byte of a value is replaced by. It keeps lengths, so that what counts bytes still fits, and is valid in
// each encoding that is searched.
const scrubbed = 'x'

// A Scrubber replaces, in the answers of one host, the values that are granted there: a host that answers with what it was sent would
// hand them over. It finds the forms that forms lists, of at least 8 bytes, and nothing that was changed in another way. That narrows
// reflection, and doesn't prevent it. It never changes and is safe for concurrent use; nil finds nothing.
type Scrubber struct {
	forms    [][]byte
	bodies   bool
	shortest int // of forms, in bytes
	longest  int
	// skip says how far the search may go on from two bytes: to where they could stand within the first shortest bytes of a form
	// (the algorithm of Wu and Manber, 1994).
	skip [1 << 12]uint16
}

func newScrubber(bodies bool, forms [][]byte) *Scrubber {
	s := &Scrubber{forms: forms, bodies: bodies, shortest: len(forms[0])}
	for _, f := range forms {
		s.shortest, s.longest = min(s.shortest, len(f)), max(s.longest, len(f))
	}
	for i := range s.skip {
		s.skip[i] = uint16(s.shortest - 1)
	}
	for _, f := range forms {
		for last := 1; last < s.shortest; last++ {
			at := pair(f[last-1], f[last])
			s.skip[at] = min(s.skip[at], uint16(s.shortest-1-last))
		}
	}
	return s
}

// pair is where two bytes stand in skip; some share a place.
func pair(a, b byte) uint { return (uint(a)<<5 ^ uint(b)) & (1<<12 - 1) }

// Bodies reports whether bodies are to be searched: then an answer must come whole, and in no encoding.
func (s *Scrubber) Bodies() bool { return s != nil && s.bodies }

// Header replaces values in the fields of h, and reports whether it found any.
func (s *Scrubber) Header(h http.Header) (found bool) {
	if s == nil {
		return false
	}
	var b []byte
	for _, values := range h {
		for i, text := range values {
			if len(text) < shortestForm {
				continue
			}
			b = append(b[:0], text...)
			if spans := s.search(b); len(spans) > 0 {
				overwrite(b, spans)
				values[i], found = string(b), true
			}
		}
	}
	return found
}

// A span is where a form stands in a text.
type span struct{ from, to int }

// search finds every form in text, also those that overlap.
func (s *Scrubber) search(text []byte) (spans []span) {
	for at := 0; at+s.shortest <= len(text); {
		last := at + s.shortest - 1
		if skip := s.skip[pair(text[last-1], text[last])]; skip > 0 {
			at += int(skip)
			continue
		}
		for _, f := range s.forms {
			if bytes.HasPrefix(text[at:], f) {
				spans = append(spans, span{at, at + len(f)})
			}
		}
		at++
	}
	return spans
}

// unfinished returns where the longest end of text begins that more text could make a form; len(text) if there is none.
func (s *Scrubber) unfinished(text []byte) int {
	from := len(text)
	for _, f := range s.forms {
		for at := max(0, len(text)-len(f)+1); at < from; at++ {
			i := bytes.IndexByte(text[at:from], f[0])
			if i < 0 {
				break
			}
			if at += i; bytes.HasPrefix(f, text[at:]) {
				from = at
			}
		}
	}
	return from
}

// overwrite replaces what of the spans lies in b.
func overwrite(b []byte, spans []span) {
	for _, p := range spans {
		for i := p.from; i < min(p.to, len(b)); i++ {
			b[i] = scrubbed
		}
	}
}
