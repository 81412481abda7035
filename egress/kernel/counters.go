package kernel

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Tally is packets and bytes.
type Tally struct{ Packets, Bytes uint64 }

// LinkCounters are those of one link. They begin at 0 again after a minute in which nothing was counted.
type LinkCounters struct{ Dropped, Refused Tally }

// Counters are what the edge table counted since it was written.
type Counters struct {
	Dropped  Tally // without an answer
	Refused  Tally // UDP, by an ICMP message
	Reset    Tally // TCP, because nobody listens
	Proxied  Tally // TCP packets to the proxy
	DNSTCP   Tally // TCP packets to the resolver
	PerLinks map[string]LinkCounters
}

// ReadCounters reads the counters of the table in the namespace ns.
func ReadCounters(ns int) (*Counters, error) {
	rules, err := dumpRules(ns, EdgeTable)
	if err != nil {
		return nil, fmt.Errorf("reading counters: %w", err)
	}
	out := &Counters{PerLinks: map[string]LinkCounters{}}
	for _, r := range []struct {
		chain string
		index int
		to    *Tally
	}{
		{chainDiscard, ruleCount, &out.Dropped}, {chainRefuse, ruleCount, &out.Refused},
		{chainProxy, ruleProxyDNS, &out.DNSTCP}, {chainProxy, ruleProxyTCP, &out.Proxied}, {chainProxy, ruleProxyDead, &out.Reset},
	} {
		if len(rules[r.chain]) <= r.index {
			return nil, fmt.Errorf("reading counters: chain %q has no rule %d", r.chain, r.index)
		}
		if *r.to, err = counterOf(rules[r.chain][r.index]); err != nil {
			return nil, fmt.Errorf("reading counters: chain %q: %w", r.chain, err)
		}
	}
	c, err := connect(ns)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.CloseLasting() }()
	for _, s := range []struct {
		name string
		to   func(*LinkCounters) *Tally
	}{
		{"dropped", func(l *LinkCounters) *Tally { return &l.Dropped }},
		{"refused", func(l *LinkCounters) *Tally { return &l.Refused }},
	} {
		elements, err := c.GetSetElements(&nftables.Set{Name: s.name, Table: &nftables.Table{Name: EdgeTable, Family: nftables.TableFamilyINet}})
		if err != nil {
			return nil, fmt.Errorf("reading counters: set %q: %w", s.name, err)
		}
		for _, e := range elements {
			if e.Counter == nil {
				continue
			}
			name := strings.TrimRight(string(e.Key), "\x00")
			l := out.PerLinks[name]
			*s.to(&l) = Tally{Packets: e.Counter.Packets, Bytes: e.Counter.Bytes}
			out.PerLinks[name] = l
		}
	}
	return out, nil
}

// counterOf finds the counter in a rule's expression list.
func counterOf(exprs []byte) (Tally, error) {
	list, err := netlink.UnmarshalAttributes(exprs)
	if err != nil {
		return Tally{}, err
	}
	for _, e := range list {
		name, data, err := nameAndData(e.Data)
		if err != nil {
			return Tally{}, err
		}
		if name == "counter" {
			return decodeCounter(data)
		}
	}
	return Tally{}, fmt.Errorf("no counter in the rule")
}

func decodeCounter(b []byte) (t Tally, err error) {
	attrs, err := netlink.UnmarshalAttributes(b)
	if err != nil {
		return t, err
	}
	for _, a := range attrs {
		if len(a.Data) != 8 {
			continue
		}
		switch a.Type & typeMask {
		case unix.NFTA_COUNTER_PACKETS:
			t.Packets = binary.BigEndian.Uint64(a.Data)
		case unix.NFTA_COUNTER_BYTES:
			t.Bytes = binary.BigEndian.Uint64(a.Data)
		}
	}
	return t, nil
}
