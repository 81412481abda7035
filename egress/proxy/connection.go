package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
	"uuid"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
)

// Why a connection was ended from our side.
var (
	errIdle     = errors.New("idle")
	errShutdown = errors.New("shutdown")
)

// A killed is the reason for which the flow table ended something.
type killed policies.Reason

func (k killed) Error() string { return string(k) }

type connectionKey struct{}

// A connection is one accepted connection of a sandbox. Who it belongs to and where it goes is settled once, at accept;
// everything later compares with it.
type connection struct {
	p       *Proxy
	id      string // flo_<uuidv7>
	client  *clientConn
	binding egress.Binding
	dst     netip.AddrPort // as the sandbox dialled it
	host    string         // the name that dst stands for, in normal form; empty for a connection by address
	claim   string         // what a TLS client by address names as the server, in normal form
	pin     netip.Addr     // dst's address, if it is a real one of the host's; then it is the one that is dialled
	local   bool           // to portreeve.internal
	since   time.Time
	live    egress.Live
	meter   Meter

	ctx      context.Context // ends with the connection; its cause says why
	cancel   context.CancelCauseFunc
	watch    *idleWatch
	denied   atomic.Pointer[judgement] // the connection is served only to say why it is refused
	told     atomic.Bool               // that refusal was recorded
	requests atomic.Int64              // that the handler heard of
	refs     atomic.Int32              // the goroutine in serve, the open client, each request; the proxy forgets it at zero

	mu         sync.Mutex
	isClosed   bool
	removeFlow func()

	kept atomic.Pointer[keptUpstream] // an upstream connection that waits for its first request

	// Set before the connection is handed to the HTTP server, then only read.
	opened    bool       // TLS was opened: HTTPS instead of HTTP
	authority string     // what Host must say, in its usual form
	guard     *guardConn // nil on HTTP/2

	// Of a connection through a door; see door.go.
	answer  func(*DoorRefusal) error // until it was called
	unhook  func() bool              // from the context that it was served under
	forward *DoorTarget              // each request names its own destination
	door    bool
}

// serve is the goroutine of one accepted connection, until it ends or is handed to the HTTP server.
func (p *Proxy) serve(nc net.Conn) {
	c, ok := p.bind(nc)
	if !ok {
		return
	}
	defer c.release()
	if !c.run() {
		c.client.Close()
	}
}

// bind settles whose connection it is. Nothing of a connection that is nobody's is read.
func (p *Proxy) bind(nc net.Conn) (*connection, bool) {
	src, dst := addrPort(nc.RemoteAddr()), addrPort(nc.LocalAddr())
	b, ok := p.cfg.Bindings.Lookup(src.Addr())
	if !ok || !dst.IsValid() {
		p.unbound.Add(1)
		resetOnClose(nc)
		nc.Close()
		return nil, false
	}
	c := &connection{p: p, id: newFlowID(), binding: b, dst: dst, since: time.Now(), watch: new(idleWatch)}
	c.client = &clientConn{Conn: nc, owner: c}
	c.live.Since = c.since
	c.local = p.cfg.Self != nil && dst.Addr() == p.cfg.SelfAddr.Unmap()
	c.meter = p.meter(b, c.local)
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.refs.Store(2)
	if !p.enter(c) {
		c.cancel(errShutdown)
		resetOnClose(nc)
		nc.Close()
		return nil, false
	}
	c.watch.start(&c.live, p.cfg.Timeouts.Idle, func() { c.end(errIdle) })
	return c, true
}

// end cuts the connection at once.
func (c *connection) end(why error) {
	c.cancel(why)
	resetOnClose(c.client)
	c.client.Close()
}

// kill ends the connection because it is no longer allowed.
func (c *connection) kill(r policies.Reason) { c.end(killed(r)) }

// closed releases what is held for the connection. clientConn calls it once.
func (c *connection) closed() {
	c.watch.stop()
	if c.unhook != nil {
		c.unhook()
	}
	c.cancel(nil)
	c.dropKept()
	c.mu.Lock()
	c.isClosed = true
	remove := c.removeFlow
	c.mu.Unlock()
	if remove != nil {
		remove()
	}
	if j := c.denied.Load(); j != nil && !c.told.Swap(true) {
		_ = c.record(c.decision(layerConnect, levelAddress, *j))
	}
	c.release()
}

// hold keeps the connection known to the proxy while a request on it is served; false when it is gone already.
func (c *connection) hold() bool {
	for {
		n := c.refs.Load()
		if n == 0 {
			return false
		}
		if c.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (c *connection) release() {
	if c.refs.Add(-1) == 0 {
		c.p.leave(c)
	}
}

// onClosed has remove called when the connection is closed, which may be already.
func (c *connection) onClosed(remove func()) {
	c.mu.Lock()
	c.removeFlow = remove
	closed := c.isClosed
	c.mu.Unlock()
	if closed {
		remove()
	}
}

// run takes the connection to its end, or to the HTTP server; then it returns true.
func (c *connection) run() (handed bool) {
	name := policies.Reason("")
	var shared []string // more than one name that dst may stand for
	switch {
	case c.local:
	case c.p.cfg.Names.InRange(c.dst.Addr()):
		host, ok := c.p.cfg.Names.Name(c.binding.Sandbox, c.binding.Incarnation, c.dst.Addr())
		if !ok {
			name = policies.ReasonNoName
		}
		c.host = host
	default:
		shared = c.pinned()
	}
	req := c.request(policies.StageConnect, 0)
	remove, err := c.p.cfg.Flows.Add(Flow{ID: c.id, Binding: c.binding, Request: req, Local: c.local, Live: &c.live, Kill: c.kill})
	if err != nil {
		return c.refuseFull(judgement{req: req}.full(err))
	}
	c.onClosed(remove)
	switch {
	case c.local:
		return c.runLocal()
	case name != "":
		return c.drop(judgement{req: req, v: policies.Denied(name)})
	}
	if len(shared) > 0 {
		if refused := c.chooseName(shared); refused != nil {
			return c.drop(*refused)
		}
		req = c.request(policies.StageConnect, 0)
	}
	j := c.judge(req)
	if !j.v.Allowed() {
		j = c.byAddress(j)
	}
	if j = c.charged(j); !j.v.Allowed() {
		return c.refuse(j)
	}
	if !c.welcome() {
		return false
	}
	return c.dispatch(j)
}

// use registers what is about to be judged below the connection's own flow, so that it ends alone. What is all of the connection
// has its live.
func (c *connection) use(req policies.Request, opaque bool, live *egress.Live, kill func(policies.Reason)) (func(), error) {
	return c.p.cfg.Flows.Add(Flow{ID: newFlowID(), Parent: c.id, Binding: c.binding, Request: req, Opaque: opaque, Claim: c.claim, Live: live, Kill: kill})
}

// reached registers a relay once more, now that its address is known: the floor may close that, too.
func (c *connection) reached(req policies.Request, addr netip.Addr) (func(), error) {
	remote := netip.AddrPortFrom(addr, req.Port)
	c.live.Reach(remote)
	return c.p.cfg.Flows.Add(Flow{ID: newFlowID(), Parent: c.id, Binding: c.binding, Request: req, Remote: remote, Claim: c.claim, Live: &c.live, Kill: c.kill})
}

func newFlowID() string { return "flo_" + uuid.NewV7().String() }

// addrPort reads a TCP address, IPv4 as IPv4.
func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
