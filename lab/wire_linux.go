package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The lab's addresses: documentation ranges, which the product refuses unless its configuration exempts them.
var (
	near = netip.MustParsePrefix("203.0.113.0/24")
	far  = netip.MustParsePrefix("198.51.100.0/24")
	six  = netip.MustParsePrefix("2001:db8:113::/64")

	gatewayAddr  = netip.MustParseAddr("203.0.113.2") // where the product's packets come from
	routerAddr   = netip.MustParseAddr("203.0.113.1") // its next hop, the lab's end of the link
	dnsAddr      = netip.MustParseAddr("203.0.113.53")
	goodAddr     = netip.MustParseAddr("203.0.113.10")
	apiAddr      = netip.MustParseAddr("203.0.113.20")
	wildAddr     = netip.MustParseAddr("203.0.113.30")
	badCertAddr  = netip.MustParseAddr("203.0.113.31")
	tcpAddr      = netip.MustParseAddr("203.0.113.40")
	proxyAddr    = netip.MustParseAddr("203.0.113.80") // the company's proxy, where there is one
	evilAddr     = netip.MustParseAddr("198.51.100.66")
	privateAddr  = netip.MustParseAddr("10.1.2.3")    // a company's own host: nothing opens it but an exemption that names it
	publicAddr   = netip.MustParseAddr("11.22.33.44") // like any host's on the internet: open without an exemption
	gatewayAddr6 = netip.MustParseAddr("2001:db8:113::2")
	routerAddr6  = netip.MustParseAddr("2001:db8:113::1")
	evilAddr6    = netip.MustParseAddr("2001:db8:66::66")
)

const (
	gatewayLink = "up0"  // the product's uplink
	netLink     = "net0" // its other end, where the capture listens
)

// wire joins the two namespaces and gives the lab's side all addresses of its services.
func wire(gateway, net *Namespace) error {
	h, err := net.netlink()
	if err != nil {
		return err
	}
	defer h.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = netLink
	// The pair is made where its ends belong, so nothing of it is ever seen in the machine's own namespace.
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: gatewayLink, PeerNamespace: netlink.NsFd(int(gateway.handle))}
	if err := h.LinkAdd(veth); err != nil {
		return fmt.Errorf("making the link: %w", err)
	}
	service := []netip.Addr{dnsAddr, goodAddr, apiAddr, wildAddr, badCertAddr, tcpAddr, proxyAddr, publicAddr, privateAddr, evilAddr, evilAddr6}
	addrs := []netip.Prefix{netip.PrefixFrom(routerAddr, near.Bits()), netip.PrefixFrom(routerAddr6, six.Bits())}
	for _, a := range service {
		addrs = append(addrs, netip.PrefixFrom(a, a.BitLen()))
	}
	if err := bringUp(h, netLink, addrs); err != nil {
		return err
	}
	g, err := gateway.netlink()
	if err != nil {
		return err
	}
	defer g.Close()
	own := []netip.Prefix{netip.PrefixFrom(gatewayAddr, near.Bits()), netip.PrefixFrom(gatewayAddr6, six.Bits())}
	if err := bringUp(g, gatewayLink, own); err != nil {
		return err
	}
	if err := errors.Join(awaitUp(h, netLink), awaitUp(g, gatewayLink)); err != nil {
		return err
	}
	return defaultRoutes(g)
}

// awaitUp returns once the kernel has given the link a queue: before, it drops what is sent.
func awaitUp(h *netlink.Handle, name string) error {
	return Await(10*time.Second, "the link "+name+" to come up", func() bool {
		link, err := h.LinkByName(name)
		return err == nil && link.Attrs().OperState == netlink.OperUp
	})
}

func bringUp(h *netlink.Handle, name string, addrs []netip.Prefix) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return err
	}
	if err := h.LinkSetUp(link); err != nil {
		return err
	}
	for _, a := range addrs {
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}}
		if a.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD // usable at once
		}
		if err := h.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("adding %v to %s: %w", a, name, err)
		}
	}
	return nil
}

// AddGatewayAddr gives the product's uplink another address of the near range.
func (l *Lab) AddGatewayAddr(a netip.Addr) error {
	return l.changeGatewayAddr(a, (*netlink.Handle).AddrAdd)
}

// RemoveGatewayAddr takes such an address away.
func (l *Lab) RemoveGatewayAddr(a netip.Addr) error {
	return l.changeGatewayAddr(a, (*netlink.Handle).AddrDel)
}

func (l *Lab) changeGatewayAddr(a netip.Addr, change func(*netlink.Handle, netlink.Link, *netlink.Addr) error) error {
	h, err := l.Gateway.netlink()
	if err != nil {
		return err
	}
	defer h.Close()
	link, err := h.LinkByName(gatewayLink)
	if err != nil {
		return err
	}
	return change(h, link, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(near.Bits(), a.BitLen())}})
}

func defaultRoutes(h *netlink.Handle) error {
	link, err := h.LinkByName(gatewayLink)
	if err != nil {
		return err
	}
	for _, via := range []netip.Addr{routerAddr, routerAddr6} {
		if err := h.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: via.AsSlice()}); err != nil {
			return fmt.Errorf("adding the default route via %v: %w", via, err)
		}
	}
	return nil
}
