package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"portreeve.dev/secrets"
)

// Scheme is how the company's proxy is spoken to.
type Scheme string

const (
	HTTP   Scheme = "http"   // CONNECT (RFC 9110, section 9.3.6)
	HTTPS  Scheme = "https"  // the same, over TLS to the proxy
	SOCKS5 Scheme = "socks5" // RFC 1928
)

// An UpstreamProxy is the company's own proxy. Where there is one, connections are asked of it after everything was decided, and
// never made without it: what it doesn't do is not done.
type UpstreamProxy struct {
	Scheme Scheme
	Addrs  []netip.AddrPort // where it is, tried in this order. The operator's, and not judged by the floor
	Name   string           // that its certificate has to prove; with HTTPS
	Roots  *x509.CertPool   // by which; with HTTPS
	Now    func() time.Time // when; default time.Now

	User     string // empty: it wants no login
	Password secrets.Value

	// ByName asks for the name that was judged where there is one, and not for the address: the proxy looks it up again. Then a name is
	// refused if any of its addresses is, but which one the proxy uses is its own choice. See docs/adr/0012-company-proxy.md.
	ByName bool

	// DNS sends queries to it too, which must be over TLS, and whosever they are.
	DNS bool
}

// A proxyError says what the company's proxy did wrong. Err is for the log.
type proxyError struct {
	kind Kind
	err  error
}

func (e *proxyError) Error() string { return e.err.Error() }
func (e *proxyError) Unwrap() error { return e.err }

func (u *UpstreamProxy) validate() error {
	switch u.Scheme {
	case HTTP, SOCKS5:
	case HTTPS:
		if u.Name == "" {
			return errors.New("upstream proxy: over TLS it needs a name to prove")
		}
	default:
		return fmt.Errorf("upstream proxy: %q is none of http, https and socks5", u.Scheme)
	}
	if len(u.Addrs) == 0 {
		return errors.New("upstream proxy: it has no address")
	}
	for _, a := range u.Addrs {
		if !a.IsValid() || a.Port() == 0 || a.Addr().IsUnspecified() || a.Addr().Zone() != "" {
			return fmt.Errorf("upstream proxy: %v is no address and port", a)
		}
	}
	if (u.User == "") != u.Password.IsZero() {
		return errors.New("upstream proxy: user and password go together")
	}
	if strings.ContainsFunc(u.User, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' }) {
		return errors.New("upstream proxy: the user's name has a colon, a space or something else that no login can hold")
	}
	if u.Scheme == SOCKS5 && (len(u.User) > 255 || len(u.Password.Reveal()) > 255) {
		return errors.New("upstream proxy: SOCKS5 takes 255 bytes of user and password each")
	}
	return nil
}

// reach has the proxy connect to target, an address and port or a name and port, over a connection that leaves by w. ctx needs a deadline.
func (u *UpstreamProxy) reach(ctx context.Context, w Way, target string) (net.Conn, error) {
	c, err := u.connect(ctx, w)
	if err != nil {
		return nil, &proxyError{ProxyDown, fmt.Errorf("connecting to the company's proxy: %w", err)}
	}
	done, err := bound(ctx, c)
	if err != nil {
		c.Close()
		return nil, err
	}
	switch u.Scheme {
	case SOCKS5:
		err = u.askSOCKS(c, target)
	default:
		err = u.askHTTP(c, target)
	}
	if done(); err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// connect opens a connection to the first of the proxy's addresses that takes one.
func (u *UpstreamProxy) connect(ctx context.Context, w Way) (net.Conn, error) {
	var last error
	for i, a := range u.Addrs {
		try, stop := context.WithTimeout(ctx, share(ctx, len(u.Addrs)-i))
		c, err := u.connectTo(try, w, a)
		stop()
		if err == nil || ctx.Err() != nil {
			return c, err
		}
		last = err
	}
	return nil, last
}

func (u *UpstreamProxy) connectTo(ctx context.Context, w Way, a netip.AddrPort) (net.Conn, error) {
	c, err := w.connect(ctx, a, func(netip.AddrPort) error { return nil })
	if err != nil || u.Scheme != HTTPS {
		return c, err
	}
	inside := tls.Client(c, &tls.Config{ServerName: u.Name, RootCAs: u.Roots, MinVersion: tls.VersionTLS12, Time: u.Now})
	if err := inside.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return &sealed{Conn: inside, inside: inside}, nil
}

// sealed is a connection inside of TLS. It shows nobody the TCP connection below: bytes moved there would be in the clear.
type sealed struct {
	net.Conn
	inside *tls.Conn
}

// CloseWrite ends our side of the TLS connection.
func (s *sealed) CloseWrite() error { return s.inside.CloseWrite() }

// bound gives c the deadline of ctx, and an end with it; the function ends that.
func bound(ctx context.Context, c net.Conn) (done func() bool, err error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now()
	}
	if err := c.SetDeadline(deadline); err != nil {
		return nil, err
	}
	return context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) }), nil
}
