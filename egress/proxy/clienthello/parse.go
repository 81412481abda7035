package clienthello

import (
	"encoding/binary"
	"errors"
)

// ErrNotTLS says that the bytes don't begin with a TLS handshake record.
var ErrNotTLS = errors.New("not a TLS handshake")

// ErrMalformed says that the bytes begin like a TLS handshake and then break its rules.
var ErrMalformed = errors.New("malformed ClientHello")

// ErrTooLarge says that the message or its records exceed MaxSize.
var ErrTooLarge = errors.New("ClientHello too large")

// ErrIncomplete says that more bytes are needed.
var ErrIncomplete = errors.New("incomplete ClientHello")

// A Hello is what a client said first. The slices point into the parsed bytes.
type Hello struct {
	ServerName []byte // as sent: visible ASCII, not in normal form; empty when the client sent none
	ALPN       []byte // the protocol list as on the wire, without its length; see Protocols
	ECH        bool   // an encrypted ClientHello, real or GREASE, of any known draft
}

// Protocols returns the ALPN list.
func (h *Hello) Protocols() []string {
	var list []string
	for b := h.ALPN; len(b) > 0; {
		n := int(b[0])
		list = append(list, string(b[1:1+n]))
		b = b[1+n:]
	}
	return list
}

// Offers reports whether the protocol is on the ALPN list.
func (h *Hello) Offers(protocol string) bool {
	for b := h.ALPN; len(b) > 0; {
		n := int(b[0])
		if string(b[1:1+n]) == protocol {
			return true
		}
		b = b[1+n:]
	}
	return false
}

const (
	extServerName = 0
	extALPN       = 16
	extECH        = 0xfe0d
	extESNI       = 0xffce // the older draft of the same thing

	maxExtensions = 128
)

// parseMessage parses the body of a ClientHello handshake message.
func parseMessage(b []byte) (Hello, error) {
	var h Hello
	s := reader(b)
	if !s.skip(2 + 32) { // legacy version, random
		return h, ErrMalformed
	}
	session, ok := s.vector8()
	if !ok || len(session) > 32 {
		return h, ErrMalformed
	}
	suites, ok := s.vector16()
	if !ok || len(suites) == 0 || len(suites)%2 != 0 {
		return h, ErrMalformed
	}
	compression, ok := s.vector8()
	if !ok || len(compression) == 0 {
		return h, ErrMalformed
	}
	if len(s) == 0 { // a hello from before extensions: no name
		return h, nil
	}
	extensions, ok := s.vector16()
	if !ok || len(s) != 0 {
		return h, ErrMalformed
	}
	return h, h.parseExtensions(extensions)
}

func (h *Hello) parseExtensions(s reader) error {
	var seen [maxExtensions]uint16
	for n := 0; len(s) > 0; n++ {
		kind, ok := s.uint16()
		if !ok || n == maxExtensions {
			return ErrMalformed
		}
		data, ok := s.vector16()
		if !ok {
			return ErrMalformed
		}
		for _, other := range seen[:n] {
			if other == kind {
				return ErrMalformed // the one we read might not be the one the server reads
			}
		}
		seen[n] = kind
		switch kind {
		case extServerName:
			h.ServerName, ok = parseServerName(data)
		case extALPN:
			h.ALPN, ok = parseALPN(data)
		case extECH, extESNI:
			h.ECH = true
		}
		if !ok {
			return ErrMalformed
		}
	}
	return nil
}

// parseServerName accepts a list of exactly one host name (RFC 6066 defines no other kind, and only one per kind).
func parseServerName(s reader) ([]byte, bool) {
	list, ok := s.vector16()
	if !ok || len(s) != 0 {
		return nil, false
	}
	kind, ok := list.uint8()
	if !ok || kind != 0 {
		return nil, false
	}
	name, ok := list.vector16()
	if !ok || len(list) != 0 || len(name) == 0 || len(name) > 255 {
		return nil, false
	}
	for _, c := range name {
		if c <= ' ' || c > '~' {
			return nil, false
		}
	}
	return name, true
}

func parseALPN(s reader) ([]byte, bool) {
	list, ok := s.vector16()
	if !ok || len(s) != 0 || len(list) == 0 {
		return nil, false
	}
	for rest := list; len(rest) > 0; {
		if name, ok := rest.vector8(); !ok || len(name) == 0 {
			return nil, false
		}
	}
	return list, true
}

// A reader takes integers and length-prefixed vectors off the front of bytes.
type reader []byte

func (s *reader) skip(n int) bool {
	if len(*s) < n {
		return false
	}
	*s = (*s)[n:]
	return true
}

func (s *reader) uint8() (uint8, bool) {
	if len(*s) < 1 {
		return 0, false
	}
	v := (*s)[0]
	*s = (*s)[1:]
	return v, true
}

func (s *reader) uint16() (uint16, bool) {
	if len(*s) < 2 {
		return 0, false
	}
	v := binary.BigEndian.Uint16(*s)
	*s = (*s)[2:]
	return v, true
}

func (s *reader) vector(n int) (reader, bool) {
	if len(*s) < n {
		return nil, false
	}
	v := (*s)[:n:n]
	*s = (*s)[n:]
	return v, true
}

func (s *reader) vector8() (reader, bool) {
	n, ok := s.uint8()
	if !ok {
		return nil, false
	}
	return s.vector(int(n))
}

func (s *reader) vector16() (reader, bool) {
	n, ok := s.uint16()
	if !ok {
		return nil, false
	}
	return s.vector(int(n))
}
