package dial

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

const (
	udpSize   = 1232 // what we say we take; fits any path
	maxStrays = 32   // replies to something else that one query puts up with
)

// query makes one question. The id is from a cryptographic source (dns.Id); the source port is the kernel's, fresh per query.
func query(name string, qtype uint16, mixed bool) *dns.Msg {
	q := new(dns.Msg)
	name = dns.Fqdn(name)
	if mixed {
		name = mixCase(name)
	}
	q.SetQuestion(name, qtype)
	q.SetEdns0(udpSize, false)
	return q
}

func mixCase(name string) string {
	b := []byte(name)
	bits := rand.Uint64()
	for i, c := range b {
		if c >= 'a' && c <= 'z' && bits>>(i%64)&1 == 1 {
			b[i] = c - 'a' + 'A'
		}
	}
	return string(b)
}

// belongs reports whether r answers q.
func belongs(r, q *dns.Msg, mixed bool) bool {
	if r.Id != q.Id || !r.Response || r.Opcode != dns.OpcodeQuery || len(r.Question) != 1 {
		return false
	}
	a, b := r.Question[0], q.Question[0]
	if a.Qtype != b.Qtype || a.Qclass != b.Qclass {
		return false
	}
	return a.Name == b.Name || !mixed && strings.EqualFold(a.Name, b.Name)
}

// exchange asks one server in the clear: over UDP, and over TCP when the reply was cut.
func exchange(ctx context.Context, server netip.AddrPort, q *dns.Msg, mixed bool) (*dns.Msg, error) {
	wire, err := q.Pack()
	if err != nil {
		return nil, fmt.Errorf("writing query: %w", err)
	}
	r, err := overUDP(ctx, server, q, wire, mixed)
	if err == nil && r.Truncated {
		r, err = overTCP(ctx, server, q, wire, mixed)
	}
	if err != nil {
		return nil, fmt.Errorf("asking %v: %w", server, err)
	}
	return r, nil
}

func overUDP(ctx context.Context, server netip.AddrPort, q *dns.Msg, wire []byte, mixed bool) (*dns.Msg, error) {
	c, err := connectServer(ctx, "udp", server) // connected: the kernel drops what other addresses send
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if _, err := c.Write(wire); err != nil {
		return nil, err
	}
	buf := make([]byte, 4096)
	for range maxStrays {
		n, err := c.Read(buf)
		if err != nil {
			return nil, err
		}
		r := new(dns.Msg)
		if r.Unpack(buf[:n]) == nil && belongs(r, q, mixed) {
			return r, nil
		}
	}
	return nil, fmt.Errorf("%d replies to something else", maxStrays)
}

func overTCP(ctx context.Context, server netip.AddrPort, q *dns.Msg, wire []byte, mixed bool) (*dns.Msg, error) {
	c, err := connectServer(ctx, "tcp", server)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return overStream(c, q, wire, mixed)
}

// overStream asks on a connection, where each message has its length before it.
func overStream(c net.Conn, q *dns.Msg, wire []byte, mixed bool) (*dns.Msg, error) {
	if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(wire))), wire...)); err != nil {
		return nil, err
	}
	r, err := readMessage(c)
	if err != nil {
		return nil, err
	}
	if !belongs(r, q, mixed) {
		return nil, fmt.Errorf("a reply to something else")
	}
	return r, nil
}

// connectServer opens the socket for one query. Its deadline is that of ctx, which must have one; and ctx ends it early.
func connectServer(ctx context.Context, network string, server netip.AddrPort) (net.Conn, error) {
	d := &net.Dialer{Resolver: noResolver, FallbackDelay: -1}
	d.SetMultipathTCP(false)
	c, err := d.DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	stop, err := bound(ctx, c)
	if err != nil {
		c.Close()
		return nil, err
	}
	return &watched{Conn: c, stop: stop}, nil
}

// watched is a connection whose reads end with a context.
type watched struct {
	net.Conn
	stop func() bool
}

func (w *watched) Close() error {
	w.stop()
	return w.Conn.Close()
}
