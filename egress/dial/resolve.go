package dial

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/miekg/dns"
)

// A client looks names up, and remembers for a moment. Its answers are not yet judged.
type client struct {
	cfg     Config
	servers []func(ctx context.Context, q *dns.Msg) (*dns.Msg, error) // each server
	tls     []*tlsClient                                              // those of them that are asked over TLS
	now     func() time.Time
	cache   *lru.Cache[question, cached]
}

// The org is part of the question: one org can neither see nor steer what another is answered.
type question struct {
	org, host string
	qtype     uint16
}

type cached struct {
	answer answer
	until  time.Time
}

func newClient(cfg Config) (*client, error) {
	cache, err := lru.New[question, cached](cfg.CacheEntries)
	c := &client{cfg: cfg, now: time.Now, cache: cache}
	for _, server := range cfg.Servers {
		c.servers = append(c.servers, func(ctx context.Context, q *dns.Msg) (*dns.Msg, error) {
			return exchange(ctx, server, q, cfg.MixedCase)
		})
	}
	for _, server := range cfg.TLSServers {
		over := newTLSClient(server, cfg)
		c.tls = append(c.tls, over)
		c.servers = append(c.servers, over.exchange)
	}
	return c, err
}

// lookup finds the addresses of host, IPv4 first.
func (c *client) lookup(ctx context.Context, org, host string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.ResolveTimeout)
	defer cancel()
	a, err := c.ask(ctx, question{org, host, dns.TypeA})
	if err != nil || !c.cfg.IPv6 || a.kind == NXDomain || a.kind == AliasLoop {
		return a, err
	}
	six, err := c.ask(ctx, question{org, host, dns.TypeAAAA})
	switch {
	case len(six.addrs) == 0 && len(a.addrs) > 0:
		return a, nil // whatever happened to the second question, the first has an answer
	case err != nil:
		return a, err
	}
	six.aliases = append(slices.Clone(a.aliases), six.aliases...)
	six.addrs = append(slices.Clone(a.addrs), six.addrs...)
	return six, nil
}

func (c *client) ask(ctx context.Context, q question) (answer, error) {
	if e, ok := c.cache.Get(q); ok {
		if c.now().Before(e.until) {
			return e.answer, nil
		}
		c.cache.Remove(q)
	}
	a, err := c.follow(ctx, q)
	if err == nil && a.ttl > 0 {
		c.cache.Add(q, cached{answer: a, until: c.now().Add(min(a.ttl, c.cfg.MaxTTL))})
	}
	return a, err
}

// follow asks until there are addresses or none: a server may answer with an alias alone, which is then asked for.
func (c *client) follow(ctx context.Context, q question) (answer, error) {
	all := answer{ttl: time.Hour}
	for owner := q.host; ; owner = all.aliases[len(all.aliases)-1] {
		r, err := c.anyServer(ctx, owner, q.qtype)
		if err != nil {
			return answer{}, err
		}
		a := read(r, owner, q.qtype, maxAliases-len(all.aliases))
		all.aliases, all.addrs, all.ttl = append(all.aliases, a.aliases...), a.addrs, min(all.ttl, a.ttl)
		switch {
		case a.kind != "":
			all.kind = a.kind
		case r.Rcode == dns.RcodeNameError:
			all.kind, all.addrs = NXDomain, nil
		case len(a.addrs) > 0:
			return all, nil
		case len(a.aliases) > 0:
			continue
		default:
			all.kind = NoAddress
		}
		all.ttl = min(all.ttl, negativeTTL)
		return all, nil
	}
}

// anyServer returns the first reply that settles the question, trying each server once.
func (c *client) anyServer(ctx context.Context, name string, qtype uint16) (*dns.Msg, error) {
	kind, last := ServFail, error(nil)
	for _, ask := range c.servers {
		try, cancel := context.WithTimeout(ctx, c.cfg.TryTimeout)
		r, err := ask(try, query(name, qtype, c.cfg.MixedCase))
		cancel()
		switch {
		case err == nil && (r.Rcode == dns.RcodeSuccess || r.Rcode == dns.RcodeNameError):
			return r, nil
		case err == nil:
			kind, last = ServFail, errors.New("the server says "+dns.RcodeToString[r.Rcode])
		default:
			kind, last = resolveKind(err), err
		}
		if ctx.Err() != nil {
			break
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		kind = Canceled
	}
	return nil, &Error{Kind: kind, Host: name, Err: last}
}

func resolveKind(err error) Kind {
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return ResolveTimeout
	}
	return ServFail
}
