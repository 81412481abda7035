package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"portreeve.dev/egress"
	"portreeve.dev/egress/decisions"
)

// A poolKey is everything that two requests must share to share an upstream connection. Two sandboxes never do, nor two
// incarnations, nor requests that carry different secrets, nor one that may use an exemption of the floor and one that may not.
type poolKey struct {
	sandbox     string
	incarnation uint64
	host        string
	addr        netip.Addr
	pin         netip.Addr
	port        uint16
	opened      bool
	named       bool
	secrets     string
}

// pools keeps the upstream connections, of each org at most a number of pools: one that has many pushes out its own.
type pools struct {
	p     *Proxy
	mu    sync.Mutex
	byOrg map[string]*lru.Cache[poolKey, *pool]
}

func newPools(p *Proxy) *pools {
	return &pools{p: p, byOrg: make(map[string]*lru.Cache[poolKey, *pool])}
}

// of returns the pools of an org. The caller holds the lock.
func (s *pools) of(org string) *lru.Cache[poolKey, *pool] {
	byKey, ok := s.byOrg[org]
	if !ok {
		byKey, _ = lru.NewWithEvict(s.p.cfg.Limits.Upstreams, func(_ poolKey, up *pool) { up.transport.CloseIdleConnections() }) // fails for a size below one
		s.byOrg[org] = byKey
	}
	return byKey
}

// get returns the pool for a judged request. Its connections were dialled for earlier judgements, so the addresses that they
// go to are judged again; where one is no longer allowed the pool is left, and the dialer chooses anew.
func (s *pools) get(c *connection, j judgement, uses []decisions.Use) *pool {
	key := poolKey{c.binding.Sandbox, c.binding.Incarnation, j.req.Host, j.req.Addr, c.pin, j.req.Port, c.opened, j.v.Named, versions(uses)}
	s.mu.Lock()
	mine := s.of(c.binding.Org)
	up, ok := mine.Get(key)
	s.mu.Unlock()
	if ok && up.allowed(c, j) {
		return up
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if have, still := mine.Peek(key); still {
		if have != up { // somebody else was faster
			return have
		}
		mine.Remove(key) // closes what is idle
	}
	up = newPool(s.p, c, j, uses)
	mine.Add(key, up)
	return up
}

// release closes what an org keeps idle, so that it can have connections elsewhere.
func (s *pools) release(org string) {
	s.mu.Lock()
	all := s.of(org).Values()
	s.mu.Unlock()
	for _, up := range all {
		up.transport.CloseIdleConnections()
	}
}

func (s *pools) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, byKey := range s.byOrg {
		byKey.Purge()
	}
}

// refresh closes what is idle and carries a secret that is no longer granted, or no longer the newest version. What is under way there
// ends with its request, and is not used again.
func (s *pools) refresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, byKey := range s.byOrg {
		for _, key := range byKey.Keys() {
			if up, ok := byKey.Peek(key); ok && !up.current() {
				byKey.Remove(key)
			}
		}
	}
}

// current reports whether a request would still carry what the pool's connections do.
func (up *pool) current() bool {
	for _, u := range up.uses {
		if !up.p.cfg.Injector.Current(up.binding, up.host, up.port, u) {
			return false
		}
	}
	return true
}

// versions spells out which secrets a request carries.
func versions(uses []decisions.Use) string {
	if len(uses) == 0 {
		return ""
	}
	var b strings.Builder
	for _, u := range uses {
		b.WriteString(u.Secret + ":" + strconv.FormatInt(u.Version, 10) + ":" + u.Place + ";")
	}
	return b.String()
}

// What of answers by HTTP/2 may wait here for a client that reads slowly: of one, and of all on one upstream connection. By
// itself the transport takes in 4 MiB of each.
const (
	streamBuffer   = 1 << 20
	upstreamBuffer = 16 << 20
)

// A pool is the upstream connections of one key.
type pool struct {
	p         *Proxy
	transport *http.Transport
	tls       *tls.Config // nil in the clear
	binding   egress.Binding
	host      string
	port      uint16
	uses      []decisions.Use // what its connections carry

	mu    sync.Mutex
	addrs []netip.Addr // that were judged and dialled for this pool, in order
}

func newPool(p *Proxy, c *connection, j judgement, uses []decisions.Use) *pool {
	up := &pool{p: p, binding: c.binding, host: j.req.Host, port: j.req.Port, uses: uses}
	up.transport = &http.Transport{
		DialContext:            up.dial,
		DisableCompression:     true, // the answer goes on as it came
		MaxIdleConnsPerHost:    p.cfg.Limits.IdlePerPool,
		IdleConnTimeout:        90 * time.Second,
		ResponseHeaderTimeout:  p.cfg.Timeouts.Response,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: p.cfg.Limits.ResponseHeader,
		ForceAttemptHTTP2:      c.opened,
		HTTP2:                  &http.HTTP2Config{MaxReceiveBufferPerStream: streamBuffer, MaxReceiveBufferPerConnection: upstreamBuffer},
	}
	if c.opened {
		up.tls = p.upstreamTLS(j.req)
		up.transport.DialTLSContext = up.dialTLS
	}
	return up
}

// dial connects to what was judged. The address that the transport passes is made from the request and is not looked at.
func (up *pool) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	d, ok := ctx.Value(diallingKey{}).(*dialling)
	if !ok {
		return nil, errNotDialled
	}
	nc, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	up.add(nc.addr)
	return nc, nil
}

// dialTLS is dial for opened connections.
func (up *pool) dialTLS(ctx context.Context, _, _ string) (net.Conn, error) {
	d, ok := ctx.Value(diallingKey{}).(*dialling)
	if !ok {
		return nil, errNotDialled
	}
	if kept := d.takeKept(); kept != nil {
		up.add(kept.up.addr)
		return kept.conn, nil
	}
	conn, nc, err := d.connectTLS(ctx, up.tls)
	if err != nil {
		return nil, err
	}
	up.add(nc.addr)
	return conn, nil
}

const maxAddresses = 16 // of one pool

func (up *pool) add(addr netip.Addr) {
	up.mu.Lock()
	defer up.mu.Unlock()
	if n := len(up.addrs); n > 0 && up.addrs[n-1] == addr {
		return
	}
	up.addrs = append(up.addrs[:len(up.addrs):len(up.addrs)], addr) // readers hold the old slice
}

// allowed asks about every address that a connection of the pool may go to.
func (up *pool) allowed(c *connection, j judgement) bool {
	if j.req.Host == "" {
		return true
	}
	up.mu.Lock()
	addrs := up.addrs
	up.mu.Unlock()
	if len(addrs) > maxAddresses {
		return false
	}
	for _, a := range addrs {
		if !c.judgeAddress(j.req, a).Allowed() {
			return false
		}
	}
	return true
}

// last is the address dialled last.
func (up *pool) last() netip.Addr {
	up.mu.Lock()
	defer up.mu.Unlock()
	if len(up.addrs) == 0 {
		return netip.Addr{}
	}
	return up.addrs[len(up.addrs)-1]
}
