package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"
)

// A TLSServer is a DNS server that is asked over TLS (RFC 7858), by a strict profile: it proves its name or is not asked.
type TLSServer struct {
	Addr  netip.AddrPort
	Name  string // that its certificate has to prove: a host name, or an address
	Roots *x509.CertPool
}

// paddedTo is what the size of each query is a multiple of, so that it says little about the name (RFC 8467).
const paddedTo = 128

// A tlsClient asks one server, on one connection that is kept while there are questions.
type tlsClient struct {
	server TLSServer
	config *tls.Config
	mixed  bool
	proxy  *UpstreamProxy // nil: directly

	connecting chan struct{} // held by whoever looks at kept or replaces it
	kept       *tlsConn
}

func newTLSClient(s TLSServer, cfg Config) *tlsClient {
	c := &tlsClient{server: s, mixed: cfg.MixedCase, connecting: make(chan struct{}, 1), config: &tls.Config{
		ServerName: s.Name, RootCAs: s.Roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"dot"}, ClientSessionCache: tls.NewLRUClientSessionCache(1), Time: cfg.Now}}
	if cfg.Upstream != nil && cfg.Upstream.DNS {
		c.proxy = cfg.Upstream
	}
	return c
}

func (t *tlsClient) exchange(ctx context.Context, q *dns.Msg) (*dns.Msg, error) {
	r, err := t.ask(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("asking %v over TLS: %w", t.server.Addr, err)
	}
	return r, nil
}

func (t *tlsClient) ask(ctx context.Context, q *dns.Msg) (*dns.Msg, error) {
	pad(q)
	for {
		c, fresh, err := t.connection(ctx)
		if err != nil {
			return nil, err
		}
		r, err := c.ask(ctx, q)
		switch {
		case errors.Is(err, errEnded) && !fresh:
			continue // a server may end what is idle just as it is used
		case err != nil:
			return nil, err
		case !belongs(r, q, t.mixed):
			err := errors.New("a reply to something else")
			c.end(err)
			return nil, err
		}
		return r, nil
	}
}

// connection returns the one that is kept, or a fresh one in its place.
func (t *tlsClient) connection(ctx context.Context) (c *tlsConn, fresh bool, err error) {
	select {
	case t.connecting <- struct{}{}:
		defer func() { <-t.connecting }()
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	if t.kept != nil && t.kept.usable() {
		return t.kept, false, nil
	}
	nc, err := t.handshake(ctx)
	if err != nil {
		return nil, false, err
	}
	t.kept = newTLSConn(nc)
	return t.kept, true, nil
}

// handshake connects, and has the server prove its name.
func (t *tlsClient) handshake(ctx context.Context) (*tls.Conn, error) {
	c, err := t.connect(ctx)
	if err != nil {
		return nil, err
	}
	done, err := bound(ctx, c)
	if err != nil {
		c.Close()
		return nil, err
	}
	inside := tls.Client(c, t.config)
	if err := inside.HandshakeContext(ctx); err != nil {
		done()
		c.Close()
		return nil, err
	}
	if !done() {
		c.Close()
		return nil, ctx.Err()
	}
	return inside, c.SetDeadline(time.Time{})
}

func (t *tlsClient) connect(ctx context.Context) (net.Conn, error) {
	if t.proxy != nil {
		return t.proxy.reach(ctx, Way{}, t.server.Addr.String())
	}
	return connect(ctx, netip.Addr{}, t.server.Addr, func(netip.AddrPort) error { return nil })
}

// pad brings q to a size that says little (RFC 7830).
func pad(q *dns.Msg) {
	padding := new(dns.EDNS0_PADDING)
	opt := q.IsEdns0()
	opt.Option = append(opt.Option, padding)
	padding.Padding = make([]byte, (paddedTo-q.Len()%paddedTo)%paddedTo)
}
