package policies

import (
	"net/netip"

	"portreeve.dev/policies/netaddr"
)

// Class is how open the address of a destination is. The zero value is closed to everybody.
type Class uint8

const (
	Hard   Class = iota // no setting opens it
	Soft                // a platform admin's exemption opens it
	Public              // policies decide
)

var classNames = []string{"hard", "soft", "public"}

func (c Class) String() string               { return nameOf(classNames, c) }
func (c Class) MarshalText() ([]byte, error) { return textOf(classNames, c) }

// hardRanges reach this machine, its link, or the services that hand out a machine's identity.
var hardRanges = prefixes(
	"0.0.0.0/8",          // "this host": Linux connects to itself
	"127.0.0.0/8",        // loopback
	"169.254.0.0/16",     // link-local, with the metadata services of AWS, Azure, GCP, ECS and others
	"100.100.100.200/32", // metadata, Alibaba
	"168.63.129.16/32",   // wire server, Azure
	"192.0.0.192/32",     // metadata, Oracle
	"198.18.0.0/15",      // our synthetic addresses
	"224.0.0.0/4",        // multicast
	"255.255.255.255/32", // broadcast
	"::/128",             // unspecified
	"::1/128",            // loopback
	"fe80::/10",          // link-local
	"ff00::/8",           // multicast
	"fd00:ec2::/32",      // metadata and its neighbours, AWS
	"fd20:ce::254/128",   // metadata, GCP
	"fd00:42::42/128",    // metadata, Scaleway
)

// softRanges are somebody's own network, or nobody's.
var softRanges = prefixes(
	"10.0.0.0/8",      // private
	"172.16.0.0/12",   // private
	"192.168.0.0/16",  // private
	"100.64.0.0/10",   // shared by carriers, and by overlay networks
	"192.0.0.0/24",    // protocol assignments
	"192.0.2.0/24",    // documentation
	"198.51.100.0/24", // documentation
	"203.0.113.0/24",  // documentation
	"192.88.99.0/24",  // 6to4 relays
	"240.0.0.0/4",     // reserved
	"2001::/23",       // protocol assignments
	"2001:db8::/32",   // documentation
	"3fff::/20",       // documentation
	"2002::/16",       // 6to4: at best, and never better than the address inside
)

// globalUnicast is all of IPv6 that is given out; what lies outside (private, site-local, transition, unassigned) is soft.
var globalUnicast = netip.MustParsePrefix("2000::/3")

// Classify returns the class of addr: that of the IPv4 address inside it, if that is lower. An invalid address is hard.
func Classify(addr netip.Addr) Class {
	if !addr.IsValid() {
		return Hard
	}
	addr = netaddr.Canonical(addr)
	class := classify(addr)
	embedded := netaddr.Embed(addr)
	for _, inside := range embedded.All() {
		class = min(class, classify(inside))
	}
	return class
}

func classify(addr netip.Addr) Class {
	switch {
	case contains(hardRanges, addr):
		return Hard
	case contains(softRanges, addr):
		return Soft
	case addr.Is6() && !globalUnicast.Contains(addr) && !nat64.Contains(addr):
		return Soft
	}
	return Public
}

// nat64 leads to the IPv4 address inside it as it is, and so has that one's class.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

func contains(ranges []netip.Prefix, addr netip.Addr) bool {
	for _, p := range ranges {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

func prefixes(all ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(all))
	for i, s := range all {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}
