package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/policies"
)

// A dialling is what a pool's dial has to know: it comes in the request's context, as the transport has no other way.
type dialling struct {
	c      *connection
	req    policies.Request // that was judged
	target Target
	uses   []decisions.Use // what goes over the connection
	onlyH1 bool            // a WebSocket needs HTTP/1
}

type diallingKey struct{}

// errNotDialled marks an error that came before there was an upstream.
var errNotDialled = errors.New("not dialled")

// connect opens a connection that requests may share and keep. It is a flow of its own: it ends when the policy denies all of
// its destination, when the floor or a rule closes its address, and when a secret that it carries is no longer granted.
func (d *dialling) connect(ctx context.Context) (*upstreamConn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.c.p.cfg.Timeouts.Dial)
	defer cancel()
	nc, addr, err := d.c.p.dial(ctx, d.target)
	if err != nil {
		return nil, errors.Join(errNotDialled, err)
	}
	up := &upstreamConn{Conn: nc, addr: addr}
	if err := up.enter(d); err != nil {
		up.Close()
		return nil, errors.Join(errNotDialled, err)
	}
	return up, nil
}

// connectTLS is connect, with TLS on it and the upstream's name proven.
func (d *dialling) connectTLS(ctx context.Context, config *tls.Config) (*tls.Conn, *upstreamConn, error) {
	up, err := d.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	if d.onlyH1 {
		config = config.Clone()
		config.NextProtos = nil
	}
	conn := tls.Client(up, config)
	ctx, cancel := context.WithTimeout(ctx, upstreamHandshake)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		up.Close()
		return nil, nil, err
	}
	if !d.onlyH1 {
		d.c.p.memory.put(d.c.upstreamKey(speaksH2, d.req), isH2(conn))
	}
	return conn, up, nil
}

const upstreamHandshake = 10 * time.Second

func isH2(conn *tls.Conn) bool { return conn.ConnectionState().NegotiatedProtocol == "h2" }

// upstreamTLS is how an upstream has to prove the name that was judged.
func (p *Proxy) upstreamTLS(req policies.Request) *tls.Config {
	name := req.Host
	if name == "" {
		name = req.Addr.String()
	}
	return &tls.Config{
		ServerName: name, RootCAs: p.cfg.UpstreamRoots, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(4),
		NextProtos: []string{"h2", "http/1.1"}, Time: p.cfg.Now,
	}
}

// upstreamKey is where an answer of the destination is remembered.
func (c *connection) upstreamKey(about question, req policies.Request) memoryKey {
	k := memoryKey{about: about, org: c.binding.Org, host: req.Host, addr: req.Addr, port: req.Port}
	if c.pin.IsValid() {
		k.addr = c.pin
	}
	return k
}

// An upstreamConn is a kept connection to an upstream. Whoever reads or writes after it was killed is told why.
type upstreamConn struct {
	net.Conn
	addr netip.Addr

	mu     sync.Mutex
	by     *killed // why it was ended, if it was
	remove func()  // takes it out of the flow table
	closed bool
}

// enter registers the connection as a flow, in place of what it was registered as before.
func (u *upstreamConn) enter(d *dialling) error {
	req := d.req
	req.Stage, req.Method, req.Path = policies.StageConnect, "", "" // it serves other requests as well
	remove, err := d.c.p.cfg.Flows.Add(Flow{
		ID: newFlowID(), Parent: d.c.id, Binding: d.c.binding, Request: req, Remote: netip.AddrPortFrom(u.addr, req.Port),
		Upstream: true, Secrets: d.uses, Kill: u.kill,
	})
	if err != nil {
		return &RefusedError{Verdict: policies.Denied(policies.ReasonBudget), Addr: u.addr}
	}
	u.mu.Lock()
	before, closed := u.remove, u.closed
	u.remove = remove
	u.mu.Unlock()
	if before != nil {
		before()
	}
	if closed {
		remove()
	}
	return nil
}

func (u *upstreamConn) kill(r policies.Reason) {
	by := killed(r)
	u.mu.Lock()
	u.by = &by
	u.mu.Unlock()
	resetOnClose(u.Conn)
	u.Close()
}

func (u *upstreamConn) Close() error {
	u.mu.Lock()
	remove := u.remove
	u.closed = true
	u.mu.Unlock()
	err := u.Conn.Close()
	if remove != nil {
		remove()
	}
	return err
}

func (u *upstreamConn) Read(p []byte) (int, error) {
	n, err := u.Conn.Read(p)
	return n, u.why(err)
}

func (u *upstreamConn) Write(p []byte) (int, error) {
	n, err := u.Conn.Write(p)
	return n, u.why(err)
}

// why puts the reason in place of an error that our own kill made.
func (u *upstreamConn) why(err error) error {
	if err == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.by != nil {
		return *u.by
	}
	return err
}

// NetConn is the connection as it was dialled.
func (u *upstreamConn) NetConn() net.Conn { return u.Conn }
