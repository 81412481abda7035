package proxy

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"syscall"
)

// A source reads one side of a relay. It holds a buffer only while something is in it: of 10,000 idle relays none does.
type source struct {
	c    *connection
	conn net.Conn
	raw  syscall.RawConn               // nil: conn has no descriptor that can be read past it
	read func(descriptor uintptr) bool // of raw; made once

	pool *sync.Pool
	held any    // of pool
	data []byte // what is in it
	err  error
}

func (c *connection) source(conn net.Conn) *source {
	s := &source{c: c, conn: conn, pool: &buffers.small}
	if tcp := plainTCP(conn); tcp != nil {
		s.raw, _ = tcp.SyscallConn()
	}
	s.read = s.readOnce
	return s
}

// next waits for bytes and returns them; they are good until release.
func (s *source) next() ([]byte, error) {
	if s.raw == nil || s.conn == net.Conn(s.c.client) && len(s.c.client.peeked) > 0 {
		n, err := s.conn.Read(s.buffer())
		if s.conn != net.Conn(s.c.client) {
			s.c.client.touch(n)
		}
		return s.data[:n], err
	}
	s.data, s.err = nil, nil
	if err := s.raw.Read(s.read); err != nil {
		return nil, err
	}
	s.c.client.touch(len(s.data))
	if s.conn == net.Conn(s.c.client) {
		s.c.came(len(s.data))
	}
	return s.data, s.err
}

// readOnce is called when there may be something to read; false has it called again when there is.
func (s *source) readOnce(descriptor uintptr) bool {
	buf := s.buffer()
	for {
		n, err := syscall.Read(int(descriptor), buf)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			s.release()
			return false
		case err != nil:
			s.data, s.err = nil, &net.OpError{Op: "read", Net: "tcp", Err: err}
		case n == 0:
			s.data, s.err = nil, io.EOF
		default:
			s.data = buf[:n]
		}
		return true
	}
}

func (s *source) buffer() []byte {
	s.held = s.pool.Get()
	switch b := s.held.(type) {
	case *[relayBuffer]byte:
		s.data = b[:]
	case *[largeBuffer]byte:
		s.data = b[:]
	}
	return s.data
}

func (s *source) release() {
	if s.held != nil {
		s.pool.Put(s.held)
		s.held, s.data = nil, nil
	}
}

// enlarge has later reads take more at once.
func (s *source) enlarge() { s.pool = &buffers.large }

// plainTCP unwraps to the TCP connection whose bytes are exactly those of nc; nil if there is none.
func plainTCP(nc net.Conn) *net.TCPConn {
	for {
		switch c := nc.(type) {
		case *net.TCPConn:
			return c
		case *tls.Conn:
			return nil
		case interface{ NetConn() net.Conn }:
			nc = c.NetConn()
		default:
			return nil
		}
	}
}
