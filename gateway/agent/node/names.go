package node

import (
	"fmt"
	"net/netip"
	"sync"

	"portreeve.dev/gateway/role"
)

// names is the node's copy of the synthetic tables, for an edge that starts anew. Within a sandbox each name has one address
// and each address one name, whatever an edge says: the next edge could not use another table.
type names struct {
	limit int // of one sandbox

	mu  sync.Mutex
	all map[string]*nameTable // by sandbox
}

type nameTable struct {
	incarnation uint64
	byHost      map[string]role.Name
	byAddr      map[netip.Addr]role.Name
}

func newNames(limit int) *names { return &names{limit: limit, all: make(map[string]*nameTable)} }

// add keeps a name. It may come again; one that contradicts another is refused. Names of an older incarnation are forgotten.
func (n *names) add(e role.Name) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.all[e.Sandbox]
	if t == nil || t.incarnation < e.Incarnation {
		t = &nameTable{incarnation: e.Incarnation, byHost: make(map[string]role.Name), byAddr: make(map[netip.Addr]role.Name)}
		n.all[e.Sandbox] = t
	}
	host, named := t.byHost[e.Host]
	_, taken := t.byAddr[e.Addr]
	switch {
	case named && host == e:
		return nil
	case named || taken || t.incarnation != e.Incarnation:
		return fmt.Errorf("name at %v of %q: it contradicts one that is known", e.Addr, e.Sandbox)
	case len(t.byHost) >= n.limit:
		return fmt.Errorf("name at %v of %q: it has %d already", e.Addr, e.Sandbox, n.limit)
	}
	t.byHost[e.Host], t.byAddr[e.Addr] = e, e
	return nil
}

func (n *names) drop(sandbox string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.all, sandbox)
}

func (n *names) list() []role.Name {
	n.mu.Lock()
	defer n.mu.Unlock()
	entries := []role.Name{}
	for _, t := range n.all {
		for _, e := range t.byHost {
			entries = append(entries, e)
		}
	}
	return entries
}
