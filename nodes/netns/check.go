package netns

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Check reads the edge netns back and names everything that makes it more than a dead end: links that are neither
// lo nor a veth end, default routes and gateways, forwarding, IPv6, and a missing way to the listeners.
// It reads all links, so call it at start and now and then, not per sandbox.
func (e *Edge) Check() error {
	release, err := e.use()
	if err != nil {
		return err
	}
	defer release()
	errs := e.checkLinks()
	errs = append(errs, e.checkRoutes()...)
	errs = append(errs, e.checkRule()...)
	err = Do(e.Fd(), func() error {
		errs = append(errs, differing(edgeSettings)...)
		return nil
	})
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return fmt.Errorf("checking edge netns %q: %w", e.Name, errors.Join(errs...))
	}
	return nil
}

func (e *Edge) checkLinks() (errs []error) {
	links, err := e.nl.LinkList()
	if err != nil {
		return []error{fmt.Errorf("listing links: %w", err)}
	}
	for _, l := range links {
		a := l.Attrs()
		switch {
		case a.Flags&net.FlagLoopback != 0:
			if a.Flags&net.FlagUp == 0 {
				errs = append(errs, fmt.Errorf("link %q is down", a.Name))
			}
		case l.Type() != "veth":
			errs = append(errs, fmt.Errorf("link %q is a %s: only lo and veth ends may be here", a.Name, l.Type()))
		}
	}
	return errs
}

func (e *Edge) checkRoutes() (errs []error) {
	// A filter on the unspecified table means every table.
	routes, err := e.nl.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return []error{fmt.Errorf("listing routes: %w", err)}
	}
	found := false
	for _, r := range routes {
		whole := r.Dst == nil || isEverywhere(r.Dst)
		switch {
		case whole && r.Table == proxyTable && r.Type == unix.RTN_LOCAL:
			found = true
		case whole:
			errs = append(errs, fmt.Errorf("default route in table %d: %s", r.Table, r))
		case r.Gw != nil || len(r.MultiPath) > 0:
			errs = append(errs, fmt.Errorf("route with a gateway in table %d: %s", r.Table, r))
		}
	}
	if !found {
		errs = append(errs, fmt.Errorf("table %d lacks its local default route", proxyTable))
	}
	return errs
}

func (e *Edge) checkRule() []error {
	rules, err := e.nl.RuleList(netlink.FAMILY_V4)
	if err != nil {
		return []error{fmt.Errorf("listing rules: %w", err)}
	}
	for _, r := range rules {
		if r.Mark == proxyMark && r.Table == proxyTable {
			return nil
		}
	}
	return []error{fmt.Errorf("no rule sends mark %d to table %d", proxyMark, proxyTable)}
}

func isEverywhere(n *net.IPNet) bool {
	ones, _ := n.Mask.Size()
	return ones == 0
}
