package server

import (
	"container/list"
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// firstByte is how long a new connection may take to say whether it speaks TLS, undecided how many may be at it at a time, and
// acceptPause how long nothing is accepted when there is no descriptor left.
const (
	firstByte   = 10 * time.Second
	undecided   = 4096
	acceptPause = 50 * time.Millisecond
)

// tlsHandshake is the first byte of every TLS connection (RFC 8446, section 5.1), and of no HTTP request.
const tlsHandshake = 22

// A splitter makes two listeners of one, by what a connection begins with.
type splitter struct {
	ctx           context.Context
	listener      net.Listener
	secure, plain *half
	slots         chan struct{} // one taken per undecided connection
	patience      time.Duration // firstByte

	mu    sync.Mutex
	quiet list.List // of net.Conn: those that have said nothing yet, the oldest first
}

// newSplitter splits l, which is its own from then on, until ctx ends.
func newSplitter(ctx context.Context, l net.Listener) *splitter {
	return &splitter{ctx: ctx, listener: l, secure: newHalf(l), plain: newHalf(l), slots: make(chan struct{}, undecided), patience: firstByte}
}

// run accepts until ctx ends or the listener does, and returns when no connection is undecided any more.
func (s *splitter) run() {
	var deciding sync.WaitGroup
	defer deciding.Wait()
	defer s.secure.end()
	defer s.plain.end()
	stop := context.AfterFunc(s.ctx, func() { s.listener.Close(); s.secure.end(); s.plain.end() })
	defer stop()
	for {
		c, err := s.listener.Accept()
		if temporary(err) && s.ctx.Err() == nil {
			s.pause()
			continue
		}
		if err != nil {
			return
		}
		if len(s.slots) == cap(s.slots) {
			s.endOldest()
		}
		select {
		case s.slots <- struct{}{}:
			s.mu.Lock()
			place := s.quiet.PushBack(c)
			s.mu.Unlock()
			deciding.Go(func() { s.decide(c, place) })
		case <-s.ctx.Done():
			c.Close()
			return
		}
	}
}

// temporary reports an error after which a listener is as good as before: there are no descriptors left, and some will be closed.
func temporary(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err)
	return ok && t.Temporary()
}

func (s *splitter) pause() {
	t := time.NewTimer(acceptPause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.ctx.Done():
	}
}

// endOldest makes room at the cost of the connection that has been silent for longest: an honest one says something at once, and
// whoever opens many that don't must not keep it out.
func (s *splitter) endOldest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if oldest := s.quiet.Front(); oldest != nil {
		s.quiet.Remove(oldest).(net.Conn).Close()
	}
}

// decide reads the first byte and hands the connection on.
func (s *splitter) decide(c net.Conn, place *list.Element) {
	defer func() { <-s.slots }()
	first := make([]byte, 1)
	stop := context.AfterFunc(s.ctx, func() { c.Close() })
	c.SetReadDeadline(time.Now().Add(s.patience))
	_, err := c.Read(first)
	s.mu.Lock()
	s.quiet.Remove(place)
	s.mu.Unlock()
	if !stop() || err != nil {
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

func newHalf(l net.Listener) *half {
	return &half{addr: l.Addr(), conns: make(chan net.Conn), ended: make(chan struct{})}
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
