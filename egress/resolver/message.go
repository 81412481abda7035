package resolver

import (
	"context"
	"encoding/binary"

	"github.com/miekg/dns"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
)

// message answers one query of b. A nil answer is none: to what is no query at all.
func (s *Server) message(ctx context.Context, b egress.Binding, x *box, wire []byte, udp bool) []byte {
	s.stats.queries.Add(1)
	if len(wire) < 12 || wire[2]&0x80 != 0 { // too short for a head, or an answer: replying could go on for ever
		return nil
	}
	if !x.limit.AllowN(s.cfg.Now(), 1) {
		s.stats.overBudget.Add(1)
		s.record(ctx, b, x, outcome{verdict: policies.Denied(policies.ReasonBudget)}, subject{})
		return bare(wire, dns.RcodeRefused)
	}
	q, rcode := parse(wire)
	if q == nil {
		s.record(ctx, b, x, outcome{verdict: policies.Denied(policies.ReasonParse)}, subject{})
		return bare(wire, rcode)
	}
	limit := dns.MaxMsgSize
	if udp {
		limit = dns.MinMsgSize
		if o := q.IsEdns0(); o != nil {
			limit = min(max(int(o.UDPSize()), dns.MinMsgSize), maxQuery)
		}
	}
	return pack(s.asked(ctx, b, x, q), q, limit)
}

// asked answers a query that was read.
func (s *Server) asked(ctx context.Context, b egress.Binding, x *box, q *dns.Msg) *dns.Msg {
	ask := q.Question[0]
	if o := q.IsEdns0(); o != nil && o.Version() != 0 {
		r := reply(q, dns.RcodeSuccess)
		r.SetEdns0(maxQuery, false)
		r.Rcode = dns.RcodeBadVers
		return r
	}
	if ask.Qclass != dns.ClassINET || meta(ask.Qtype) {
		return denial(q, s.record(ctx, b, x, outcome{verdict: policies.Denied(policies.ReasonDNSType)}, subject{}))
	}
	if addr, ok := reverse(ask.Name); ok {
		return s.pointer(ctx, b, x, q, subject{addr: addr})
	}
	return answer(q, s.resolve(ctx, b, x, ask.Name, ask.Qtype == dns.TypeA))
}

// pointer answers from the sandbox's own table; there is nothing else to know about addresses.
func (s *Server) pointer(ctx context.Context, b egress.Binding, x *box, q *dns.Msg, about subject) *dns.Msg {
	name, ok := s.cfg.Names.Name(b.Sandbox, b.Incarnation, about.addr)
	if given := s.cfg.Names.Pinned(b.Sandbox, b.Incarnation, about.addr, s.cfg.Now()); !ok && len(given) > 0 {
		name, ok = given[0], true
	}
	if !ok {
		return denial(q, s.record(ctx, b, x, outcome{verdict: policies.Denied(policies.ReasonNoName)}, about))
	}
	ask := q.Question[0]
	if ask.Qtype != dns.TypePTR {
		return empty(q, dns.RcodeSuccess)
	}
	r := reply(q, dns.RcodeSuccess)
	r.Answer = []dns.RR{&dns.PTR{Hdr: dns.RR_Header{Name: ask.Name, Rrtype: dns.TypePTR, Class: dns.ClassINET, Ttl: addressTTL}, Ptr: name + "."}}
	return r
}

// parse reads a query: one question, at most an OPT record beside it. If it can't, it says with which code to refuse.
func parse(wire []byte) (*dns.Msg, int) {
	count := func(at int) uint16 { return binary.BigEndian.Uint16(wire[at:]) }
	switch {
	case wire[2]&0x78 != 0: // opcode: NOTIFY, UPDATE and others
		return nil, dns.RcodeRefused
	case len(wire) > maxQuery, count(4) != 1, count(6) != 0, count(8) != 0, count(10) > 1:
		return nil, dns.RcodeFormatError
	}
	q := new(dns.Msg)
	if err := q.Unpack(wire); err != nil || len(q.Question) != 1 || len(q.Extra) != int(count(10)) {
		return nil, dns.RcodeFormatError
	}
	if len(q.Extra) == 1 && q.IsEdns0() == nil { // signatures and the like
		return nil, dns.RcodeFormatError
	}
	return q, 0
}

// meta types ask for a transfer, for everything, or belong elsewhere in a message (RFC 6895).
func meta(t uint16) bool { return t == dns.TypeNone || t == dns.TypeOPT || t >= 128 && t <= 255 }
