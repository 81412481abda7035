package edge

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/dial"
	"portreeve.dev/egress/flows"
	"portreeve.dev/egress/proxy"
	"portreeve.dev/egress/resolver"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/policies"
)

// The proxy declares what it needs; here the parts that do it are made to fit.

// fresh is the feed with the proxy's own word for staleness.
type fresh struct{ *feed.Holder }

func (f fresh) Snapshot(b egress.Binding) (*policies.Snapshot, uint64, error) {
	s, revision, err := f.Holder.Snapshot(b)
	if errors.Is(err, feed.ErrStale) || errors.Is(err, feed.ErrRevision) {
		err = errors.Join(proxy.ErrStalePolicy, err)
	}
	return s, revision, err
}

type names struct{ *resolver.Names }

func (n names) InRange(addr netip.Addr) bool { return n.Contains(addr) }

type dialer struct {
	*dial.Dialer
	flows *flows.Table
}

// Dial takes the descriptors of the connection, and for its time those of a lookup, out of the org's share.
func (d dialer) Dial(ctx context.Context, t proxy.Target) (net.Conn, netip.Addr, error) {
	if !d.flows.TakeDescriptors(t.Org, 2) {
		return nil, netip.Addr{}, &proxy.RefusedError{Verdict: flows.ErrDescriptors.Verdict}
	}
	conn, addr, err := d.dial(ctx, t)
	if err != nil {
		d.flows.GiveDescriptors(t.Org, 2)
		return nil, addr, err
	}
	d.flows.GiveDescriptors(t.Org, 1)
	return &held{Conn: conn, give: func() { d.flows.GiveDescriptors(t.Org, 1) }}, addr, nil
}

// held is a connection that gives back its descriptor when it is closed.
type held struct {
	net.Conn
	once sync.Once
	give func()
}

func (h *held) Close() error {
	err := h.Conn.Close()
	h.once.Do(h.give)
	return err
}

// NetConn is the connection inside.
func (h *held) NetConn() net.Conn { return h.Conn }

func (d dialer) dial(ctx context.Context, t proxy.Target) (net.Conn, netip.Addr, error) {
	conn, done, err := d.Dialer.Dial(ctx, dial.Target{Org: t.Org, Host: t.Host, Addr: t.Addr, Port: t.Port, Pin: t.Pin, Named: t.Named, Address: t.Address, Alias: t.Alias})
	var refused *dial.Refused
	var failed *dial.Error
	switch {
	case errors.As(err, &refused):
		err = &proxy.RefusedError{Verdict: refused.Verdict, Addr: refused.Addr}
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE): // what was kept back was too little
		err = &proxy.RefusedError{Verdict: flows.ErrDescriptors.Verdict}
	case errors.As(err, &failed):
		err = &proxy.DialError{Kind: string(failed.Kind), Resolving: failed.Kind.Resolving(), OfProxy: failed.Kind.OfProxy(), Err: err}
	}
	return conn, done.Addr, err
}

// realLookup is the resolver's way out: the dialer's, under the same floor and rules, and within the org's share of descriptors.
func realLookup(d *dial.Dialer, table *flows.Table) resolver.Lookup {
	return func(ctx context.Context, q resolver.Question) ([]netip.Addr, time.Duration, error) {
		if !table.TakeDescriptors(q.Org, 1) {
			return nil, 0, &resolver.RefusedError{Verdict: flows.ErrDescriptors.Verdict}
		}
		defer table.GiveDescriptors(q.Org, 1)
		addrs, ttl, err := d.Lookup(ctx, dial.Target{Org: q.Org, Host: q.Host, Named: q.Named, Address: q.Address, Alias: q.Alias})
		var refused *dial.Refused
		var failed *dial.Error
		switch {
		case errors.As(err, &refused):
			err = &resolver.RefusedError{Verdict: refused.Verdict, Addr: refused.Addr}
		case errors.As(err, &failed) && (failed.Kind == dial.NXDomain || failed.Kind == dial.NoAddress):
			err = resolver.ErrNoSuchName
		}
		return addrs, ttl, err
	}
}

type flowTable struct{ *flows.Table }

func (t flowTable) Add(f proxy.Flow) (func(), error) {
	var carries []flows.Carried
	for _, u := range f.Secrets {
		carries = append(carries, flows.Carried{Secret: u.Secret, Version: u.Version})
	}
	remove, err := t.Table.Add(flows.Flow{ID: f.ID, Binding: f.Binding, Request: f.Request, Kill: f.Kill,
		Within: f.Parent, Remote: f.Remote, Opaque: f.Opaque, Claim: f.Claim, Local: f.Local, Upstream: f.Upstream, Carries: carries, Live: f.Live})
	var limit *flows.LimitError
	if errors.As(err, &limit) {
		err = &proxy.LimitError{Verdict: limit.Verdict}
	}
	return remove, err
}

func (t flowTable) Meter(b egress.Binding) proxy.Meter { return t.Table.Meter(b) }
