package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// A kind is what a client seems to speak by its first bytes.
type kind uint8

const (
	kindSilent kind = iota // nothing came in time
	kindGone               // the client left
	kindTLS
	kindHTTP
	kindOther
)

// sniff reads as few bytes as it takes to tell, and puts them back. It waits so long from the accept on.
func (c *connection) sniff(wait time.Duration) kind {
	if k, ok := kindOf(c.client.peeked); ok {
		return k // it was read before
	}
	_ = c.client.SetReadDeadline(c.since.Add(wait))
	defer c.client.SetReadDeadline(time.Time{})
	buf := append(make([]byte, 0, 64), c.client.peeked...)
	defer func() { c.client.peeked = buf }()
	for {
		n, err := c.client.Conn.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if k, ok := kindOf(buf); ok {
			c.client.touch(n)
			return k
		}
		switch {
		case err == nil:
		case len(buf) > 0 && isTimeout(err):
			return kindOther
		case isTimeout(err):
			return kindSilent
		case len(buf) > 0 && errors.Is(err, io.EOF):
			return kindOther // a client that sends little and shuts its side may still want an answer
		default:
			return kindGone
		}
	}
}

// kindOf tells what begins with b; false when more bytes are needed.
func kindOf(b []byte) (kind, bool) {
	if len(b) == 0 {
		return 0, false
	}
	if b[0] == 22 { // handshake; the major version follows
		if len(b) == 1 {
			return 0, false
		}
		if b[1] == 3 {
			return kindTLS, true
		}
		return kindOther, true
	}
	for i, x := range b {
		switch {
		case x >= 'A' && x <= 'Z' || x >= 'a' && x <= 'z' || i > 0 && (x == '-' || x == '_'):
		case x == ' ' && i > 0:
			return kindHTTP, true
		default:
			return kindOther, true
		}
		if i == 32 { // longer than any method
			return kindOther, true
		}
	}
	return 0, false
}

var noDeadline time.Time

func isTimeout(err error) bool {
	var ne net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &ne) && ne.Timeout()
}
