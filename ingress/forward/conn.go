package forward

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxAnswerHead bounds the head of an answer.
const maxAnswerHead = 256 << 10

// A conn is one connection to an app.
type conn struct {
	net.Conn
	key  key
	r    *bufio.Reader
	w    *bufio.Writer
	left int    // bytes that may still be read for a head
	head bool   // a head is being read
	any  bool   // a byte of the answer was read
	raw  []byte // what was read for a head, and maybe more
	used bool   // it carried a request before this one

	answered atomic.Bool // the answer to this request has begun

	// Owned by the pool.
	idleSince time.Time
	expire    *time.Timer
}

func newConn(nc net.Conn, k key) *conn {
	c := &conn{Conn: nc, key: k}
	c.r, c.w = bufio.NewReaderSize(c, 4<<10), bufio.NewWriterSize(nc, 4<<10)
	return c
}

var errHeadTooLarge = errors.New("the head of the answer is too large")

// Read is what the buffer fills itself from.
func (c *conn) Read(p []byte) (int, error) {
	if c.head {
		if c.left <= 0 {
			return 0, errHeadTooLarge
		}
		p = p[:min(len(p), c.left)]
	}
	n, err := c.Conn.Read(p)
	c.left -= n
	if c.head {
		c.raw = append(c.raw, p[:n]...)
	}
	c.any = c.any || n > 0
	return n, err
}

// beginHead makes ready for the head of an answer.
func (c *conn) beginHead() {
	if cap(c.raw) > 8<<10 {
		c.raw = nil
	}
	there, _ := c.r.Peek(c.r.Buffered())
	c.raw = append(c.raw[:0], there...)
	c.head, c.left = true, maxAnswerHead
}

// connection returns the Connection fields of the head that was read: net/http deletes them when they say close, and with
// that what else they name.
func (c *conn) connection() []string {
	var values []string
	for line := range bytes.Lines(c.raw) {
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if len(name) == len("connection") && bytes.EqualFold(name, []byte("connection")) {
			values = append(values, string(value))
		}
	}
	return values
}

// quiet reports whether nothing came in while the connection was idle: neither an end nor an answer to nothing.
func (c *conn) quiet() bool {
	sc, ok := c.Conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		quiet = err == unix.EAGAIN
		return true
	})
	return err == nil && quiet
}
