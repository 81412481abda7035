package egress

import (
	"fmt"
	"time"
)

// An attachment is the binding of a sandbox that somebody else runs: it has no address of ours, and an end.
type attachment struct {
	Binding
	ends time.Time
}

// Attach enters a sandbox that is known by a credential or a socket and not by an address. It replaces what was entered for
// the same incarnation, and refuses a sandbox that has an address.
func (t *Bindings) Attach(b Binding, ends time.Time) error {
	if b.Sandbox == "" || b.Org == "" || b.Addr.IsValid() {
		return fmt.Errorf("attaching %q: sandbox and org are needed, and no address", b.Sandbox)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, own := range t.byAddr {
		if own.Sandbox == b.Sandbox {
			return fmt.Errorf("attaching %q: it has the address %v", b.Sandbox, own.Addr)
		}
	}
	t.attached[b.Sandbox] = attachment{b, ends}
	return nil
}

// Detach removes an attached sandbox, and reports whether there was one.
func (t *Bindings) Detach(sandbox string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.attached[sandbox]
	delete(t.attached, sandbox)
	return ok
}

// Attached returns the binding of an attached sandbox; false once its end has come, whether or not anybody detached it.
func (t *Bindings) Attached(sandbox string) (Binding, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	a, ok := t.attached[sandbox]
	return a.Binding, ok && t.now().Before(a.ends)
}

// AllAttached lists the attached sandboxes by id, in no order.
func (t *Bindings) AllAttached() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]string, 0, len(t.attached))
	for id := range t.attached {
		all = append(all, id)
	}
	return all
}

// Current returns what b is now: who has its address or, where it has none, the attached sandbox.
func (t *Bindings) Current(b Binding) (Binding, bool) {
	if b.Addr.IsValid() {
		return t.Lookup(b.Addr)
	}
	return t.Attached(b.Sandbox)
}
