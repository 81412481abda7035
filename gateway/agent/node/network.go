package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"

	"portreeve.dev/nodes"
	"portreeve.dev/nodes/netns"
)

// network gives nodes its links, out of nodes/netns.
type network struct {
	edge      *netns.Edge
	addresses *netns.Addresses
	resting   resting
	prefix    string // of the names of all sandboxes' netns
	log       *slog.Logger

	mu    sync.Mutex
	pairs map[string]*netns.Pair // by path
}

var _ nodes.Network = (*network)(nil)

func newNetwork(edge *netns.Edge, addresses *netns.Addresses, prefix string, log *slog.Logger) *network {
	return &network{edge: edge, addresses: addresses, prefix: prefix, log: log, pairs: make(map[string]*netns.Pair)}
}

func (n *network) Make(ctx context.Context, _ string) (nodes.Link, error) {
	addr, err := n.addresses.Reserve()
	if err != nil {
		return nodes.Link{}, err
	}
	pair, err := n.edge.Pair(ctx, n.prefix+strings.ToLower(rand.Text()[:12]), addr)
	if err != nil {
		n.addresses.Release(addr)
		return nodes.Link{}, err
	}
	return n.keep(pair), nil
}

func (n *network) keep(p *netns.Pair) nodes.Link {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pairs[p.Path()] = p
	return linkOf(p)
}

func linkOf(p *netns.Pair) nodes.Link {
	return nodes.Link{Netns: p.Path(), Interface: p.Interface, Gateway: p.Gateway, Addr: p.Sandbox}
}

// known is the link of a netns that was made or found before: its address is held already.
func (n *network) known(name string) (nodes.Link, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.pairs[netns.Path(name)]
	if p == nil {
		return nodes.Link{}, false
	}
	return linkOf(p), true
}

func (n *network) pair(l nodes.Link) (*netns.Pair, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.pairs[l.Netns]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("link %s: it is not here", l.Netns)
}

func (n *network) Readdress(ctx context.Context, l nodes.Link) error {
	p, err := n.pair(l)
	if err != nil {
		return err
	}
	return p.Readdress(ctx)
}

func (n *network) Up(ctx context.Context, l nodes.Link) error {
	p, err := n.pair(l)
	if err != nil {
		return err
	}
	return p.Up(ctx)
}

func (n *network) Remove(_ context.Context, l nodes.Link) error {
	p, err := n.pair(l)
	if err != nil {
		return netns.Remove(filepath.Base(l.Netns)) // the rest of a crash, or gone already
	}
	if err := p.Remove(); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pairs, l.Netns)
	return errors.Join(n.addresses.Release(l.Addr), n.resting.save())
}

// List finds the links that are on the machine; one that is no whole link any more is removed.
func (n *network) List(context.Context) ([]nodes.Link, error) {
	names, err := netns.List(n.prefix)
	if err != nil {
		return nil, err
	}
	var links []nodes.Link
	for _, name := range names {
		if l, ok := n.known(name); ok {
			links = append(links, l)
			continue
		}
		pair, err := n.edge.Adopt(name)
		if err != nil {
			n.log.Warn("removing the rest of a link", "netns", name, "err", err)
			if err := netns.Remove(name); err != nil {
				return nil, err
			}
			continue
		}
		if err := n.addresses.Hold(pair.Sandbox); err != nil {
			return nil, fmt.Errorf("netns %q: %w", name, err)
		}
		links = append(links, n.keep(pair))
	}
	return links, nil
}
