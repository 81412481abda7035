package kernel

import (
	"bytes"
	"fmt"
	"net/netip"
	"regexp"
	"slices"

	"github.com/google/nftables"
	bin "github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
)

// The hard floor, as far as an address alone tells it: this network, loopback, link-local with the metadata
// addresses, the synthetic range, multicast, reserved and broadcast; and the clouds' other metadata addresses.
var hard4 = prefixes("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "198.18.0.0/15", "224.0.0.0/3", "100.100.100.200/32", "168.63.129.16/32")

// Unspecified and loopback, IPv4-mapped, link-local, multicast, metadata.
var hard6 = prefixes("::/127", "::ffff:0:0/96", "fe80::/10", "ff00::/8", "fd00:ec2::254/128")

var validTable = regexp.MustCompile(`^[a-z][a-z0-9_]{0,30}$`)

// A Wall is the host's output wall: sockets that UID made reach no local address (whatever leaves by lo), no hard range and none of
// Extra. It is a second wall: policies' floor judges each dial before.
type Wall struct {
	Table   string // this installation's own name
	UID     uint32
	Extra   []netip.Prefix // such as the sandboxes' range
	Answers []uint16       // ports from which it may answer whoever called, but call nobody
	Reach   []Endpoint     // what it may reach wherever that is: the company's proxy
	Only    bool           // it reaches nothing but those
}

// An Endpoint is an address and port, for UDP too if it says so.
type Endpoint struct {
	netip.AddrPort
	UDP bool
}

// WriteWall writes w into the namespace ns.
func WriteWall(ns int, w Wall) error {
	if !validTable.MatchString(w.Table) || w.UID == 0 {
		return fmt.Errorf("writing the wall %q for uid %d: a table's name and an unprivileged uid are needed", w.Table, w.UID)
	}
	t, err := w.table()
	if err != nil {
		return fmt.Errorf("writing the wall %q: %w", w.Table, err)
	}
	return t.write(ns)
}

// RemoveWall takes the wall away; one that isn't there is no error.
func RemoveWall(ns int, tableName string) error { return remove(ns, tableName) }

func (w Wall) table() (*table, error) {
	var four, six []netip.Prefix
	for _, p := range w.Extra {
		switch {
		case !p.IsValid() || p.Bits() == 0:
			return nil, fmt.Errorf("%v is no range", p)
		case p.Addr().Is4():
			four = append(four, p)
		default:
			six = append(six, p)
		}
	}
	four = append(four, hard4...)
	six = append(six, hard6...)
	for _, p := range four {
		six = append(six, translated(p)...)
	}
	set4 := &set{Set: nftables.Set{Name: "hard4", KeyType: nftables.TypeIPAddr, Interval: true}, elements: intervals(four)}
	set6 := &set{Set: nftables.Set{Name: "hard6", KeyType: nftables.TypeIP6Addr, Interval: true}, elements: intervals(six)}
	// A positive match, never "not this uid: accept": skuid breaks its rule off on packets without an owner, such
	// as the kernel's own refusals, and they would be refused in turn.
	edge := is(expr.MetaKeySKUID, bin.NativeEndian.PutUint32(w.UID)...)
	var output []rule
	for _, port := range w.Answers {
		output = append(output, join(edge, tcp(), sourcePort(port), opening(expr.CmpOpNeq), accept()))
	}
	for _, e := range w.Reach {
		if !e.IsValid() || e.Port() == 0 {
			return nil, fmt.Errorf("%v is no address and port", e.AddrPort)
		}
		output = append(output, join(edge, e.to(), tcp(), destPort(e.Port()), accept()))
		if e.UDP {
			output = append(output, join(edge, e.to(), udp(), destPort(e.Port()), accept()))
		}
	}
	if w.Only {
		output = append(output, join(edge, count(), rejectProhibited()))
	}
	output = append(output, join(edge, goTo("hard")))
	return &table{
		name: w.Table,
		sets: []*set{set4, set6},
		chains: []*chain{
			{name: "hard", rules: []rule{
				// Every local address, also a public one of this machine, leaves by lo.
				join(is(expr.MetaKeyOIFNAME, linkName("lo")...), count(), rejectProhibited()),
				join(ipv4(), rule{payload(1, expr.PayloadBaseNetworkHeader, 16, 4), lookup(&set4.Set, false)}, count(), rejectProhibited()),
				join(ipv6(), rule{payload(1, expr.PayloadBaseNetworkHeader, 24, 16), lookup(&set6.Set, false)}, count(), rejectProhibited()),
			}},
			{name: "output", hook: nftables.ChainHookOutput, priority: 0, policy: nftables.ChainPolicyAccept, rules: output},
		},
	}, nil
}

// to matches what goes to the endpoint's address.
func (e Endpoint) to() rule {
	a := e.Addr().Unmap()
	if a.Is4() {
		return join(ipv4(), rule{payload(1, expr.PayloadBaseNetworkHeader, 16, 4), matches(expr.CmpOpEq, a.AsSlice()...)})
	}
	return join(ipv6(), rule{payload(1, expr.PayloadBaseNetworkHeader, 24, 16), matches(expr.CmpOpEq, a.AsSlice()...)})
}

// translated returns the ranges by which IPv6 can name the IPv4 range p: NAT64's well-known prefix and 6to4.
func translated(p netip.Prefix) []netip.Prefix {
	a := p.Masked().Addr().As4()
	nat64 := [16]byte{0x00, 0x64, 0xff, 0x9b, 12: a[0], 13: a[1], 14: a[2], 15: a[3]}
	sixToFour := [16]byte{0x20, 0x02, a[0], a[1], a[2], a[3]}
	return []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom16(nat64), 96+p.Bits()),
		netip.PrefixFrom(netip.AddrFrom16(sixToFour), 16+p.Bits()),
	}
}

// intervals turns ranges of one family into the elements of an interval set: a start, and the first address behind
// it, none where the range ends with the last address. Overlapping and touching ranges become one.
func intervals(ranges []netip.Prefix) []nftables.SetElement {
	type span struct{ start, end []byte } // end nil: to the last address
	var spans []span
	for _, p := range ranges {
		spans = append(spans, span{p.Masked().Addr().AsSlice(), behind(p)})
	}
	slices.SortFunc(spans, func(a, b span) int { return bytes.Compare(a.start, b.start) })
	var merged []span
	for _, s := range spans {
		last := len(merged) - 1
		switch {
		case last < 0 || merged[last].end != nil && bytes.Compare(s.start, merged[last].end) > 0:
			merged = append(merged, s)
		case merged[last].end == nil:
		case s.end == nil || bytes.Compare(s.end, merged[last].end) > 0:
			merged[last].end = s.end
		}
	}
	var elements []nftables.SetElement
	for _, s := range merged {
		elements = append(elements, nftables.SetElement{Key: s.start})
		if s.end != nil {
			elements = append(elements, nftables.SetElement{Key: s.end, IntervalEnd: true})
		}
	}
	return elements
}

// behind is the first address behind the range, nil where there is none.
func behind(p netip.Prefix) []byte {
	b := p.Masked().Addr().AsSlice()
	last := p.Bits() - 1
	for i := last / 8; i >= 0; i-- {
		step := byte(1)
		if i == last/8 {
			step = 1 << (7 - last%8)
		}
		b[i] += step
		if b[i] >= step { // no carry
			return b
		}
	}
	return nil
}

func prefixes(s ...string) (p []netip.Prefix) {
	for _, x := range s {
		p = append(p, netip.MustParsePrefix(x))
	}
	return p
}
