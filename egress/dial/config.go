package dial

import (
	"fmt"
	"net/netip"
	"time"
)

// Config of a Dialer. Servers or TLSServers is needed; the rest has defaults.
type Config struct {
	Servers        []netip.AddrPort // DNS servers, asked in this order. They are the operator's and not judged by the floor
	TLSServers     []TLSServer      // instead of Servers: asked over TLS, in this order, and never in the clear
	IPv6           bool             // ask for and use IPv6 addresses too, after the IPv4 ones; default off
	MixedCase      bool             // send names in random case and want it back (0x20); default off, as some servers lower it
	ResolveTimeout time.Duration    // for the whole lookup; default 5 s
	TryTimeout     time.Duration    // for one server; default 2 s
	ConnectTimeout time.Duration    // for all connection attempts together; default 10 s
	CacheEntries   int              // answers kept, of all orgs; default 4096
	Upstream       *UpstreamProxy   // through which all connections go but those of orgs with a direct way; default none
	MaxTTL         time.Duration    // longest use of an answer; default 30 s. A TTL of 0 isn't kept
	Now            func() time.Time // by which exemptions of the floor end, and certificates; default time.Now
}

const (
	maxAddresses = 8 // of one name that are tried
	maxAliases   = 8 // CNAME records that are followed
	negativeTTL  = 5 * time.Second
)

func (c Config) withDefaults() (Config, error) {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.ResolveTimeout, 5*time.Second)
	def(&c.TryTimeout, 2*time.Second)
	def(&c.ConnectTimeout, 10*time.Second)
	def(&c.MaxTTL, 30*time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.CacheEntries == 0 {
		c.CacheEntries = 4096
	}
	switch {
	case len(c.Servers)+len(c.TLSServers) == 0:
		return c, fmt.Errorf("dialer configuration: at least one DNS server is needed")
	case len(c.Servers) > 0 && len(c.TLSServers) > 0:
		return c, fmt.Errorf("dialer configuration: DNS servers in the clear beside some over TLS")
	case c.Upstream != nil && c.Upstream.DNS && len(c.Servers) > 0:
		return c, fmt.Errorf("dialer configuration: the company's proxy takes DNS over TLS only")
	}
	for _, s := range c.TLSServers {
		if !s.Addr.IsValid() || s.Addr.Port() == 0 || s.Name == "" || s.Roots == nil {
			return c, fmt.Errorf("dialer configuration: %v is no DNS server over TLS, with address, port, name and roots", s.Addr)
		}
	}
	for _, s := range c.Servers {
		if !s.IsValid() || s.Port() == 0 {
			return c, fmt.Errorf("dialer configuration: %q is no address and port of a DNS server", s)
		}
	}
	if min(c.ResolveTimeout, c.TryTimeout, c.ConnectTimeout, c.MaxTTL) < 0 || c.CacheEntries < 0 {
		return c, fmt.Errorf("dialer configuration: a timeout or size is negative")
	}
	if c.Upstream != nil {
		if err := c.Upstream.validate(); err != nil {
			return c, fmt.Errorf("dialer configuration: %w", err)
		}
	}
	return c, nil
}
