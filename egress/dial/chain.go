package dial

import (
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// An answer is what a name leads to.
type answer struct {
	aliases []string // in the order followed, without the name itself
	addrs   []netip.Addr
	ttl     time.Duration
	kind    Kind // set instead of addrs when there are none
}

// read takes from one reply what belongs to owner: its aliases, in order, and the addresses of the last of them. Records of
// other owners are not looked at. limit bounds the aliases; more set kind.
func read(r *dns.Msg, owner string, qtype uint16, limit int) answer {
	a := answer{ttl: time.Hour}
	for {
		next, ttl := alias(r.Answer, owner)
		if next == "" {
			break
		}
		if len(a.aliases) == limit {
			a.kind = AliasLoop
			return a
		}
		owner = next
		a.aliases = append(a.aliases, next)
		a.ttl = min(a.ttl, ttl)
	}
	for _, rr := range r.Answer {
		h := rr.Header()
		if h.Class != dns.ClassINET || h.Rrtype != qtype || !sameName(h.Name, owner) {
			continue
		}
		if addr, ok := address(rr); ok && len(a.addrs) < maxAddresses {
			a.addrs = append(a.addrs, addr)
			a.ttl = min(a.ttl, time.Duration(h.Ttl)*time.Second)
		}
	}
	return a
}

func alias(rrs []dns.RR, owner string) (string, time.Duration) {
	for _, rr := range rrs {
		if c, ok := rr.(*dns.CNAME); ok && c.Hdr.Class == dns.ClassINET && sameName(c.Hdr.Name, owner) {
			return plain(c.Target), time.Duration(c.Hdr.Ttl) * time.Second
		}
	}
	return "", 0
}

func address(rr dns.RR) (netip.Addr, bool) {
	switch rr := rr.(type) {
	case *dns.A:
		a, ok := netip.AddrFromSlice(rr.A.To4())
		return a, ok
	case *dns.AAAA:
		return netip.AddrFromSlice(rr.AAAA.To16())
	}
	return netip.Addr{}, false
}

func plain(fqdn string) string { return strings.ToLower(strings.TrimSuffix(fqdn, ".")) }

func sameName(fqdn, owner string) bool {
	return strings.EqualFold(strings.TrimSuffix(fqdn, "."), owner)
}
