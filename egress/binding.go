package egress

import (
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// A Binding says whose an address is on the wire. A connection is bound once, at accept;
// later requests on it compare and never look up again.
type Binding struct {
	Sandbox     string     `json:"sandbox"`      // sbx_<uuidv7>
	Org         string     `json:"org"`          // org_<uuidv7>
	Incarnation uint64     `json:"incarnation"`  // grows when the memory of the sandbox becomes new
	Generation  uint64     `json:"generation"`   // grows at each start, resume and wake
	Addr        netip.Addr `json:"addr"`         // the sandbox's end of its address pair; none for an attached one
	Interface   string     `json:"interface"`    // the edge netns' end of its link
	MinRevision uint64     `json:"min_revision"` // no verdict from a policy revision below this one
}

// Bindings is the table of live addresses. It is safe for concurrent use.
type Bindings struct {
	mu     sync.RWMutex
	byAddr map[netip.Addr]Binding

	attached map[string]attachment // by sandbox
	now      func() time.Time
}

// NewBindings returns an empty table, in which no address belongs to anybody. now says when an attached sandbox has ended; nil is time.Now.
func NewBindings(now func() time.Time) *Bindings {
	if now == nil {
		now = time.Now
	}
	return &Bindings{byAddr: make(map[netip.Addr]Binding), attached: make(map[string]attachment), now: now}
}

// Lookup returns the binding of addr, unmapped; false when the address is nobody's.
func (t *Bindings) Lookup(addr netip.Addr) (Binding, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	b, ok := t.byAddr[addr.Unmap()]
	return b, ok
}

// Bind enters b. It replaces an older generation of the same incarnation, and refuses an address that
// another sandbox or incarnation holds.
func (t *Bindings) Bind(b Binding) error {
	if !b.Addr.Is4() || b.Sandbox == "" || b.Org == "" {
		return fmt.Errorf("binding %q to %v: address, sandbox and org are all needed", b.Sandbox, b.Addr)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.attached[b.Sandbox]; ok {
		return fmt.Errorf("binding %q to %v: it is attached, and has no address", b.Sandbox, b.Addr)
	}
	if old, ok := t.byAddr[b.Addr]; ok && (old.Sandbox != b.Sandbox || old.Incarnation != b.Incarnation) {
		return fmt.Errorf("binding %q to %v: the address is held by %q", b.Sandbox, b.Addr, old.Sandbox)
	}
	t.byAddr[b.Addr] = b
	return nil
}

// Unbind removes the address if it belongs to that sandbox, and reports whether it did.
func (t *Bindings) Unbind(sandbox string, addr netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if b, ok := t.byAddr[addr.Unmap()]; !ok || b.Sandbox != sandbox {
		return false
	}
	delete(t.byAddr, addr.Unmap())
	return true
}

// All returns a copy of every binding, in no order.
func (t *Bindings) All() []Binding {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]Binding, 0, len(t.byAddr))
	for _, b := range t.byAddr {
		all = append(all, b)
	}
	return all
}
