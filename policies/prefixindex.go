package policies

import (
	"cmp"
	"net/netip"
	"slices"
)

// A prefixIndex finds the rules whose ranges hold an address: a binary search, then a walk outwards through the ranges
// that hold each other.
type prefixIndex struct {
	nodes []prefixNode // by first address, wider ranges first
	rules []uint32
}

type prefixNode struct {
	prefix netip.Prefix
	parent int32 // the narrowest range around this one, or -1
	rules  span
}

// outermost is the parent of a range that no other one holds.
const outermost = -1

// first returns the last node that begins at or before addr, or -1. If any range holds addr, then that node or one of its parents does.
func (x *prefixIndex) first(addr netip.Addr) int32 {
	low, high := 0, len(x.nodes)
	for low < high {
		middle := int(uint(low+high) >> 1)
		if x.nodes[middle].prefix.Addr().Compare(addr) <= 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return int32(low) - 1
}

type prefixBuilder struct{ entries []prefixEntry }

type prefixEntry struct {
	prefix netip.Prefix
	rule   uint32
}

func (b *prefixBuilder) add(p netip.Prefix, rule uint32) {
	b.entries = append(b.entries, prefixEntry{p, rule})
}

func (b *prefixBuilder) build() (x prefixIndex) {
	slices.SortFunc(b.entries, func(a, c prefixEntry) int {
		return cmp.Or(a.prefix.Addr().Compare(c.prefix.Addr()), cmp.Compare(a.prefix.Bits(), c.prefix.Bits()), cmp.Compare(a.rule, c.rule))
	})
	current := int32(outermost)
	for _, e := range b.entries {
		if n := len(x.nodes); n == 0 || x.nodes[n-1].prefix != e.prefix {
			for current != outermost && !x.nodes[current].prefix.Contains(e.prefix.Addr()) {
				current = x.nodes[current].parent
			}
			at := uint32(len(x.rules))
			x.nodes = append(x.nodes, prefixNode{e.prefix, current, span{at, at}})
			current = int32(n)
		}
		x.rules = append(x.rules, e.rule)
		x.nodes[current].rules.to++
	}
	return x
}
