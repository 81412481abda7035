package policies

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"portreeve.dev/policies/hostname"
	"portreeve.dev/policies/netaddr"
)

// FloorLayer is the Layer of the floor's verdicts.
const FloorLayer = "floor"

// EveryOrg in an exemption's Orgs stands for all of them.
const EveryOrg = "*"

// An Exemption opens a part of the soft floor. A platform admin makes it, never an org.
type Exemption struct {
	CIDR  netip.Prefix `json:"cidr"`
	Ports []uint16     `json:"ports,omitempty"` // empty: every port but 25, which has to be named
	Orgs  []string     `json:"orgs"`            // who may use it; EveryOrg for all, empty is an error

	ExpiresAt time.Time `json:"expires_at,omitzero"` // zero: never
}

// FloorConfig is the floor's settings.
type FloorConfig struct {
	Hard   []netip.Prefix // closed beside the fixed ranges: the sandboxes' addresses, our own, the store's
	Always []netip.Prefix // closed like Hard, but an exemption may be around them: a proxy of the company's inside its own range
	Exempt []Exemption
}

// A Floor judges addresses, whatever the policy says. A nil Floor closes everything.
type Floor struct {
	hard   []netip.Prefix // with those that are always closed
	closed []netip.Prefix // what no exemption may touch
	exempt []Exemption
}

// NewFloor checks cfg. No exemption may touch the hard floor, not even with a part of its range.
func NewFloor(cfg FloorConfig) (*Floor, error) {
	hard, err := canonical(cfg.Hard)
	if err != nil {
		return nil, err
	}
	always, err := canonical(cfg.Always)
	if err != nil {
		return nil, err
	}
	f := &Floor{hard: slices.Concat(hard, always)}
	f.closed = slices.Concat(hardRanges, netaddr.Transitional, hard)
	return f.With(cfg.Exempt...)
}

// With returns a floor with these exemptions too. A *FieldError in the error says which field of an exemption is at fault, without its value.
func (f *Floor) With(more ...Exemption) (*Floor, error) {
	if f == nil {
		return nil, nil
	}
	next := *f
	next.exempt = slices.Clone(f.exempt)
	for _, e := range more {
		checked, err := f.check(e)
		if err != nil {
			return nil, fmt.Errorf("floor exemption %v: %w", e.CIDR, err)
		}
		next.exempt = append(next.exempt, checked)
	}
	return &next, nil
}

// check returns the exemption in canonical form.
func (f *Floor) check(e Exemption) (Exemption, error) {
	p, err := netaddr.CanonicalPrefix(e.CIDR)
	if err != nil {
		return e, &FieldError{Path: "cidr", Message: "is no range that ends where its length says", Hint: err.Error()}
	}
	for _, hard := range f.closed {
		if p.Overlaps(hard) {
			return e, &FieldError{Path: "cidr", Message: fmt.Sprintf("overlaps %v, which is hard and can't be opened", hard)}
		}
	}
	if len(e.Orgs) == 0 {
		return e, &FieldError{Path: "orgs", Message: fmt.Sprintf("names no org; %q stands for all", EveryOrg)}
	}
	if i := slices.Index(e.Ports, 0); i >= 0 {
		return e, &FieldError{Path: fmt.Sprintf("ports[%d]", i), Message: "is 0, which is no port"}
	}
	return Exemption{p, slices.Clone(e.Ports), slices.Clone(e.Orgs), e.ExpiresAt}, nil
}

// At returns the floor as it is at that time: without the exemptions that have ended.
func (f *Floor) At(now time.Time) *Floor {
	if f == nil || !slices.ContainsFunc(f.exempt, func(e Exemption) bool { return e.Ended(now) }) {
		return f
	}
	next := *f
	next.exempt = slices.DeleteFunc(slices.Clone(f.exempt), func(e Exemption) bool { return e.Ended(now) })
	return &next
}

// Ended reports whether the exemption opens nothing any more at that time.
func (e *Exemption) Ended(now time.Time) bool {
	return !e.ExpiresAt.IsZero() && !now.Before(e.ExpiresAt)
}

func canonical(ranges []netip.Prefix) (out []netip.Prefix, err error) {
	for _, p := range ranges {
		p, err := netaddr.CanonicalPrefix(p)
		if err != nil {
			return nil, fmt.Errorf("hard floor: %w", err)
		}
		out = append(out, p)
	}
	return out, nil
}

// Judge decides about one address and port, for one org, directly before the dial. Call it with the address that is dialled.
// An allowing verdict has Named set when an exemption was needed: then it holds only if the policy's verdict is Named too.
func (f *Floor) Judge(org string, addr netip.Addr, port uint16) Verdict {
	if f == nil || port == 0 {
		return floorVerdict(ReasonFloorHard)
	}
	class := Classify(addr)
	addr = netaddr.Canonical(addr)
	embedded := netaddr.Embed(addr)
	if class == Hard || contains(f.hard, addr) || slices.ContainsFunc(embedded.All(), func(a netip.Addr) bool { return contains(f.hard, a) }) {
		return floorVerdict(ReasonFloorHard)
	}
	reason := ReasonAllowed
	switch {
	case class != Public:
		reason = ReasonFloorSoft
	case port == 25:
		reason = ReasonPort25
	}
	if reason == ReasonAllowed {
		return Verdict{Action: Allow, Reason: reason, Layer: FloorLayer}
	}
	for i := range f.exempt {
		if f.exempt[i].covers(org, addr, port) {
			return Verdict{Action: Allow, Reason: ReasonAllowed, Layer: FloorLayer, Named: true}
		}
	}
	return floorVerdict(reason)
}

// JudgeAnswer decides about an address that a name has, while no port is known: it is denied if it is closed on every port. Judge
// decides again when it is dialled.
func (f *Floor) JudgeAnswer(org string, addr netip.Addr) Verdict {
	v := f.Judge(org, addr, 443) // the class is the same for every port but 25
	if v.Reason != ReasonFloorSoft {
		return v
	}
	addr = netaddr.Canonical(addr)
	for i := range f.exempt {
		if e := &f.exempt[i]; len(e.Ports) > 0 && e.covers(org, addr, e.Ports[0]) {
			return Verdict{Action: Allow, Reason: ReasonAllowed, Layer: FloorLayer, Named: true}
		}
	}
	return v
}

func (e *Exemption) covers(org string, addr netip.Addr, port uint16) bool {
	if org == "" || !e.CIDR.Contains(addr) || !slices.Contains(e.Orgs, org) && !slices.Contains(e.Orgs, EveryOrg) {
		return false
	}
	return slices.Contains(e.Ports, port) || len(e.Ports) == 0 && port != 25
}

// hardNames lead to the machine itself or to a metadata service, in networks that have one.
var hardNames = map[string]bool{
	"localhost": true, "localhost.localdomain": true, "ip6-localhost": true, "ip6-loopback": true,
	"metadata": true, "metadata.google.internal": true, "metadata.goog": true,
	"instance-data": true, "instance-data.ec2.internal": true,
	"metadata.tencentyun.com": true, "metadata.packet.net": true, "metadata.platformequinix.com": true,
	"rancher-metadata": true, "metadata.azure.internal": true,
}

// JudgeHost decides about a name before anything else is known of it. Its addresses are judged again when they are dialled.
func (f *Floor) JudgeHost(host string) Verdict {
	if f == nil {
		return floorVerdict(ReasonFloorHard)
	}
	name, err := hostname.Normalize(host)
	if err != nil {
		return floorVerdict(ReasonHostInvalid)
	}
	if closedName(name) {
		return floorVerdict(ReasonFloorHard)
	}
	return Verdict{Action: Allow, Reason: ReasonAllowed, Layer: FloorLayer}
}

// closedName reports whether no setting opens a name, which has to be in normal form.
func closedName(name string) bool { return hardNames[name] || strings.HasSuffix(name, ".localhost") }

func floorVerdict(reason Reason) Verdict { return Verdict{Reason: reason, Layer: FloorLayer} }
