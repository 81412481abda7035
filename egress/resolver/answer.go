package resolver

import (
	"encoding/binary"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"portreeve.dev/policies"
)

// soa stands at the root: every name is below it, so that each negative answer is one that the client may keep for its TTL.
var soa = &dns.SOA{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: negativeTTL},
	Ns: Self + ".", Mbox: Self + ".", Serial: 1, Refresh: 60, Retry: 60, Expire: 60, Minttl: negativeTTL}

// reply begins the answer to q.
func reply(q *dns.Msg, rcode int) *dns.Msg {
	r := new(dns.Msg)
	r.Id, r.Response, r.Opcode = q.Id, true, q.Opcode
	r.RecursionDesired, r.RecursionAvailable, r.CheckingDisabled = q.RecursionDesired, true, q.CheckingDisabled
	r.Question, r.Rcode, r.Compress = q.Question, rcode, true
	return r
}

// empty is the answer that the name is there, the type isn't; under NXDOMAIN the name isn't either.
func empty(q *dns.Msg, rcode int) *dns.Msg {
	r := reply(q, rcode)
	r.Ns = []dns.RR{soa}
	return r
}

// answer shapes the outcome for an address or any other type.
func answer(q *dns.Msg, o outcome) *dns.Msg {
	if !o.verdict.Allowed() {
		return denial(q, o)
	}
	addrs, ttl := o.real, uint32(o.ttl/time.Second)
	if o.addr.IsValid() {
		addrs, ttl = []netip.Addr{o.addr}, addressTTL
	}
	switch {
	case o.failed == dns.RcodeServerFailure:
		return reply(q, o.failed)
	case q.Question[0].Qtype != dns.TypeA || len(addrs) == 0:
		return empty(q, o.failed)
	}
	r := reply(q, dns.RcodeSuccess)
	for _, a := range addrs {
		r.Answer = append(r.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl}, A: net.IP(a.AsSlice())})
	}
	return r
}

// denial says NXDOMAIN, which clients take at once, when the policy is known, and SERVFAIL when trying again may help.
func denial(q *dns.Msg, o outcome) *dns.Msg {
	code, r := dns.ExtendedErrorCodeBlocked, (*dns.Msg)(nil)
	switch o.verdict.Reason {
	case policies.ReasonStalePolicy, policies.ReasonNoPolicy:
		code, r = dns.ExtendedErrorCodeNotReady, reply(q, dns.RcodeServerFailure)
	case policies.ReasonBudget, policies.ReasonRecordFailed:
		code, r = dns.ExtendedErrorCodeProhibited, reply(q, dns.RcodeServerFailure)
	case policies.ReasonDNSType, policies.ReasonParse:
		r = reply(q, dns.RcodeRefused)
	default:
		r = empty(q, dns.RcodeNameError)
	}
	if q.IsEdns0() != nil {
		text := o.verdict.Reason.String()
		if o.id != "" {
			text += " " + o.id
		}
		r.SetEdns0(maxQuery, false)
		r.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: code, ExtraText: text}}
	}
	return r
}

// pack writes r, in at most limit bytes: what explains is left out first.
func pack(r *dns.Msg, q *dns.Msg, limit int) []byte {
	if q.IsEdns0() != nil && r.IsEdns0() == nil {
		r.SetEdns0(maxQuery, false)
	}
	wire, err := r.Pack()
	if err == nil && len(wire) <= limit {
		return wire
	}
	if o := r.IsEdns0(); o != nil {
		o.Option = nil
	}
	if wire, err = r.Pack(); err == nil && len(wire) <= limit {
		return wire
	}
	r.Ns = nil
	if wire, err = r.Pack(); err != nil || len(wire) > limit {
		return nil
	}
	return wire
}

// bare answers with a head alone: to what can't be read.
func bare(wire []byte, rcode int) []byte {
	r := make([]byte, 12)
	copy(r, wire[:4])
	flags := binary.BigEndian.Uint16(wire[2:])
	binary.BigEndian.PutUint16(r[2:], 1<<15|flags&0x7900|uint16(rcode)) // QR, and the query's opcode and RD
	return r
}
