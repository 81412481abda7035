package resolver

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	pinGrace = 5 * time.Minute // beyond its TTL: programs use an answer for longer than they should
	maxPins  = 4096            // of one incarnation
)

// pins are the real addresses that sandboxes were given, and for which name. Unlike synthetic ones they may stand for several names,
// and have an end. A restart forgets them: programs ask again, as their TTL is short.
type pins struct {
	mu     sync.RWMutex
	tables map[tableKey]*pinTable
}

// A pinTable is of one incarnation.
type pinTable struct {
	byAddr map[netip.Addr]map[string]time.Time // name to its end
	size   int
}

// Pin notes that a sandbox is about to be given addresses for a name.
func (n *Names) Pin(sandbox string, incarnation uint64, name string, addrs []netip.Addr, now time.Time, ttl time.Duration) {
	k := tableKey{sandbox, incarnation}
	n.pins.mu.Lock()
	defer n.pins.mu.Unlock()
	t := n.pins.tables[k]
	if t == nil {
		t = &pinTable{byAddr: make(map[netip.Addr]map[string]time.Time)}
		n.pins.tables[k] = t
	}
	for _, addr := range addrs {
		t.put(addr.Unmap(), name, now, now.Add(ttl+pinGrace))
	}
}

func (t *pinTable) put(addr netip.Addr, name string, now, until time.Time) {
	if _, ok := t.byAddr[addr][name]; !ok {
		t.room(now)
		t.size++
	}
	if t.byAddr[addr] == nil {
		t.byAddr[addr] = make(map[string]time.Time, 1)
	}
	t.byAddr[addr][name] = until
}

func (t *pinTable) remove(addr netip.Addr, name string) {
	delete(t.byAddr[addr], name)
	if len(t.byAddr[addr]) == 0 {
		delete(t.byAddr, addr)
	}
	t.size--
}

// room makes place for one more: what has ended goes, then what ends first.
func (t *pinTable) room(now time.Time) {
	if t.size < maxPins {
		return
	}
	var addr netip.Addr
	var name string
	var ends time.Time
	for a, names := range t.byAddr {
		for n, until := range names {
			if !now.Before(until) {
				t.remove(a, n)
			} else if ends.IsZero() || until.Before(ends) {
				addr, name, ends = a, n, until
			}
		}
	}
	if t.size >= maxPins {
		t.remove(addr, name)
	}
}

// Pinned returns the names that the sandbox was given a real address for, in order.
func (n *Names) Pinned(sandbox string, incarnation uint64, addr netip.Addr, now time.Time) (names []string) {
	n.pins.mu.RLock()
	defer n.pins.mu.RUnlock()
	t := n.pins.tables[tableKey{sandbox, incarnation}]
	if t == nil {
		return nil
	}
	for name, until := range t.byAddr[addr.Unmap()] {
		if now.Before(until) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (n *Names) dropPins(sandbox string) {
	n.pins.mu.Lock()
	defer n.pins.mu.Unlock()
	for k := range n.pins.tables {
		if k.sandbox == sandbox {
			delete(n.pins.tables, k)
		}
	}
}
