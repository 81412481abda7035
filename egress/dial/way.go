package dial

import (
	"context"
	"net"
	"net/netip"
	"strconv"
)

// A Way is how one org's connections leave. The zero value goes through the company's proxy where there is one.
type Way struct {
	Direct bool // not through the company's proxy
	// Sources are the addresses that connections leave from, one of a family; none: the kernel chooses. A connection that can't leave
	// from one of them is not made.
	Sources []netip.Addr
}

// SetWays switches the ways of orgs, by id, for all later dials. An org that isn't among them has the zero value.
func (d *Dialer) SetWays(ways map[string]Way) { d.ways.Store(&ways) }

func (d *Dialer) way(org string) Way {
	if ways := d.ways.Load(); ways != nil {
		return (*ways)[org]
	}
	return Way{}
}

// upstream is the proxy that org's connections go through; nil for none.
func (d *Dialer) upstream(org string) *UpstreamProxy {
	if d.way(org).Direct {
		return nil
	}
	return d.cfg.Upstream
}

// open makes the connection to a, which was judged. check judges it once more at the last moment.
func (d *Dialer) open(ctx context.Context, t Target, a netip.AddrPort, check func(netip.AddrPort) error) (net.Conn, error) {
	if u := d.upstream(t.Org); u != nil {
		if err := check(a); err != nil {
			return nil, err
		}
		return u.reach(ctx, d.way(t.Org), u.asked(t, a))
	}
	return d.way(t.Org).connect(ctx, a, check)
}

// asked is what the proxy is asked for: the address that was judged, or the name if the operator wants that.
func (u *UpstreamProxy) asked(t Target, a netip.AddrPort) string {
	if u.ByName && t.Host != "" {
		return net.JoinHostPort(t.Host, strconv.Itoa(int(a.Port())))
	}
	return a.String()
}
