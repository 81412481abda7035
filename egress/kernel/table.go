package kernel

import (
	"fmt"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
)

// CurrentNetns stands for the network namespace of the calling thread, where a namespace's descriptor is asked for.
const CurrentNetns = 0

const (
	// More elements in one message or flush overrun the kernel's answer buffer.
	maxBatch = 100
	maxReads = 20 // of a set, until two say the same
	// A whole bound set must fit into one batch when a table is replaced: 32,768 elements take 2 MiB.
	socketBuffer = 8 << 20
)

// A table is what we want in the kernel, as data: it is written from here and compared with what is read back.
type table struct {
	name   string
	sets   []*set
	chains []*chain
}

type set struct {
	nftables.Set
	elements []nftables.SetElement
	open     bool // elements change while the table stands: not compared
}

type chain struct {
	name     string
	hook     *nftables.ChainHook // nil: only reached by goto
	priority nftables.ChainPriority
	policy   nftables.ChainPolicy
	rules    []rule
}

func (t *table) nft() *nftables.Table {
	return &nftables.Table{Name: t.name, Family: nftables.TableFamilyINet}
}

func connect(ns int) (*nftables.Conn, error) {
	c, err := nftables.New(nftables.WithNetNSFd(ns), nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
		if err := c.SetWriteBuffer(socketBuffer); err != nil {
			return err
		}
		return c.SetReadBuffer(socketBuffer)
	}))
	if err != nil {
		return nil, fmt.Errorf("opening netlink: %w", err)
	}
	return c, nil
}

// write replaces the table in one step (add, delete, add in one batch), reads it back and compares.
func (t *table) write(ns int) error {
	c, err := connect(ns)
	if err != nil {
		return err
	}
	defer func() { _ = c.CloseLasting() }()
	nt := t.nft()
	c.AddTable(nt)
	c.DelTable(nt)
	c.AddTable(nt)
	for i, s := range t.sets {
		made := s.Set
		made.Table, made.ID = nt, uint32(i+1) // the library's own numbers come from an unguarded counter
		if err := c.AddSet(&made, nil); err != nil {
			return fmt.Errorf("writing table %q: set %q: %w", t.name, s.Name, err)
		}
		if err := addElements(c, &made, s.elements); err != nil {
			return fmt.Errorf("writing table %q: set %q: %w", t.name, s.Name, err)
		}
	}
	chains := make([]*nftables.Chain, len(t.chains))
	for i, ch := range t.chains {
		chains[i] = c.AddChain(ch.nft(nt))
	}
	for i, ch := range t.chains {
		for _, r := range ch.rules {
			c.AddRule(&nftables.Rule{Table: nt, Chain: chains[i], Exprs: r})
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("writing table %q: %w", t.name, err)
	}
	return t.compare(c, ns)
}

// addElements puts the elements into the batch, in messages of at most maxBatch.
func addElements(c *nftables.Conn, s *nftables.Set, elements []nftables.SetElement) error {
	for len(elements) > 0 {
		n := min(len(elements), maxBatch)
		if err := c.SetAddElements(s, elements[:n]); err != nil {
			return err
		}
		elements = elements[n:]
	}
	return nil
}

func (ch *chain) nft(t *nftables.Table) *nftables.Chain {
	if ch.hook == nil {
		return &nftables.Chain{Name: ch.name, Table: t}
	}
	return &nftables.Chain{
		Name: ch.name, Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: ch.hook, Priority: &ch.priority, Policy: &ch.policy,
	}
}

// remove deletes the table; one that isn't there is no error.
func remove(ns int, name string) error {
	c, err := connect(ns)
	if err != nil {
		return err
	}
	defer func() { _ = c.CloseLasting() }()
	t := &nftables.Table{Name: name, Family: nftables.TableFamilyINet}
	c.AddTable(t)
	c.DelTable(t)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("removing table %q: %w", name, err)
	}
	return nil
}
