package policies

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"portreeve.dev/policies/netaddr"
)

// closed reports whether the floor leaves nothing of the rule, and tells what it takes whole.
func (l *linter) closed(i int, r *Rule) bool {
	targets := targetsOf(r)
	ports := l.under.ports(r.Ports)
	by := make([]Reason, len(targets))
	whole := true
	for n, t := range targets {
		by[n] = l.under.closes(t, ports)
		whole = whole && by[n] != ""
	}
	for n, t := range targets {
		if by[n] == "" {
			continue
		}
		field, hint := t.field, "remove it: no setting opens it"
		if by[n] != ReasonFloorHard {
			hint = "remove it, or have the platform's administrator open it by an exemption"
		}
		what := fmt.Sprint("the floor closes ", t)
		if by[n] == ReasonPort25 {
			what += " on port 25"
		}
		if whole {
			field = ""
		}
		l.tell(i, field, FindNeverMatches, hint, "%s (%s), whatever the rules say", what, by[n])
		if whole {
			return true
		}
	}
	return false
}

// floorSteps bounds what is asked of the floor for one document. What lies beyond is not told: lint is help, and no judge.
const floorSteps = 1 << 20

// A floorCover finds out what the floor closes whole.
type floorCover struct {
	floor *Floor
	org   string
	cuts  []netip.Prefix // ranges within which everything is judged alike, where no smaller one lies in them
	named []uint16       // ports of exemptions
	steps int
}

func newFloorCover(f *Floor, org string) *floorCover {
	if f == nil {
		f = &Floor{}
	}
	c := &floorCover{floor: f, org: org, steps: floorSteps, cuts: slices.Concat(hardRanges, softRanges, netaddr.Transitional, []netip.Prefix{globalUnicast}, f.hard)}
	for _, e := range f.exempt {
		if !slices.Contains(e.Orgs, org) && !slices.Contains(e.Orgs, EveryOrg) {
			continue
		}
		c.cuts, c.named = append(c.cuts, e.CIDR), append(c.named, e.Ports...)
	}
	return c
}

// ports are those of the rule that the floor may tell from each other: one of each range, another than 25, and those of exemptions.
func (c *floorCover) ports(of []PortRange) []uint16 {
	var all []uint16
	for _, p := range of {
		all = append(all, p.First)
		if p.First == 25 && p.Last > 25 {
			all = append(all, 26)
		}
		for _, port := range c.named {
			if p.First <= port && port <= p.Last {
				all = append(all, port)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// closes is the reason why nothing of t can be reached on any of the ports; empty where something can, or there is no telling.
func (c *floorCover) closes(t target, ports []uint16) Reason {
	switch {
	case t.any:
		return ""
	case t.prefix.IsValid():
		return c.closesRange(t.prefix, ports)
	case t.suffix != "" && closedName("any."+t.suffix), t.host != "" && closedName(t.host):
		return ReasonFloorHard
	}
	return ""
}

// closesRange halves p until each part is judged alike, and asks about each. If only a part of it could be opened, that is the reason.
func (c *floorCover) closesRange(p netip.Prefix, ports []uint16) Reason {
	if c.steps -= len(ports); c.steps < 0 {
		return ""
	}
	if slices.ContainsFunc(c.cuts, func(cut netip.Prefix) bool { return cut.Bits() > p.Bits() && cut.Overlaps(p) }) {
		low, high := halves(p)
		a := c.closesRange(low, ports)
		if a == "" {
			return ""
		}
		b := c.closesRange(high, ports)
		if b == "" || a == ReasonFloorHard {
			return b
		}
		return a
	}
	if !p.IsSingleIP() && slices.ContainsFunc(netaddr.Transitional, p.Overlaps) {
		return "" // each address of it is judged by the one inside
	}
	reason := Reason("")
	for _, port := range ports {
		v := c.floor.Judge(c.org, p.Addr(), port)
		if v.Allowed() {
			return ""
		}
		reason = v.Reason
	}
	return reason
}

// halves splits a range of more than one address.
func halves(p netip.Prefix) (low, high netip.Prefix) {
	bits := p.Bits() + 1
	low = netip.PrefixFrom(p.Addr(), bits)
	if p.Addr().Is4() {
		b := p.Addr().As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])|1<<(32-bits))
		return low, netip.PrefixFrom(netip.AddrFrom4(b), bits)
	}
	b := p.Addr().As16()
	b[(bits-1)/8] |= 1 << (7 - (bits-1)%8)
	return low, netip.PrefixFrom(netip.AddrFrom16(b), bits)
}
