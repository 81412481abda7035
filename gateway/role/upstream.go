package role

import "net/netip"

// UpstreamProxy is the company's proxy, as edge and control are told of it.
type UpstreamProxy struct {
	Scheme   string           `json:"scheme"` // http, https or socks5
	Addrs    []netip.AddrPort `json:"addrs"`
	Name     string           `json:"name"` // of its certificate
	User     string           `json:"user,omitempty"`
	Password string           `json:"password,omitempty"` // secret
	ByName   bool             `json:"by_name"`
	DNS      bool             `json:"dns"`
}

// Reach is an address that the edge's wall leaves open, for UDP too if it says so.
type Reach struct {
	Addr netip.AddrPort `json:"addr"`
	UDP  bool           `json:"udp"`
}
