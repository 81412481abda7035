package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// Link is one element of the bound set: packets from this address may come from this link, and from no other.
type Link struct {
	Interface string
	Addr      netip.Addr
}

// Bound is the bound set of the edge table in one namespace. It keeps no copy: the kernel's set is the truth.
// It is safe for concurrent use.
type Bound struct{ ns int }

// NewBound returns the set of the table in the namespace ns, which must stay open.
func NewBound(ns int) *Bound { return &Bound{ns: ns} }

// Add binds the address to the link; done already is no error. Without the table it fails.
func (b *Bound) Add(ctx context.Context, iface string, addr netip.Addr) error {
	return b.AddAll(ctx, []Link{{iface, addr}})
}

// AddAll binds many. When it fails, some may be bound.
func (b *Bound) AddAll(ctx context.Context, links []Link) error {
	return b.each(ctx, "binding", links, (*nftables.Conn).SetAddElements)
}

// Remove unbinds the link; a link that isn't bound, or a table that isn't there, is no error.
func (b *Bound) Remove(ctx context.Context, iface string, addr netip.Addr) error {
	err := b.each(ctx, "unbinding", []Link{{iface, addr}}, (*nftables.Conn).SetDeleteElements)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// List reads the set, sorted. Without the table it is empty.
func (b *Bound) List() ([]Link, error) {
	c, err := connect(b.ns)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.CloseLasting() }()
	var before []Link
	for range maxReads {
		links, err := b.read(c)
		if err != nil {
			return nil, err
		}
		if before != nil && slices.Equal(links, before) && len(slices.Compact(slices.Clone(links))) == len(links) {
			return links, nil
		}
		before = links
	}
	return nil, errors.New("reading the bound set: it changes all the time")
}

// read lists the set once. While the kernel makes room in a set, some time after many were added, a listing can leave elements
// out and name others twice, and nothing says so: that is why List believes only two that agree.
func (b *Bound) read(c *nftables.Conn) ([]Link, error) {
	elements, err := c.GetSetElements(b.set())
	if errors.Is(err, unix.ENOENT) || noTable(err) {
		return []Link{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the bound set: %w", err)
	}
	links := make([]Link, 0, len(elements))
	for _, e := range elements {
		if len(e.Key) != 20 {
			return nil, fmt.Errorf("reading the bound set: a key of %d bytes", len(e.Key))
		}
		links = append(links, Link{strings.TrimRight(string(e.Key[:16]), "\x00"), netip.AddrFrom4([4]byte(e.Key[16:]))})
	}
	slices.SortFunc(links, func(a, b Link) int {
		if c := a.Addr.Compare(b.Addr); c != 0 {
			return c
		}
		return strings.Compare(a.Interface, b.Interface)
	})
	return links, nil
}

func (b *Bound) each(ctx context.Context, doing string, links []Link, do func(*nftables.Conn, *nftables.Set, []nftables.SetElement) error) error {
	for _, l := range links {
		if l.Interface == "" || len(l.Interface) > 15 || strings.ContainsRune(l.Interface, 0) || l.Interface == "lo" || !l.Addr.Is4() {
			return fmt.Errorf("%s %v to %q: a link's name and an IPv4 address are needed", doing, l.Addr, l.Interface)
		}
	}
	c, err := connect(b.ns)
	if err != nil {
		return err
	}
	defer func() { _ = c.CloseLasting() }()
	for part := range slices.Chunk(links, maxBatch) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s: %w", doing, err)
		}
		elements := make([]nftables.SetElement, len(part))
		for i, l := range part {
			elements[i] = l.element()
		}
		if err := do(c, b.set(), elements); err != nil {
			return fmt.Errorf("%s: %w", doing, err)
		}
		if err := c.Flush(); err != nil {
			return fmt.Errorf("%s %v to %q: %w", doing, part[0].Addr, part[0].Interface, err)
		}
	}
	return nil
}

func (b *Bound) set() *nftables.Set {
	s := boundSet()
	s.Table = &nftables.Table{Name: EdgeTable, Family: nftables.TableFamilyINet}
	return &s
}

func (l Link) element() nftables.SetElement {
	a := l.Addr.As4()
	return nftables.SetElement{Key: append(linkName(l.Interface), a[:]...)}
}

// noTable: the library loses the error's kind on the way from a dump.
func noTable(err error) bool {
	return err != nil && strings.HasSuffix(err.Error(), unix.ENOENT.Error())
}
