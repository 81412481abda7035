package netaddr

import "net/netip"

// Embedded is the IPv4 addresses that an IPv6 address leads to, or might.
type Embedded struct {
	Addrs [3]netip.Addr
	N     int
}

// All returns them as a slice of the array.
func (e *Embedded) All() []netip.Addr { return e.Addrs[:e.N] }

func (e *Embedded) add(b0, b1, b2, b3 byte) {
	e.Addrs[e.N] = netip.AddrFrom4([4]byte{b0, b1, b2, b3})
	e.N++
}

// Transitional is every range whose addresses stand for IPv4 ones.
var Transitional = []netip.Prefix{
	compatible, nat64, nat64Local, sixToFour, teredo,
}

var (
	compatible = netip.MustParsePrefix("::/96")          // RFC 4291, deprecated
	nat64      = netip.MustParsePrefix("64:ff9b::/96")   // RFC 6052
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48") // RFC 8215; where the address sits is the network's choice
	sixToFour  = netip.MustParsePrefix("2002::/16")      // RFC 3056
	teredo     = netip.MustParsePrefix("2001::/32")      // RFC 4380
)

// Embed returns the IPv4 addresses inside addr, which has to be canonical. Most addresses have none.
func Embed(addr netip.Addr) (e Embedded) {
	if !addr.Is6() {
		return e
	}
	b := addr.As16()
	switch {
	case nat64.Contains(addr), compatible.Contains(addr):
		e.add(b[12], b[13], b[14], b[15])
	case nat64Local.Contains(addr):
		// RFC 6052, 2.2: after a /48 the address goes around byte 8; after a /64 it follows it; after a /96 it is last.
		e.add(b[6], b[7], b[9], b[10])
		e.add(b[9], b[10], b[11], b[12])
		e.add(b[12], b[13], b[14], b[15])
	case sixToFour.Contains(addr):
		e.add(b[2], b[3], b[4], b[5])
	case teredo.Contains(addr):
		e.add(b[4], b[5], b[6], b[7])         // the server
		e.add(^b[12], ^b[13], ^b[14], ^b[15]) // the client, written inverted
	}
	return e
}
