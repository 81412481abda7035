package resolver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"portreeve.dev/egress"
)

// packets holds buffers one byte longer than any query, so that a longer one is seen to be too long.
var packets = sync.Pool{New: func() any { return new([maxQuery + 1]byte) }}

// serveUDP reads packets and answers each in a goroutine of its own: a slow record of one sandbox holds up nobody else.
func (s *Server) serveUDP(ctx context.Context, u *net.UDPConn) error {
	var under sync.WaitGroup
	defer under.Wait()
	oob := make([]byte, 256)
	for {
		buf := packets.Get().(*[maxQuery + 1]byte)
		n, oobn, _, from, err := u.ReadMsgUDPAddrPort(buf[:], oob)
		if err != nil {
			packets.Put(buf)
			switch {
			case ctx.Err() != nil:
				return nil
			case errors.Is(err, net.ErrClosed):
				return fmt.Errorf("reading queries: %w", err)
			}
			continue // an error of one packet: an ICMP answer to an earlier reply
		}
		asked := askedAddress(oob[:oobn])
		b, ok := s.cfg.Bindings.Lookup(from.Addr())
		if !ok || !asked.IsValid() {
			s.stats.unknown.Add(1)
			packets.Put(buf)
			continue
		}
		if !s.slots.Take(b.Org, 1) {
			s.stats.dropped.Add(1)
			packets.Put(buf)
			continue
		}
		under.Add(1)
		go s.packet(ctx, &under, u, b, buf, n, from, asked)
	}
}

func (s *Server) packet(ctx context.Context, under *sync.WaitGroup, u *net.UDPConn, b egress.Binding, buf *[maxQuery + 1]byte, n int, from netip.AddrPort, asked netip.Addr) {
	defer under.Done()
	defer s.slots.Give(b.Org, 1)
	defer packets.Put(buf)
	x := s.box(b)
	var r []byte
	switch {
	case x.enter(&x.inFlight, s.cfg.InFlight):
		r = s.message(context.WithoutCancel(ctx), b, x, buf[:n], true)
		x.leave(&x.inFlight)
	case n >= 12 && buf[2]&0x80 == 0:
		r = bare(buf[:n], dns.RcodeRefused)
	}
	if r == nil {
		return
	}
	oob := unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: asked.As4()})
	if _, _, err := u.WriteMsgUDPAddrPort(r, oob, from); err != nil {
		s.stats.dropped.Add(1)
	}
}

// askedAddress is the destination that the packet had, which the answer has to come from.
func askedAddress(oob []byte) netip.Addr {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.Addr{}
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo {
			return netip.AddrFrom4([4]byte(m.Data[8:12])) // after interface index and spec_dst
		}
	}
	return netip.Addr{}
}
