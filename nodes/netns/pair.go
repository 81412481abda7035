package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	vns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	sandboxLink = "eth0"
	mtu         = 1500
)

// Pair is the link between one sandbox's netns and the edge netns.
type Pair struct {
	Name      string     // of the sandbox's netns
	Interface string     // the edge's end; the other is eth0
	Gateway   netip.Addr // of the edge's end: even
	Sandbox   netip.Addr // of eth0: odd

	edge *Edge
}

// Gateway is the edge's half of the /31 pair of that sandbox address.
func Gateway(sandbox netip.Addr) netip.Addr {
	b := sandbox.As4()
	b[3] &^= 1
	return netip.AddrFrom4(b)
}

// Pair makes the netns called name, and a link from it to the edge netns whose edge end is down: nothing passes
// before Up. What was made is removed again when it fails.
func (e *Edge) Pair(ctx context.Context, name string, sandbox netip.Addr) (*Pair, error) {
	if !sandbox.Is4() || sandbox.As4()[3]&1 == 0 {
		return nil, fmt.Errorf("making pair %q: %v is not the odd half of a pair", name, sandbox)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("making pair %q: %w", name, err)
	}
	release, err := e.use()
	if err != nil {
		return nil, err
	}
	defer release()
	ns, err := create(name, furnishSandbox)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	p := &Pair{Name: name, Gateway: Gateway(sandbox), Sandbox: sandbox, edge: e}
	if err := p.link(ns); err != nil {
		return nil, errors.Join(fmt.Errorf("making pair %q: %w", name, err), p.remove())
	}
	return p, nil
}

// Adopt finds the pair of a netns that an earlier process made.
func (e *Edge) Adopt(name string) (*Pair, error) {
	release, err := e.use()
	if err != nil {
		return nil, err
	}
	defer release()
	ns, err := open(name)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(vns.NsHandle(ns.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("adopting pair %q: %w", name, err)
	}
	defer h.Close()
	inner, err := h.LinkByName(sandboxLink)
	if err != nil {
		return nil, fmt.Errorf("adopting pair %q: finding %s: %w", name, sandboxLink, err)
	}
	outer, err := e.nl.LinkByIndex(inner.Attrs().ParentIndex)
	if err != nil {
		return nil, fmt.Errorf("adopting pair %q: finding the edge's end: %w", name, err)
	}
	// Indexes are counted per namespace: the two must name each other.
	if outer.Type() != "veth" || outer.Attrs().ParentIndex != inner.Attrs().Index {
		return nil, fmt.Errorf("adopting pair %q: %q is not the other end of %s", name, outer.Attrs().Name, sandboxLink)
	}
	addrs, err := e.nl.AddrList(outer, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("adopting pair %q: %w", name, err)
	}
	if len(addrs) != 1 {
		return nil, fmt.Errorf("adopting pair %q: %q has %d addresses", name, outer.Attrs().Name, len(addrs))
	}
	gw, _ := netip.AddrFromSlice(addrs[0].IP.To4())
	if gw != Gateway(gw) {
		return nil, fmt.Errorf("adopting pair %q: %v is not the even half of a pair", name, gw)
	}
	return &Pair{Name: name, Interface: outer.Attrs().Name, Gateway: gw, Sandbox: gw.Next(), edge: e}, nil
}

// Path is the sandbox's netns, for the runtime's spec.
func (p *Pair) Path() string { return Path(p.Name) }

// Up sets the edge's end up and returns once packets flow. The firewall's element must be in place before.
func (p *Pair) Up(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("setting %q up: %w", p.Interface, err)
	}
	release, err := p.edge.use()
	if err != nil {
		return err
	}
	defer release()
	l, err := p.edge.nl.LinkByName(p.Interface)
	if err == nil {
		err = p.edge.nl.LinkSetUp(l)
	}
	if err == nil {
		err = p.awaitUp(ctx)
	}
	if err != nil {
		return fmt.Errorf("setting %q up: %w", p.Interface, err)
	}
	return nil
}

// upLimit is how long the kernel may take to give a link its queue, and upLook how often we look.
const (
	upLimit = 2 * time.Second
	upLook  = 5 * time.Millisecond
)

// awaitUp returns once both ends are operational. The kernel does that after the call that sets a link up, behind whatever
// else holds its lock, the removal of other namespaces above all; until then it drops what is sent, and the first question
// for a neighbour is asked again only after a second.
func (p *Pair) awaitUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, upLimit)
	defer cancel()
	look := time.NewTicker(upLook)
	defer look.Stop()
	ns, err := open(p.Name)
	if err != nil {
		return err
	}
	defer ns.Close()
	inner, err := netlink.NewHandleAt(vns.NsHandle(ns.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer inner.Close()
	for {
		outerUp, err1 := isUp(p.edge.nl, p.Interface)
		innerUp, err2 := isUp(inner, sandboxLink)
		if err := errors.Join(err1, err2); err != nil || outerUp && innerUp {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the kernel does not bring it up: %w", ctx.Err())
		case <-look.C:
		}
	}
}

func isUp(h *netlink.Handle, name string) (bool, error) {
	l, err := h.LinkByName(name)
	if err != nil {
		return false, err
	}
	return l.Attrs().OperState == netlink.OperUp, nil
}

// Readdress puts eth0's address and route back. runsc takes both off eth0 whenever it starts or restores, and
// reads them from there at the next time.
func (p *Pair) Readdress(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("addressing pair %q: %w", p.Name, err)
	}
	ns, err := open(p.Name)
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := p.address(ns); err != nil {
		return fmt.Errorf("addressing pair %q: %w", p.Name, err)
	}
	return nil
}

// Remove ends the link, at both ends and at once, and then the netns. Removing what is gone is no error.
// The firewall's element goes before, the processes inside too.
func (p *Pair) Remove() error {
	release, err := p.edge.use()
	if err != nil {
		return err
	}
	defer release()
	return p.remove()
}

func (p *Pair) remove() error {
	var err error
	if p.Interface != "" {
		err = p.unlink()
	}
	return errors.Join(err, Remove(p.Name))
}

func (p *Pair) unlink() error {
	l, err := p.edge.nl.LinkByName(p.Interface)
	if err == nil {
		err = p.edge.nl.LinkDel(l)
	}
	if notFound := (netlink.LinkNotFoundError{}); errors.As(err, &notFound) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing link %q: %w", p.Interface, err)
	}
	return nil
}

// link makes the veth: its edge end with an address and down, its other end ready.
func (p *Pair) link(ns *os.File) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = interfaceName(), mtu
	err := p.edge.nl.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: sandboxLink, PeerNamespace: netlink.NsFd(ns.Fd())})
	if err != nil {
		return fmt.Errorf("adding link: %w", err)
	}
	p.Interface = attrs.Name
	outer, err := p.edge.nl.LinkByName(p.Interface)
	if err != nil {
		return fmt.Errorf("finding %q: %w", p.Interface, err)
	}
	if err := p.edge.nl.AddrAdd(outer, half(p.Gateway)); err != nil {
		return fmt.Errorf("addressing %q: %w", p.Interface, err)
	}
	return p.address(ns)
}

func (p *Pair) address(ns *os.File) error {
	h, err := netlink.NewHandleAt(vns.NsHandle(ns.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := h.LinkByName(sandboxLink)
	if err != nil {
		return fmt.Errorf("finding %s: %w", sandboxLink, err)
	}
	if err := h.AddrReplace(l, half(p.Sandbox)); err != nil {
		return fmt.Errorf("addressing %s: %w", sandboxLink, err)
	}
	if err := h.LinkSetUp(l); err != nil {
		return fmt.Errorf("setting %s up: %w", sandboxLink, err)
	}
	if err := h.RouteReplace(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: everywhere(), Gw: p.Gateway.AsSlice()}); err != nil {
		return fmt.Errorf("routing by %s: %w", sandboxLink, err)
	}
	return nil
}

func furnishSandbox() error {
	if err := apply(sandboxSettings); err != nil {
		return err
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening netlink: %w", err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err == nil {
		err = h.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("setting lo up: %w", err)
	}
	return nil
}

func half(a netip.Addr) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(31, 32)}}
}
