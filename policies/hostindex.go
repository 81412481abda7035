package policies

import "strings"

// A hostIndex finds the rules for a name: a lookup for the name itself, and one for each suffix of as many labels as some
// wildcard has. Its cost grows with the labels of the name, not with the rules.
type hostIndex struct {
	exact  map[string]span
	suffix map[string]span // "x" of "*.x"
	depths [2]uint64       // bit n: some wildcard's suffix has n+1 labels
	rules  []uint32        // what spans point into
	any    []uint32        // rules for every name
}

// A span is a part of a list.
type span struct{ from, to uint32 }

func (x *hostIndex) deep(labels int) bool { return x.depths[labels>>6&1]&(1<<(labels&63)) != 0 }

// hostBuilder gathers (key, rule) pairs in the order of the rules.
type hostBuilder struct {
	exact, suffix listBuilder
	any           []uint32
	depths        [2]uint64
}

func (b *hostBuilder) add(host string, rule uint32) {
	base, wildcard := strings.CutPrefix(host, "*.")
	if !wildcard {
		b.exact.add(host, rule)
		return
	}
	b.suffix.add(base, rule)
	labels := strings.Count(base, ".")
	b.depths[labels>>6&1] |= 1 << (labels & 63)
}

func (b *hostBuilder) build() hostIndex {
	x := hostIndex{depths: b.depths, any: b.any}
	x.rules = make([]uint32, 0, len(b.exact.pairs)+len(b.suffix.pairs))
	x.exact, x.rules = b.exact.build(x.rules)
	x.suffix, x.rules = b.suffix.build(x.rules)
	return x
}

// A listBuilder makes one flat list out of many small ones.
type listBuilder struct {
	slots  map[string]uint32
	counts []uint32
	pairs  []pair
}

type pair struct{ slot, rule uint32 }

func (b *listBuilder) add(key string, rule uint32) {
	if b.slots == nil {
		b.slots = make(map[string]uint32)
	}
	slot, ok := b.slots[key]
	if !ok {
		slot = uint32(len(b.counts))
		b.slots[key] = slot
		b.counts = append(b.counts, 0)
	}
	b.counts[slot]++
	b.pairs = append(b.pairs, pair{slot, rule})
}

// build appends the lists to flat.
func (b *listBuilder) build(flat []uint32) (map[string]span, []uint32) {
	spans := make([]span, len(b.counts))
	at := uint32(len(flat))
	for slot, n := range b.counts {
		spans[slot] = span{at, at}
		at += n
	}
	flat = append(flat, make([]uint32, len(b.pairs))...)
	for _, p := range b.pairs {
		flat[spans[p.slot].to] = p.rule
		spans[p.slot].to++
	}
	index := make(map[string]span, len(b.slots))
	for key, slot := range b.slots {
		index[key] = spans[slot]
	}
	return index, flat
}
