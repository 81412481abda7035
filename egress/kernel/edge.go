package kernel

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/nftables"
	bin "github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// EdgeTable is the name of the table in the edge netns.
const EdgeTable = "portreeve"

const (
	proxyPort = 15001
	dnsPort   = 53

	markProxy  = 1 // to a listener; the netns' rule sends it to lo
	markInward = 2 // a reply to an inward dial
)

// Budgets per link and second: new connections, DNS queries, and refusals that we send. A burst is twice that.
const (
	defaultConnects = 200
	defaultLookups  = 500
	refuseRate      = 50
)

// Chains whose rules Counters reads, and the place of the counting rule in each.
const (
	chainDiscard, chainRefuse, chainProxy     = "discard", "refuse", "proxy"
	ruleCount                                 = 1 // in discard and refuse
	ruleProxyDNS, ruleProxyTCP, ruleProxyDead = 0, 1, 2
)

// EdgeOptions says how the table is written.
type EdgeOptions struct {
	// KeepBound carries the elements of the bound set over from the table that is there, in the same step.
	// Without it every sandbox is cut off until it is bound again. Don't call Bound meanwhile.
	KeepBound bool

	// SetSize is how many links each budget and counter holds, default 65536. Beyond it new links are refused.
	SetSize uint32

	// Connects and Lookups are how many connections and DNS queries a link may begin in a second, and twice as many at
	// once; default 200 and 500.
	Connects, Lookups uint32
}

// WriteEdgeTable writes the table into the namespace ns, in place of one that is there, and reads it back. The
// error names what differs, and tables that others put there.
func WriteEdgeTable(ns int, o EdgeOptions) error {
	t := edgeTable(o)
	if o.KeepBound {
		bound, err := boundElements(ns)
		if err != nil {
			return err
		}
		t.sets[0].elements = bound
	}
	if err := t.write(ns); err != nil {
		return err
	}
	return CheckEdgeTable(ns, o)
}

// CheckEdgeTable compares the table with what WriteEdgeTable would write, the bound set's elements aside, and names
// every other table of the namespace.
func CheckEdgeTable(ns int, o EdgeOptions) error {
	c, err := connect(ns)
	if err != nil {
		return err
	}
	defer func() { _ = c.CloseLasting() }()
	return errors.Join(append(foreign(c, EdgeTable), edgeTable(o).compare(c, ns))...)
}

// RemoveEdgeTable takes the table away: then nothing of a sandbox reaches anything.
func RemoveEdgeTable(ns int) error { return remove(ns, EdgeTable) }

func edgeTable(o EdgeOptions) *table {
	for _, d := range []struct {
		v    *uint32
		then uint32
	}{{&o.SetSize, 65536}, {&o.Connects, defaultConnects}, {&o.Lookups, defaultLookups}} {
		if *d.v == 0 {
			*d.v = d.then
		}
	}
	perLink := func(name string) *set {
		return &set{open: true, Set: nftables.Set{
			Name: name, KeyType: nftables.TypeIFName, KeyByteOrder: bin.NativeEndian,
			Dynamic: true, HasTimeout: true, Timeout: time.Minute, Size: o.SetSize,
		}}
	}
	bound := &set{open: true, Set: boundSet()}
	syn, dns, refusals := perLink("syn"), perLink("dns"), perLink("refusals")
	dropped, refused := perLink("dropped"), perLink("refused")
	return &table{
		name: EdgeTable,
		sets: []*set{bound, syn, dns, refusals, dropped, refused},
		chains: []*chain{
			{name: chainDiscard, rules: []rule{tally(&dropped.Set), join(count(), drop())}},
			{name: chainRefuse, rules: []rule{tally(&refused.Set), join(count(), rejectPort())}},
			{name: chainProxy, rules: proxyRules()},
			// Defragmentation, which tproxy turns on, is at -400.
			{name: "guard", hook: nftables.ChainHookPrerouting, priority: -450, policy: nftables.ChainPolicyDrop,
				rules: guardRules(&bound.Set, &refusals.Set)},
			{name: "steer", hook: nftables.ChainHookPrerouting, priority: -150, policy: nftables.ChainPolicyDrop,
				rules: steerRules(&syn.Set, &dns.Set, &refusals.Set, o)},
			{name: "input", hook: nftables.ChainHookInput, priority: 0, policy: nftables.ChainPolicyDrop, rules: []rule{
				join(isMark(markProxy), accept()),
				join(isMark(markInward), accept()),
			}},
			{name: "forward", hook: nftables.ChainHookForward, priority: 0, policy: nftables.ChainPolicyDrop},
			{name: "output", hook: nftables.ChainHookOutput, priority: -300, policy: nftables.ChainPolicyDrop, rules: outputRules()},
		},
	}
}

func guardRules(bound, refusals *nftables.Set) []rule {
	return []rule{
		join(isNot(expr.MetaKeyNFPROTO, unix.NFPROTO_IPV4), goTo(chainDiscard)),
		{ // lo is never bound: nothing comes from there either
			load(expr.MetaKeyIIFNAME), payload(2, expr.PayloadBaseNetworkHeader, 12, 4),
			lookup(bound, true), &expr.Verdict{Kind: expr.VerdictGoto, Chain: chainDiscard},
		},
		join(isFragment(), goTo(chainDiscard)),
		{&expr.Notrack{}},
		join(tcp(), accept()),
		join(udp(), destPort(dnsPort), accept()),
		join(udp(), budget(refusals, refuseRate), goTo(chainRefuse)),
		goTo(chainDiscard),
	}
}

func steerRules(syn, dns, refusals *nftables.Set, o EdgeOptions) []rule {
	notTransparent := socketIs(expr.SocketKeyTransparent, 0)
	return []rule{
		// Replies to inward dials: a socket bound to one address, and not transparent as the listeners' are.
		join(tcp(), socketIs(expr.SocketKeyWildcard, 0), notTransparent, setMark(markInward), accept()),
		// The same when inward closed first: "wildcard" breaks off on sockets in TIME_WAIT and FIN_WAIT2.
		join(tcp(), opening(expr.CmpOpNeq), notTransparent, setMark(markInward), accept()),
		join(tcp(), opening(expr.CmpOpEq), budget(syn, o.Connects), goTo(chainProxy)),
		join(tcp(), opening(expr.CmpOpEq), goTo(chainDiscard)),
		join(tcp(), goTo(chainProxy)),
		join(udp(), budget(dns, o.Lookups), ipv4(), tproxy(dnsPort), setMark(markProxy), accept()),
		// Over the budget, or nobody listens.
		join(udp(), budget(refusals, refuseRate), goTo(chainRefuse)),
		goTo(chainDiscard),
	}
}

func proxyRules() []rule {
	return []rule{
		join(ipv4(), tcp(), destPort(dnsPort), tproxy(dnsPort), setMark(markProxy), count(), accept()),
		join(ipv4(), tcp(), tproxy(proxyPort), setMark(markProxy), count(), accept()),
		join(tcp(), count(), rejectReset()), // nobody listens
	}
}

func outputRules() []rule {
	return []rule{
		join(is(expr.MetaKeyOIFNAME, linkName("lo")...), drop()), // nothing here talks to itself
		{&expr.Notrack{}},
		join(ipv4(), tcp(), accept()),
		join(ipv4(), udp(), sourcePort(dnsPort), accept()),
		// Destination unreachable: our own refusals.
		join(ipv4(), is(expr.MetaKeyL4PROTO, unix.IPPROTO_ICMP), rule{payload(1, expr.PayloadBaseTransportHeader, 0, 1), matches(expr.CmpOpEq, 3)}, accept()),
	}
}

func boundSet() nftables.Set {
	return nftables.Set{Name: "bound", Concatenation: true, KeyType: nftables.MustConcatSetType(nftables.TypeIFName, nftables.TypeIPAddr)}
}

func boundElements(ns int) ([]nftables.SetElement, error) {
	bound, err := NewBound(ns).List()
	if err != nil {
		return nil, fmt.Errorf("keeping the bound set: %w", err)
	}
	var elements []nftables.SetElement
	for _, b := range bound {
		elements = append(elements, b.element())
	}
	return elements, nil
}
