package resolver

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"portreeve.dev/policies/hostname"
)

// Export copies every entry, ordered by sandbox, incarnation and address.
func (n *Names) Export() []Entry {
	n.mu.RLock()
	tables := maps.Clone(n.tables)
	n.mu.RUnlock()
	var out []Entry
	for k, t := range tables {
		t.mu.RLock()
		for addr, name := range t.byAddr {
			out = append(out, Entry{Sandbox: k.sandbox, Incarnation: k.incarnation, Name: name, Addr: addr})
		}
		t.mu.RUnlock()
	}
	slices.SortFunc(out, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Sandbox, b.Sandbox), cmp.Compare(a.Incarnation, b.Incarnation), a.Addr.Compare(b.Addr))
	})
	return out
}

// Import adds entries, all or none. Known entries may come again; one that contradicts another is an error, as is an address
// that this table could not have given. OnAdd isn't called: whoever imports has them already.
func (n *Names) Import(entries []Entry) error {
	for _, e := range entries {
		if e.Sandbox == "" || !n.assignable(e.Addr) {
			return fmt.Errorf("importing name of %q at %v: not an address of %v that is given out", e.Sandbox, e.Addr, n.cfg.Range)
		}
		if normal, err := hostname.Normalize(e.Name); err != nil || normal != e.Name || e.Name == Self {
			return fmt.Errorf("importing name %q of %q: not in normal form", e.Name, e.Sandbox)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	// Queries hold one table's lock and never wait for n.mu meanwhile, so that all affected tables can be held at once.
	live, merged := make(map[tableKey]*table), make(map[tableKey]*table)
	defer func() {
		for _, t := range live {
			t.mu.Unlock()
		}
	}()
	for _, e := range entries {
		k := tableKey{e.Sandbox, e.Incarnation}
		if live[k] == nil {
			live[k] = cmp.Or(n.tables[k], n.newTable())
			live[k].mu.Lock()
			merged[k] = live[k].copy()
		}
		if err := merged[k].add(e, n.cfg.PerSandbox); err != nil {
			return err
		}
	}
	for k, m := range merged {
		t := live[k]
		t.byName, t.byAddr, t.next, t.bytes = m.byName, m.byAddr, m.next, m.bytes
		n.tables[k] = t
	}
	return nil
}

func (t *table) copy() *table {
	return &table{byName: maps.Clone(t.byName), byAddr: maps.Clone(t.byAddr), next: t.next, bytes: t.bytes}
}

func (t *table) add(e Entry, limit int) error {
	addr, named := t.byName[e.Name]
	name, taken := t.byAddr[e.Addr]
	switch {
	case named && addr == e.Addr:
		return nil
	case named || taken:
		return fmt.Errorf("importing %q at %v of %q: the name is at %v, the address stands for %q", e.Name, e.Addr, e.Sandbox, optional(addr), name)
	case len(t.byName) >= limit:
		return fmt.Errorf("importing %q of %q: %w", e.Name, e.Sandbox, ErrNamesFull)
	}
	t.put(e.Name, e.Addr)
	return nil
}

func optional(a netip.Addr) string {
	if !a.IsValid() {
		return "no address"
	}
	return a.String()
}
