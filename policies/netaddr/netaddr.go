package netaddr

import (
	"fmt"
	"net/netip"
	"strings"
)

// Canonical returns the one form in which addr is judged: IPv4 inside IPv6 is taken out, a zone is dropped.
func Canonical(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// ParsePrefix reads a CIDR, or a bare address as the prefix that holds only it. It refuses host bits beyond the length,
// which are a mistake one way or the other, and returns IPv4 inside IPv6 as IPv4.
func ParsePrefix(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		addr, err := netip.ParseAddr(s)
		if err != nil || addr.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q is not an address or CIDR", s)
		}
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR", s)
	}
	return CanonicalPrefix(p)
}

// CanonicalPrefix checks p and returns the form that ParsePrefix does.
func CanonicalPrefix(p netip.Prefix) (netip.Prefix, error) {
	if !p.IsValid() {
		return netip.Prefix{}, fmt.Errorf("not a CIDR")
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("%v mixes IPv4 and IPv6", p)
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p.Masked() != p {
		return netip.Prefix{}, fmt.Errorf("%v has bits set beyond its length; the range is %v", p, p.Masked())
	}
	return p, nil
}

// Within reports whether all of inner lies in outer.
func Within(inner, outer netip.Prefix) bool {
	return inner.Bits() >= outer.Bits() && outer.Contains(inner.Addr())
}
