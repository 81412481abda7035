package role

import (
	"fmt"
	"net/netip"
	"strings"
)

// A Resolver is a DNS server: address:port, or tls://address:port#name for one that is asked over TLS and has to prove that name.
type Resolver struct {
	Addr netip.AddrPort
	Name string // empty: in the clear
}

const overTLS = "tls://"

// ParseResolver reads the form of the configuration: without a port it is 53, over TLS 853; without a name over TLS it is the address.
func ParseResolver(s string) (Resolver, error) {
	at, isTLS := strings.CutPrefix(s, overTLS)
	at, name, named := strings.Cut(at, "#")
	if named && (!isTLS || name == "") {
		return Resolver{}, fmt.Errorf("%q names nobody over TLS; write tls://192.0.2.53:853#dns.example.com", s)
	}
	port := uint16(53)
	if isTLS {
		port = 853
	}
	r := Resolver{Name: name}
	if a, err := netip.ParseAddr(at); err == nil {
		r.Addr = netip.AddrPortFrom(a, port)
	} else if r.Addr, err = netip.ParseAddrPort(at); err != nil || r.Addr.Port() == 0 {
		return r, fmt.Errorf("%q is not an address or address:port, nor that over TLS, like tls://192.0.2.53:853#dns.example.com", s)
	}
	if isTLS && !named {
		r.Name = r.Addr.Addr().String()
	}
	return r, nil
}

// String is the whole form.
func (r Resolver) String() string {
	if r.Name == "" {
		return r.Addr.String()
	}
	return overTLS + r.Addr.String() + "#" + r.Name
}
