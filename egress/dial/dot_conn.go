package dial

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// A connection to a server is kept for the questions that follow (RFC 7858, section 3.4): so long without one, and with at most so
// many under way. A server may answer them in any order (RFC 7766, section 7).
const (
	tlsIdle     = 10 * time.Second
	tlsInFlight = 128
)

// errEnded is of a kept connection that was ended, as servers do with idle ones. What was asked on it may be asked anew.
var errEnded = errors.New("the connection ended")

// A tlsConn is one connection to a server, for several questions at a time.
type tlsConn struct {
	nc   *tls.Conn
	room chan struct{} // one for each question under way

	writing sync.Mutex

	mu      sync.Mutex
	waiting map[uint16]chan *dns.Msg // by id, each with room for one reply
	idle    *time.Timer
	stale   bool          // it ends when nobody waits on it any more
	err     error         // why it ended
	ended   chan struct{} // closed with err
}

func newTLSConn(nc *tls.Conn) *tlsConn {
	c := &tlsConn{nc: nc, room: make(chan struct{}, tlsInFlight), waiting: make(map[uint16]chan *dns.Msg), ended: make(chan struct{})}
	c.idle = time.AfterFunc(tlsIdle, c.expire)
	go c.read()
	return c
}

// usable reports whether questions may still be asked.
func (c *tlsConn) usable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err == nil && !c.stale
}

// ask asks q, whose id it chooses anew if another question on the connection has it.
func (c *tlsConn) ask(ctx context.Context, q *dns.Msg) (*dns.Msg, error) {
	select {
	case c.room <- struct{}{}:
		defer func() { <-c.room }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	reply, err := c.enter(q)
	if err != nil {
		return nil, err
	}
	defer c.leave(q.Id)
	wire, err := q.Pack()
	if err != nil {
		return nil, fmt.Errorf("writing query: %w", err)
	}
	if err := c.write(ctx, wire); err != nil {
		return nil, err
	}
	select {
	case r := <-reply:
		return r, nil
	case <-c.ended:
		return nil, errors.Join(errEnded, c.err)
	case <-ctx.Done():
		c.retire() // a server that is silent on it may be so for good
		return nil, ctx.Err()
	}
}

func (c *tlsConn) enter(q *dns.Msg) (<-chan *dns.Msg, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.stale {
		return nil, errors.Join(errEnded, c.err)
	}
	for c.waiting[q.Id] != nil {
		q.Id = dns.Id()
	}
	c.idle.Stop()
	reply := make(chan *dns.Msg, 1)
	c.waiting[q.Id] = reply
	return reply, nil
}

func (c *tlsConn) leave(id uint16) {
	c.mu.Lock()
	delete(c.waiting, id)
	quiet := len(c.waiting) == 0 && c.err == nil
	if quiet && !c.stale {
		c.idle.Reset(tlsIdle)
	}
	over := quiet && c.stale
	c.mu.Unlock()
	if over {
		c.end(errEnded)
	}
}

// expire ends the connection if nobody waits on it.
func (c *tlsConn) expire() {
	c.mu.Lock()
	quiet := len(c.waiting) == 0
	c.stale = c.stale || quiet
	c.mu.Unlock()
	if quiet {
		c.end(errEnded)
	}
}

// retire takes no further question.
func (c *tlsConn) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale = true
}

// end closes the connection, and tells whoever waits.
func (c *tlsConn) end(err error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
		c.idle.Stop()
		close(c.ended)
	}
	c.mu.Unlock()
	if first {
		c.nc.NetConn().Close() // at once: nothing is lost with the goodbye of TLS
	}
}

// write sends one message with its length before it. A part of one leaves nothing that could be read, so that is the end.
func (c *tlsConn) write(ctx context.Context, wire []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	deadline, _ := ctx.Deadline()
	_ = c.nc.SetWriteDeadline(deadline)
	if _, err := c.nc.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(wire))), wire...)); err != nil {
		c.end(err)
		return errors.Join(errEnded, err)
	}
	return nil
}

// read gives each reply to whoever waits for it, until the connection ends.
func (c *tlsConn) read() {
	strays := 0
	for {
		r, err := readMessage(c.nc)
		if err != nil {
			c.end(err)
			return
		}
		c.mu.Lock()
		reply := c.waiting[r.Id]
		c.mu.Unlock()
		select {
		case reply <- r:
			continue
		default: // nobody waits for it any more, or it is the second
		}
		if strays++; strays > maxStrays {
			c.end(fmt.Errorf("%d replies to something else", strays))
			return
		}
	}
}

// readMessage reads one message that has its length before it.
func readMessage(c net.Conn) (*dns.Msg, error) {
	var head [2]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	buf := make([]byte, binary.BigEndian.Uint16(head[:]))
	if _, err := io.ReadFull(c, buf); err != nil {
		return nil, err
	}
	r := new(dns.Msg)
	if err := r.Unpack(buf); err != nil {
		return nil, fmt.Errorf("reading reply: %w", err)
	}
	return r, nil
}
