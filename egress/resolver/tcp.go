package resolver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"portreeve.dev/egress"
)

// serveTCP accepts connections until ctx ends.
func (s *Server) serveTCP(ctx context.Context, l net.Listener) error {
	var open sync.WaitGroup
	defer open.Wait()
	pause := time.Millisecond
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			pause = time.Millisecond
			open.Add(1)
			go s.connection(ctx, &open, c)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accepting queries: %w", err)
		default: // out of descriptors, or a connection that was gone before it was accepted
			pause = min(2*pause, time.Second)
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}
}

func (s *Server) connection(ctx context.Context, open *sync.WaitGroup, c net.Conn) {
	defer open.Done()
	defer c.Close()
	from, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return
	}
	b, ok := s.cfg.Bindings.Lookup(from.AddrPort().Addr())
	if !ok {
		s.stats.unknown.Add(1)
		return
	}
	if !s.tcpSlots.Take(b.Org, 1) {
		s.stats.dropped.Add(1)
		return
	}
	defer s.tcpSlots.Give(b.Org, 1)
	x := s.box(b)
	if !x.enter(&x.conns, s.cfg.TCPConns) {
		s.stats.dropped.Add(1)
		return
	}
	defer x.leave(&x.conns)
	stop := context.AfterFunc(ctx, func() { c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	s.queries(ctx, b, x, c)
}

// queries answers one after the other, in order, as long as the address is still that sandbox's.
func (s *Server) queries(ctx context.Context, b egress.Binding, x *box, c net.Conn) {
	buf := make([]byte, maxQuery)
	for {
		if c.SetDeadline(time.Now().Add(s.cfg.TCPIdle)) != nil || ctx.Err() != nil {
			return
		}
		var head [2]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(head[:]))
		if n > len(buf) {
			return
		}
		if _, err := io.ReadFull(c, buf[:n]); err != nil {
			return
		}
		now, ok := s.cfg.Bindings.Lookup(b.Addr)
		if !ok || now.Sandbox != b.Sandbox || now.Incarnation != b.Incarnation {
			return // the address has changed hands
		}
		b = now // the same sandbox, perhaps under a newer lowest revision
		r := s.message(context.WithoutCancel(ctx), b, x, buf[:n], false)
		if r == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(r)), uint16(len(r))), r...)); err != nil {
			return
		}
	}
}
