package kernel

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// compare reads the table back and names each difference.
func (t *table) compare(c *nftables.Conn, ns int) error {
	var errs []error
	errs = append(errs, t.compareSets(c)...)
	errs = append(errs, t.compareChains(c)...)
	errs = append(errs, t.compareRules(ns)...)
	if len(errs) > 0 {
		return fmt.Errorf("comparing table %q: %w", t.name, errors.Join(errs...))
	}
	return nil
}

func (t *table) compareSets(c *nftables.Conn) (errs []error) {
	sets, err := c.GetSets(t.nft())
	if err != nil {
		return []error{fmt.Errorf("reading sets: %w", err)}
	}
	if len(sets) != len(t.sets) {
		errs = append(errs, fmt.Errorf("%d sets, want %d", len(sets), len(t.sets)))
	}
	for _, want := range t.sets {
		i := slices.IndexFunc(sets, func(s *nftables.Set) bool { return s.Name == want.Name })
		if i < 0 {
			errs = append(errs, fmt.Errorf("set %q is missing", want.Name))
			continue
		}
		if got, want := describe(sets[i]), describe(&want.Set); got != want {
			errs = append(errs, fmt.Errorf("set %s, want %s", got, want))
			continue
		}
		if want.open {
			continue
		}
		elements, err := c.GetSetElements(sets[i])
		if err != nil {
			errs = append(errs, fmt.Errorf("reading set %q: %w", want.Name, err))
		} else if got, want := spell(elements), spell(want.elements); got != want {
			errs = append(errs, fmt.Errorf("set %q holds %s, want %s", sets[i].Name, got, want))
		}
	}
	return errs
}

func describe(s *nftables.Set) string {
	return fmt.Sprintf("%q of %d (%d bytes) interval=%v concat=%v dynamic=%v map=%v timeout=%v/%v size=%d",
		s.Name, s.KeyType.GetNFTMagic(), s.KeyType.Bytes, s.Interval, s.Concatenation, s.Dynamic, s.IsMap, s.HasTimeout, s.Timeout, s.Size)
}

func spell(elements []nftables.SetElement) string {
	var parts []string
	for _, e := range elements {
		end := ""
		if e.IntervalEnd {
			end = "-"
		}
		parts = append(parts, hex.EncodeToString(e.Key)+end)
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

func (t *table) compareChains(c *nftables.Conn) (errs []error) {
	all, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return []error{fmt.Errorf("reading chains: %w", err)}
	}
	got := map[string]string{}
	for _, ch := range all {
		if ch.Table.Name == t.name {
			got[ch.Name] = shape(ch)
		}
	}
	for _, ch := range t.chains {
		if want := shape(ch.nft(nil)); got[ch.name] != want {
			errs = append(errs, fmt.Errorf("chain %q is %q, want %q", ch.name, got[ch.name], want))
		}
		delete(got, ch.name)
	}
	for name := range got {
		errs = append(errs, fmt.Errorf("chain %q is not ours", name))
	}
	return errs
}

func shape(ch *nftables.Chain) string {
	if ch.Hooknum == nil || ch.Priority == nil || ch.Policy == nil {
		return "plain"
	}
	return fmt.Sprintf("%s hook %d priority %d policy %d", ch.Type, *ch.Hooknum, *ch.Priority, *ch.Policy)
}

func (t *table) compareRules(ns int) (errs []error) {
	rules, err := dumpRules(ns, t.name)
	if err != nil {
		return []error{fmt.Errorf("reading rules: %w", err)}
	}
	for _, ch := range t.chains {
		got := rules[ch.name]
		if len(got) != len(ch.rules) {
			errs = append(errs, fmt.Errorf("chain %q has %d rules, want %d", ch.name, len(got), len(ch.rules)))
			continue
		}
		for i, r := range ch.rules {
			want, err := wanted(r)
			if err != nil {
				return append(errs, err)
			}
			have, err := found(got[i])
			if err != nil {
				return append(errs, err)
			}
			if !slices.Equal(want, have) {
				errs = append(errs, fmt.Errorf("chain %q rule %d is %q, want %q", ch.name, i, have, want))
			}
		}
	}
	return errs
}

// dumpRules returns the raw expression lists of each chain, in order.
func dumpRules(ns int, tableName string) (map[string][][]byte, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: ns})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	filter, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.NFTA_RULE_TABLE, Data: []byte(tableName + "\x00")}})
	if err != nil {
		return nil, err
	}
	msgs, err := c.Execute(netlink.Message{
		Header: netlink.Header{
			Type:  netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE),
			Flags: netlink.Request | netlink.Dump,
		},
		Data: append([]byte{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0}, filter...),
	})
	if err != nil {
		return nil, err
	}
	rules := map[string][][]byte{}
	for _, m := range msgs {
		attrs, err := netlink.UnmarshalAttributes(m.Data[4:])
		if err != nil {
			return nil, err
		}
		var chain string
		var exprs []byte
		for _, a := range attrs {
			switch a.Type & typeMask {
			case unix.NFTA_RULE_CHAIN:
				chain = strings.TrimRight(string(a.Data), "\x00")
			case unix.NFTA_RULE_EXPRESSIONS:
				exprs = a.Data
			}
		}
		rules[chain] = append(rules[chain], exprs)
	}
	return rules, nil
}

// foreign names the tables of the namespace that are not ours: in the edge netns there is no place for any, as they
// could track connections or rewrite addresses behind ours.
func foreign(c *nftables.Conn, ours string) (errs []error) {
	tables, err := c.ListTables()
	if err != nil {
		return []error{fmt.Errorf("reading tables: %w", err)}
	}
	slices.SortFunc(tables, func(a, b *nftables.Table) int { return strings.Compare(a.Name, b.Name) })
	for _, t := range tables {
		if t.Name != ours || t.Family != nftables.TableFamilyINet {
			errs = append(errs, fmt.Errorf("table %q of family %d is not ours", t.Name, t.Family))
		}
	}
	return errs
}
