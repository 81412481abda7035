package edge

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"

	"portreeve.dev/egress"
	"portreeve.dev/egress/dial"
	"portreeve.dev/egress/flows"
	"portreeve.dev/egress/proxy"
	"portreeve.dev/egress/resolver"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/role"
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

type dialer struct{ *dial.Dialer }

func (d dialer) Dial(ctx context.Context, t proxy.Target) (net.Conn, netip.Addr, error) {
	conn, done, err := d.Dialer.Dial(ctx, dial.Target{Org: t.Org, Host: t.Host, Addr: t.Addr, Port: t.Port, Named: t.Named, Address: t.Address, Alias: t.Alias})
	var refused *dial.Refused
	var failed *dial.Error
	switch {
	case errors.As(err, &refused):
		err = &proxy.RefusedError{Verdict: refused.Verdict, Addr: refused.Addr}
	case errors.As(err, &failed):
		err = &proxy.DialError{Kind: string(failed.Kind), Resolving: failed.Kind.Resolving(), Err: err}
	}
	return conn, done.Addr, err
}

type flowTable struct{ *flows.Table }

func (t flowTable) Add(f proxy.Flow) (func(), error) {
	var carries []flows.Carried
	for _, u := range f.Secrets {
		carries = append(carries, flows.Carried{Secret: u.Secret, Version: u.Version})
	}
	return t.Table.Add(flows.Flow{ID: f.ID, Binding: f.Binding, Request: f.Request, Kill: f.Kill,
		Within: f.Parent, Remote: f.Remote, Opaque: f.Opaque, Local: f.Local, Upstream: f.Upstream, Carries: carries, Live: f.Live})
}

// upstreamRoots are the machine's roots and the configured ones, read before the cage.
func upstreamRoots(start role.EdgeStart) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(start.SystemRoots))
	for _, pem := range start.UpstreamCA {
		if !pool.AppendCertsFromPEM([]byte(pem)) {
			return nil, errors.New("egress.upstream_ca: a file holds no usable certificate")
		}
	}
	return pool, nil
}
