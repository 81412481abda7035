package resolver

import (
	"net/netip"
	"strings"
)

// reverse reads the address out of a name under in-addr.arpa; ok is true for every name under either reverse tree.
func reverse(name string) (addr netip.Addr, ok bool) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if strings.HasSuffix(name, ".ip6.arpa") {
		return netip.Addr{}, true
	}
	head, ok := strings.CutSuffix(name, ".in-addr.arpa")
	if !ok {
		return netip.Addr{}, false
	}
	labels := strings.Split(head, ".")
	if len(labels) != 4 {
		return netip.Addr{}, true
	}
	addr, err := netip.ParseAddr(labels[3] + "." + labels[2] + "." + labels[1] + "." + labels[0])
	if err != nil {
		return netip.Addr{}, true
	}
	return addr, true
}
