package server

import (
	"context"
	"net"
	"sync"
	"time"
)

// firstByte is how long a new connection may take to say whether it speaks TLS, and undecided how many may be at it at a time.
const (
	firstByte = 10 * time.Second
	undecided = 4096
)

// tlsHandshake is the first byte of every TLS connection (RFC 8446, section 5.1), and of no HTTP request.
const tlsHandshake = 22

// split makes two listeners of one, by what a connection begins with. It ends with ctx or the listener.
func split(ctx context.Context, l net.Listener) (secure, plain net.Listener) {
	s := &splitter{listener: l, slots: make(chan struct{}, undecided)}
	s.secure, s.plain = newHalf(l, ctx), newHalf(l, ctx)
	go s.accept()
	return s.secure, s.plain
}

type splitter struct {
	listener      net.Listener
	secure, plain *half
	slots         chan struct{}
}

func (s *splitter) accept() {
	defer s.secure.end()
	defer s.plain.end()
	for {
		c, err := s.listener.Accept()
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			continue
		}
		if err != nil {
			return
		}
		s.slots <- struct{}{}
		go s.decide(c)
	}
}

func (s *splitter) decide(c net.Conn) {
	defer func() { <-s.slots }()
	first := make([]byte, 1)
	c.SetReadDeadline(time.Now().Add(firstByte))
	if _, err := c.Read(first); err != nil {
		c.Close()
		return
	}
	c.SetReadDeadline(time.Time{})
	to := s.plain
	if first[0] == tlsHandshake {
		to = s.secure
	}
	to.give(&begun{Conn: c, first: first})
}

// begun is a connection whose first byte was read.
type begun struct {
	net.Conn
	first []byte
}

func (b *begun) Read(p []byte) (int, error) {
	if len(b.first) > 0 && len(p) > 0 {
		n := copy(p, b.first)
		b.first = b.first[n:]
		return n, nil
	}
	return b.Conn.Read(p)
}

// half is one of the two listeners.
type half struct {
	addr  net.Addr
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once
}

func newHalf(l net.Listener, ctx context.Context) *half {
	h := &half{addr: l.Addr(), conns: make(chan net.Conn), ended: make(chan struct{})}
	context.AfterFunc(ctx, h.end)
	return h
}

func (h *half) give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.ended:
		c.Close()
	}
}

func (h *half) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.ended:
		return nil, net.ErrClosed
	}
}

func (h *half) end()           { h.once.Do(func() { close(h.ended) }) }
func (h *half) Close() error   { h.end(); return nil }
func (h *half) Addr() net.Addr { return h.addr }
