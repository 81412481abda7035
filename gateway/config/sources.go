package config

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
)

// Sources are the addresses that orgs' connections leave from, by id or short name: one of a family each.
type Sources map[string][]string

// Addrs are the addresses as they are used, checked for what can be meant at all.
func (s Sources) Addrs() (map[string][]netip.Addr, error) {
	out := make(map[string][]netip.Addr, len(s))
	for _, org := range slices.Sorted(maps.Keys(s)) {
		field := "egress.sources." + org
		if org == "" || org == "*" {
			return nil, fmt.Errorf("egress.sources: %q is no org's id or short name", org)
		}
		if len(s[org]) == 0 {
			return nil, fmt.Errorf("%s: it has no address; leave the org out to let the machine choose", field)
		}
		for _, text := range s[org] {
			a, err := netip.ParseAddr(text)
			if err != nil || a.Zone() != "" || a != a.Unmap() {
				return nil, fmt.Errorf("%s: %q is no address", field, text)
			}
			if a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() {
				return nil, fmt.Errorf("%s: nothing leaves the machine from %v", field, a)
			}
			if slices.ContainsFunc(out[org], func(b netip.Addr) bool { return a.Is4() == b.Is4() }) {
				return nil, fmt.Errorf("%s: %v is the second address of its family", field, a)
			}
			out[org] = append(out[org], a)
		}
	}
	return out, nil
}

// CheckLocal reports an address that is none of this machine's.
func (s Sources) CheckLocal() error {
	wanted, err := s.Addrs()
	if err != nil || len(wanted) == 0 {
		return err
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("egress.sources: listing this machine's addresses: %w", err)
	}
	var local []netip.Addr
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				local = append(local, ip.Unmap())
			}
		}
	}
	for _, org := range slices.Sorted(maps.Keys(wanted)) {
		for _, a := range wanted[org] {
			if !slices.Contains(local, a) {
				return fmt.Errorf("egress.sources.%s: %v is no address of this machine; add it to an interface, or take it out", org, a)
			}
		}
	}
	return nil
}
