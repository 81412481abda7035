package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"portreeve.dev/gateway/role"
	"portreeve.dev/policies/hostname"
)

// Upstream is the company's proxy. What is dialled goes through it, and never past it.
type Upstream struct {
	URL          string   `yaml:"url"`           // http://, https:// or socks5://, with a port; default: none, connections are made directly
	Addresses    []string `yaml:"addresses"`     // where the URL's name is, tried in this order; left out where the URL has an address
	User         string   `yaml:"user"`          // default: no login
	PasswordFile string   `yaml:"password_file"` // holds the user's password, and nothing else
	ConnectBy    string   `yaml:"connect_by"`    // address, which is what was checked, or name, which the proxy looks up again; default address
	DNS          string   `yaml:"dns"`           // direct, or proxy: queries go through it too, and have to be over TLS; default direct
	// DirectOrgs are those whose connections are made without it, ids or short names. The exception is what is named: a slip of the
	// pen then sends an org through the proxy, and none past it.
	DirectOrgs []string `yaml:"direct_orgs"`
}

// Values of Upstream.ConnectBy.
const (
	ConnectByAddress = "address"
	ConnectByName    = "name"
)

// Values of Upstream.DNS.
const (
	DNSDirect = "direct"
	DNSProxy  = "proxy"
)

// Everybody reports whether all connections go through the proxy.
func (u *Upstream) Everybody() bool { return u.URL != "" && len(u.DirectOrgs) == 0 }

func (u *Upstream) complete() {
	set(&u.ConnectBy, ConnectByAddress)
	set(&u.DNS, DNSDirect)
}

func (u *Upstream) validate() error {
	if u.URL == "" {
		if len(u.Addresses)+len(u.DirectOrgs) > 0 || u.User != "" || u.PasswordFile != "" {
			return fmt.Errorf("egress.upstream.url: it is missing, and the rest of egress.upstream is about it")
		}
		return nil
	}
	switch {
	case (u.User == "") != (u.PasswordFile == ""):
		return fmt.Errorf("egress.upstream: user and password_file go together")
	case u.ConnectBy != ConnectByAddress && u.ConnectBy != ConnectByName:
		return fmt.Errorf("egress.upstream.connect_by: %q is neither %s nor %s", u.ConnectBy, ConnectByAddress, ConnectByName)
	case u.DNS != DNSDirect && u.DNS != DNSProxy:
		return fmt.Errorf("egress.upstream.dns: %q is neither %s nor %s", u.DNS, DNSDirect, DNSProxy)
	case slices.Contains(u.DirectOrgs, "*"):
		return fmt.Errorf("egress.upstream.direct_orgs: where everybody goes directly, leave egress.upstream out")
	}
	_, err := u.Proxy()
	return err
}

// Proxy is what edge and control are told of it, without the password; nil if there is none.
func (u *Upstream) Proxy() (*role.UpstreamProxy, error) {
	if u.URL == "" {
		return nil, nil
	}
	at, err := url.Parse(u.URL)
	if err != nil {
		return nil, fmt.Errorf("egress.upstream.url: it can't be read") // the error would show a password that is in it
	}
	switch {
	case at.User != nil:
		return nil, fmt.Errorf("egress.upstream.url: it holds a login, which belongs into user and password_file")
	case at.Scheme == "socks5h":
		return nil, fmt.Errorf("egress.upstream.url: write socks5, and connect_by: name if the proxy is to look names up")
	case at.Scheme != "http" && at.Scheme != "https" && at.Scheme != "socks5":
		return nil, fmt.Errorf("egress.upstream.url: %q is none of http, https and socks5", at.Scheme)
	case at.Path != "" && at.Path != "/" || at.RawQuery != "" || at.Fragment != "":
		return nil, fmt.Errorf("egress.upstream.url: %q goes on behind the port", u.URL)
	}
	port, err := netip.ParseAddrPort("0.0.0.0:" + at.Port())
	if err != nil || port.Port() == 0 {
		return nil, fmt.Errorf("egress.upstream.url: %q has no port, like http://10.0.0.5:3128", u.URL)
	}
	p := &role.UpstreamProxy{Scheme: at.Scheme, Name: at.Hostname(), User: u.User, ByName: u.ConnectBy == ConnectByName, DNS: u.DNS == DNSProxy}
	addrs, err := u.addresses(at.Hostname())
	for _, a := range addrs {
		p.Addrs = append(p.Addrs, netip.AddrPortFrom(a, port.Port()))
	}
	return p, err
}

// addresses are those of the proxy. They stand in the configuration, as the wall around the edge is made for them, by root, who asks
// nobody for names.
func (u *Upstream) addresses(host string) (addrs []netip.Addr, err error) {
	texts, field := u.Addresses, "addresses"
	if literal, err := netip.ParseAddr(host); err == nil {
		if len(texts) > 0 {
			return nil, fmt.Errorf("egress.upstream.addresses: the URL has the address %v already", literal)
		}
		texts, field = []string{host}, "url"
	} else if name, err := hostname.Normalize(host); err != nil || name != host {
		return nil, fmt.Errorf("egress.upstream.url: %q is neither an address nor a host name in lower case", host)
	} else if len(texts) == 0 {
		return nil, fmt.Errorf("egress.upstream.addresses: the URL names %q; say here at which addresses that is", host)
	}
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" || a != a.Unmap() {
			return nil, fmt.Errorf("egress.upstream.%s: %q is no address", field, text)
		}
		if a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() {
			return nil, fmt.Errorf("egress.upstream.%s: no proxy is at %v", field, a)
		}
		addrs = append(addrs, a)
	}
	return addrs, nil
}

// upstream checks the proxy with what stands around it.
func (c *Config) upstream() error {
	if err := c.Egress.Upstream.validate(); err != nil {
		return err
	}
	for _, p := range c.AlwaysClosed() {
		for _, hard := range c.HardRanges() {
			if hard.Overlaps(p) {
				return fmt.Errorf("egress.upstream: %v is in %v, which is ours", p.Addr(), hard)
			}
		}
	}
	clear := slices.IndexFunc(c.Egress.UpstreamDNS, func(s string) bool { return !strings.HasPrefix(s, "tls://") })
	switch {
	case c.Egress.Upstream.URL == "" || c.Egress.Upstream.DNS == DNSDirect:
	case len(c.Egress.UpstreamDNS) == 0:
		return fmt.Errorf("egress.upstream.dns: the proxy takes DNS over TLS only; name resolvers like tls://192.0.2.53:853#dns.example.com under egress.upstream_dns")
	case clear >= 0:
		return fmt.Errorf("egress.upstream_dns[%d]: it is not over TLS, and the proxy, by egress.upstream.dns, takes no other", clear)
	}
	return nil
}

// AlwaysClosed are addresses that no sandbox reaches, also where an exemption is around them: the company's proxy.
func (c *Config) AlwaysClosed() (closed []netip.Prefix) {
	p, err := c.Egress.Upstream.Proxy()
	if err != nil || p == nil {
		return nil
	}
	for _, a := range p.Addrs {
		closed = append(closed, netip.PrefixFrom(a.Addr(), a.Addr().BitLen()))
	}
	return closed
}
