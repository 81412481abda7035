package proxy

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
)

// A DoorTarget is what the client of a door asked for, after it said who it is: a destination, or with Forward the right to
// name one in each request.
type DoorTarget struct {
	Host string     // in normal form; empty for an address
	Addr netip.Addr // when Host is empty
	Port uint16

	// Replay is what was read of the connection already, to be read first.
	Replay []byte
	// Answer tells the client in the door's own language whether it may go on; the refusal is nil if it may. It is called once,
	// before anything is read. An error ends the connection. Nil says nothing. Not used with Forward.
	Answer func(*DoorRefusal) error

	// Forward serves HTTP requests in absolute form, each to the destination that it names.
	Forward bool
	// Admit is asked with the Proxy-Authorization fields of each request; a reason refuses it. Nil asks for nothing.
	Admit func(authorization []string) policies.Reason
}

// A DoorRefusal is a recorded denial, as a door tells it.
type DoorRefusal struct {
	Status   int // of HTTP
	Reason   policies.Reason
	Decision string // id; empty if it could not be recorded
	Body     []byte // application/problem+json
}

// ServeDoor serves a connection that did not come over the wire of a sandbox but through a door, where its client proved to be
// b and named where it wants to go. From here on it is the same connection: the name that was asked for is the name that
// server name, Host and dial are held to. It takes nc over, and returns when that is done with or handed to the HTTP server;
// the end of ctx ends it.
func (p *Proxy) ServeDoor(ctx context.Context, nc net.Conn, b egress.Binding, to DoorTarget) {
	c := p.newDoor(ctx, b, to)
	c.client = &clientConn{Conn: plainConn(nc), owner: c, peeked: to.Replay}
	c.refs.Store(2)
	if !p.enter(c) {
		c.cancel(errShutdown)
		nc.Close()
		return
	}
	defer c.release()
	p.startHTTP.Do(func() { go p.serveHTTP() })
	c.watch.start(&c.live, p.cfg.Timeouts.Idle, func() { c.end(errIdle) })
	c.unhook = context.AfterFunc(ctx, func() { c.end(errShutdown) })
	run := c.run
	if to.Forward {
		run = c.runForward
	}
	if !run() {
		c.client.Close()
	}
}

// RefuseDoor records that a door turned b away before there was a connection to serve, and words the refusal.
func (p *Proxy) RefuseDoor(ctx context.Context, b egress.Binding, to DoorTarget, reason policies.Reason, message string) *DoorRefusal {
	c := p.newDoor(ctx, b, to)
	defer c.cancel(nil)
	j := judgement{req: c.request(policies.StageConnect, 0)}.deny(reason)
	j.v.Message = message
	return c.turnAway(j)
}

func (p *Proxy) newDoor(ctx context.Context, b egress.Binding, to DoorTarget) *connection {
	c := &connection{p: p, id: newFlowID(), binding: b, dst: netip.AddrPortFrom(to.Addr.Unmap(), to.Port), host: to.Host,
		since: time.Now(), watch: new(idleWatch), answer: to.Answer}
	c.door = true
	if to.Forward {
		c.forward = &to
	}
	c.live.Since = c.since
	c.local = p.isSelf(c.host, c.dst.Addr())
	c.meter = p.meter(b, c.local)
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	return c
}

// charged refuses what was allowed to a connection through a door, if its name is one too many below its wildcard. Of these names there is one
// line for all, as of those that are asked for.
func (c *connection) charged(j judgement) judgement {
	if !c.door || !j.v.Allowed() || j.req.Host == "" || c.p.cfg.NameBudget == nil {
		return j
	}
	if over, ok := c.p.cfg.NameBudget(c.binding, j.req.Host); !ok {
		j = j.deny(policies.ReasonNameBudget)
		j.req.Host = over
	}
	return j
}

// isSelf reports whether a destination is portreeve.internal.
func (p *Proxy) isSelf(host string, addr netip.Addr) bool {
	return p.cfg.Self != nil && (host == SelfHost || host == "" && addr == p.cfg.SelfAddr.Unmap())
}

// welcome tells the client of a door that its connection is let through; true also where there is no door.
func (c *connection) welcome() bool {
	answer := c.answer
	c.answer = nil
	return answer == nil || answer(nil) == nil
}

// turnAway records a denial and words it for the client of a door.
func (c *connection) turnAway(j judgement) *DoorRefusal {
	d := c.decision(layerConnect, levelAddress, j)
	if c.record(d) != nil {
		j, d.ID = j.deny(policies.ReasonRecordFailed), ""
	}
	return c.doorRefusal(j, statusAtDoor(j.v.Reason), d.ID)
}

func (c *connection) doorRefusal(j judgement, status int, decision string) *DoorRefusal {
	f := failed{status, j.v.Reason.String(), j.v.Reason}
	body, err := json.Marshal(problem{
		Type: "https://portreeve.dev/problems/" + f.code, Title: titleOf(f), Status: status, Code: f.code, Decision: decision,
		Rule: j.v.Rule, Reason: j.v.Reason.String(), Guidance: j.v.Guidance(), Version: j.v.Version,
		Retryable: retryable(status), Requestable: j.v.Requestable, Destination: c.destination(),
	})
	if err != nil {
		panic(err) // strings, numbers and booleans
	}
	return &DoorRefusal{Status: status, Reason: j.v.Reason, Decision: decision, Body: body}
}

// statusAtDoor is the HTTP status of a refusal by a door: a proxy asks for credentials in a way of its own.
func statusAtDoor(r policies.Reason) int {
	switch r {
	case policies.ReasonCredential, policies.ReasonCredentialExpired, policies.ReasonCredentialElse:
		return http.StatusProxyAuthRequired
	}
	return statusOf(r)
}
