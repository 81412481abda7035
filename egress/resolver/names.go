package resolver

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
)

// Self is the name that is answered by edge itself.
const Self = "portreeve.internal"

// reserved addresses at the start of the range stand for no sandbox's name; the second of them is Self's.
const reserved = 16

// ErrNamesFull: the incarnation has all the names it may have. Nothing is evicted: the sandbox may use an address for ever.
var ErrNamesFull = errors.New("table of synthetic names is full")

// An Entry says that within an incarnation Addr stands for Name.
type Entry struct {
	Sandbox     string     `json:"sandbox"`
	Incarnation uint64     `json:"incarnation"`
	Name        string     `json:"name"` // normal form
	Addr        netip.Addr `json:"addr"`
}

// NamesConfig of a table. The zero value is usable.
type NamesConfig struct {
	Range      netip.Prefix // default 198.18.0.0/15; outside of any address that a sandbox could mean otherwise
	PerSandbox int          // names of one incarnation; default 16384

	// OnAdd is called with each new entry, in order per sandbox, before anybody sees its address. When it fails there is no
	// such entry: an address that nobody else remembers could come to stand for another name after a restart. It must not block
	// and not call back: other queries of the sandbox wait for it.
	OnAdd func(Entry) error
}

// Names is the table of synthetic addresses, and of the real ones that were given out under dns: real. It is safe for concurrent use.
type Names struct {
	cfg  NamesConfig
	self netip.Addr

	mu     sync.RWMutex
	tables map[tableKey]*table

	pins pins
}

type tableKey struct {
	sandbox     string
	incarnation uint64
}

// A table is of one incarnation.
type table struct {
	mu     sync.RWMutex
	byName map[string]netip.Addr
	byAddr map[netip.Addr]string
	next   netip.Addr
	bytes  int // of all names
}

// NewNames makes an empty table.
func NewNames(cfg NamesConfig) (*Names, error) {
	if !cfg.Range.IsValid() {
		cfg.Range = netip.MustParsePrefix("198.18.0.0/15")
	}
	if cfg.PerSandbox == 0 {
		cfg.PerSandbox = 16384
	}
	if !cfg.Range.Addr().Is4() || cfg.Range != cfg.Range.Masked() || cfg.Range.Bits() > 24 {
		return nil, fmt.Errorf("synthetic range %v: an IPv4 network of at least 256 addresses is needed", cfg.Range)
	}
	if cfg.PerSandbox < 0 {
		return nil, fmt.Errorf("synthetic names: %d per sandbox", cfg.PerSandbox)
	}
	return &Names{cfg: cfg, self: cfg.Range.Addr().Next(), tables: make(map[tableKey]*table), pins: pins{tables: make(map[tableKey]*pinTable)}}, nil
}

// Self is the address of the name Self, the same for every sandbox.
func (n *Names) Self() netip.Addr { return n.self }

// Contains reports whether addr is of the synthetic range: if it has no name, it leads nowhere.
func (n *Names) Contains(addr netip.Addr) bool { return n.cfg.Range.Contains(addr.Unmap()) }

// Name returns the name that addr stands for.
func (n *Names) Name(sandbox string, incarnation uint64, addr netip.Addr) (string, bool) {
	addr = addr.Unmap()
	if addr == n.self {
		return Self, true
	}
	t := n.table(sandbox, incarnation)
	if t == nil {
		return "", false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	name, ok := t.byAddr[addr]
	return name, ok
}

// Known returns the address that name already has.
func (n *Names) Known(sandbox string, incarnation uint64, name string) (netip.Addr, bool) {
	if name == Self {
		return n.self, true
	}
	t := n.table(sandbox, incarnation)
	if t == nil {
		return netip.Addr{}, false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	addr, ok := t.byName[name]
	return addr, ok
}

// Address returns the address of name, which is in normal form, and gives it one if it has none.
func (n *Names) Address(sandbox string, incarnation uint64, name string) (netip.Addr, error) {
	return n.AddressWithin(sandbox, incarnation, name, n.cfg.PerSandbox, 0)
}

// AddressWithin is Address under bounds that may be narrower than the table's: names, and bytes of names (0: unbounded).
func (n *Names) AddressWithin(sandbox string, incarnation uint64, name string, names, bytes int) (netip.Addr, error) {
	if addr, ok := n.Known(sandbox, incarnation, name); ok {
		return addr, nil
	}
	t := n.makeTable(tableKey{sandbox, incarnation})
	t.mu.Lock()
	defer t.mu.Unlock()
	if addr, ok := t.byName[name]; ok {
		return addr, nil
	}
	addr := t.next
	full := len(t.byName) >= min(names, n.cfg.PerSandbox) || bytes > 0 && t.bytes+len(name) > bytes
	if full || !n.assignable(addr) {
		return netip.Addr{}, fmt.Errorf("%d names of %q: %w", len(t.byName), sandbox, ErrNamesFull)
	}
	if n.cfg.OnAdd != nil {
		if err := n.cfg.OnAdd(Entry{Sandbox: sandbox, Incarnation: incarnation, Name: name, Addr: addr}); err != nil {
			return netip.Addr{}, fmt.Errorf("handing on the name %q of %q: %w", name, sandbox, err)
		}
	}
	t.put(name, addr)
	return addr, nil
}

// assignable: in the range, past the reserved ones, and not the last, which some programs take for a broadcast address.
func (n *Names) assignable(addr netip.Addr) bool {
	return n.cfg.Range.Contains(addr) && n.cfg.Range.Contains(addr.Next()) && !addr.Less(n.first())
}

func (n *Names) first() netip.Addr {
	a := n.cfg.Range.Addr().As4()
	a[3] = reserved
	return netip.AddrFrom4(a)
}

func (t *table) put(name string, addr netip.Addr) {
	t.byName[name], t.byAddr[addr] = addr, name
	t.bytes += len(name)
	if !addr.Less(t.next) {
		t.next = addr.Next()
	}
}

func (n *Names) table(sandbox string, incarnation uint64) *table {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.tables[tableKey{sandbox, incarnation}]
}

func (n *Names) makeTable(k tableKey) *table {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.tables[k]
	if t == nil {
		t = n.newTable()
		n.tables[k] = t
	}
	return t
}

func (n *Names) newTable() *table {
	return &table{byName: make(map[string]netip.Addr), byAddr: make(map[netip.Addr]string), next: n.first()}
}

// Drop forgets all incarnations of sandbox: it is gone, or begins anew.
func (n *Names) Drop(sandbox string) {
	n.dropPins(sandbox)
	n.mu.Lock()
	defer n.mu.Unlock()
	for k := range n.tables {
		if k.sandbox == sandbox {
			delete(n.tables, k)
		}
	}
}
