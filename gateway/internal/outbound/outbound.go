package outbound

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"portreeve.dev/egress/dial"
	"portreeve.dev/gateway/role"
	"portreeve.dev/secrets"
)

// ErrNoResolver means that there is nobody to ask for names.
var ErrNoResolver = errors.New("no DNS resolver is known: name one under egress.upstream_dns in the configuration")

// New makes a dialer under no floor, which refuses everything until it has one. servers are in the form of role.Resolver; proxy may be nil.
func New(servers []string, proxy *role.UpstreamProxy, roots *x509.CertPool, now func() time.Time) (*dial.Dialer, error) {
	config := dial.Config{Now: now}
	for _, s := range servers {
		r, err := role.ParseResolver(s)
		switch {
		case err != nil:
			return nil, fmt.Errorf("egress.upstream_dns: %w", err)
		case r.Name == "":
			config.Servers = append(config.Servers, r.Addr)
		default:
			config.TLSServers = append(config.TLSServers, dial.TLSServer{Addr: r.Addr, Name: r.Name, Roots: roots})
		}
	}
	if len(servers) == 0 {
		return nil, ErrNoResolver
	}
	var err error
	if config.Upstream, err = upstream(proxy, roots, now); err != nil {
		return nil, fmt.Errorf("egress.upstream: %w", err)
	}
	return dial.New(config, nil)
}

func upstream(p *role.UpstreamProxy, roots *x509.CertPool, now func() time.Time) (*dial.UpstreamProxy, error) {
	if p == nil {
		return nil, nil
	}
	u := &dial.UpstreamProxy{Scheme: dial.Scheme(p.Scheme), Addrs: p.Addrs, Name: p.Name, Roots: roots, Now: now, User: p.User, ByName: p.ByName, DNS: p.DNS}
	if p.Password == "" {
		return u, nil
	}
	var err error
	u.Password, err = secrets.NewValue([]byte(p.Password))
	return u, err
}

// Roots are the machine's roots and the configured authorities, in PEM.
func Roots(system string, authorities []string) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(system))
	for _, pem := range authorities {
		if !pool.AppendCertsFromPEM([]byte(pem)) {
			return nil, errors.New("egress.upstream_ca: a file holds no usable certificate")
		}
	}
	return pool, nil
}
