package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"

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

// A tlsClient asks one server, each question on a connection of its own; sessions are resumed.
type tlsClient struct {
	server TLSServer
	config *tls.Config
	mixed  bool
	proxy  *UpstreamProxy // nil: directly
}

func newTLSClient(s TLSServer, cfg Config) *tlsClient {
	c := &tlsClient{server: s, mixed: cfg.MixedCase, config: &tls.Config{
		ServerName: s.Name, RootCAs: s.Roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"dot"}, ClientSessionCache: tls.NewLRUClientSessionCache(1)}}
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
	wire, err := padded(q)
	if err != nil {
		return nil, fmt.Errorf("writing query: %w", err)
	}
	c, err := t.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	done, err := bound(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	inside := tls.Client(c, t.config)
	if err := inside.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return overStream(inside, q, wire, t.mixed)
}

func (t *tlsClient) connect(ctx context.Context) (net.Conn, error) {
	if t.proxy != nil {
		return t.proxy.reach(ctx, Way{}, t.server.Addr.String())
	}
	return connect(ctx, netip.Addr{}, t.server.Addr, func(netip.AddrPort) error { return nil })
}

// padded writes q with padding (RFC 7830).
func padded(q *dns.Msg) ([]byte, error) {
	opt := q.IsEdns0()
	padding := new(dns.EDNS0_PADDING)
	opt.Option = append(opt.Option, padding)
	padding.Padding = make([]byte, (paddedTo-q.Len()%paddedTo)%paddedTo)
	return q.Pack()
}
