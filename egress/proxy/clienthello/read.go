package clienthello

import (
	"encoding/binary"
	"io"
)

// MaxSize bounds everything that is read of a client before its hello is complete. Post-quantum hellos take some 2 KiB,
// the largest seen in the field 16 KiB.
const MaxSize = 64 << 10

const (
	recordHeader    = 5
	messageHeader   = 4
	maxRecord       = 16 << 10
	recordHandshake = 22
	messageHello    = 1
	firstBuffer     = 2 << 10
)

// Read reads one ClientHello from r. The bytes it returns are all that it took from r, also beside an error, and may
// hold more than the hello. It reads at most MaxSize bytes.
func Read(r io.Reader) (Hello, []byte, error) {
	return ReadAfter(nil, r)
}

// ReadAfter is Read for a connection of which the bytes in taken were already read.
func ReadAfter(taken []byte, r io.Reader) (Hello, []byte, error) {
	var a assembler
	buf := make([]byte, len(taken), max(firstBuffer, len(taken)))
	copy(buf, taken)
	for {
		h, err := a.parse(buf)
		if err != ErrIncomplete {
			return h, buf, err
		}
		if len(buf) >= MaxSize {
			return Hello{}, buf, ErrTooLarge
		}
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), min(2*cap(buf), MaxSize))
			copy(grown, buf)
			buf = grown
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if n > 0 {
			continue
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return Hello{}, buf, err
		}
	}
}

// Parse parses the records at the start of b, or says ErrIncomplete.
func Parse(b []byte) (Hello, error) {
	var a assembler
	return a.parse(b)
}

// An assembler joins the fragments of a message that is spread over records. It remembers how far it came, so that a
// client sending byte by byte costs no more than one sending at once.
type assembler struct {
	next    int    // where the next record header begins
	message []byte // what is joined so far; only used from the second record on
}

func (a *assembler) parse(b []byte) (Hello, error) {
	for {
		record, err := nextRecord(b[a.next:])
		if err != nil {
			return Hello{}, err
		}
		a.next += recordHeader + len(record)
		message := record
		if a.message != nil {
			a.message = append(a.message, record...)
			message = a.message
		}
		need, err := messageLength(message)
		switch {
		case err != nil && err != ErrIncomplete:
			return Hello{}, err
		case err == nil && len(message) > need:
			return Hello{}, ErrMalformed // something follows the hello before the server spoke
		case err == nil && len(message) == need:
			return parseMessage(message[messageHeader:])
		}
		if a.message == nil {
			a.message = append(make([]byte, 0, 2*len(record)), record...)
		}
	}
}

// nextRecord returns the payload of the handshake record at the start of b.
func nextRecord(b []byte) ([]byte, error) {
	if len(b) > 0 && b[0] != recordHandshake || len(b) > 1 && b[1] != 3 {
		return nil, ErrNotTLS
	}
	if len(b) < recordHeader {
		return nil, ErrIncomplete
	}
	n := int(binary.BigEndian.Uint16(b[3:]))
	if n == 0 || n > maxRecord {
		return nil, ErrMalformed
	}
	if len(b) < recordHeader+n {
		return nil, ErrIncomplete
	}
	return b[recordHeader : recordHeader+n], nil
}

// messageLength returns the length of the handshake message that begins in b, header included.
func messageLength(b []byte) (int, error) {
	if b[0] != messageHello {
		return 0, ErrMalformed
	}
	if len(b) < messageHeader {
		return 0, ErrIncomplete
	}
	n := messageHeader + int(b[1])<<16 + int(b[2])<<8 + int(b[3])
	if n > MaxSize {
		return 0, ErrTooLarge
	}
	return n, nil
}
