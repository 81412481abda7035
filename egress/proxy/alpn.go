package proxy

import (
	"crypto/tls"
	"time"

	"portreeve.dev/egress/proxy/clienthello"
)

// offersH2 reports whether a client of an opened connection is offered HTTP/2: if it asks for it and the upstream speaks it. One that
// is not known is asked first; what it was asked on is kept for the first request. ok is false when that must not even be tried.
func (c *connection) offersH2(j judgement, hello *clienthello.Hello) (h2, ok bool) {
	if !hello.Offers("h2") {
		return false, true
	}
	if h2, known := c.p.memory.get(c.upstreamKey(speaksH2, j.req)); known {
		return h2, true
	}
	return c.askH2(j)
}

// askH2 connects to the upstream for its word. That is a use of the verdict as any other, and recorded before. An upstream that can't be
// reached has no word: the client is offered both, and each of its requests is told what is wrong.
func (c *connection) askH2(j judgement) (h2, ok bool) {
	begun := time.Now()
	d := c.decision(layerConnect, levelSNI, j)
	if c.record(d) != nil {
		return false, false
	}
	ask := &dialling{c: c, req: j.req, target: c.target(j)}
	conn, up, err := ask.connectTLS(c.ctx, c.p.upstreamTLS(j.req))
	end := Closing{Duration: time.Since(begun)}
	if err != nil {
		end.Error = failureKind(c.ctx, err)
		c.complete(d, end)
		return true, c.ctx.Err() == nil
	}
	end.Addr = up.addr
	c.complete(d, end)
	c.keep(&keptUpstream{conn: conn, up: up, named: j.v.Named, since: time.Now()})
	return isH2(conn), true
}

// keptFor is how long an unused connection waits for the request that it was opened for. Servers close silent ones.
const keptFor = 5 * time.Second

// A keptUpstream is a connection on which nothing was sent yet.
type keptUpstream struct {
	conn  *tls.Conn
	up    *upstreamConn
	named bool
	since time.Time
}

func (c *connection) keep(k *keptUpstream) {
	c.kept.Store(k)
	if c.ctx.Err() != nil { // closed meanwhile
		c.dropKept()
	}
}

func (c *connection) dropKept() {
	if k := c.kept.Swap(nil); k != nil {
		k.up.Close()
	}
}

// takeKept returns the connection that is waiting, if it may serve: its address is judged again, as for every kept connection.
func (d *dialling) takeKept() *keptUpstream {
	k := d.c.kept.Swap(nil)
	if k == nil {
		return nil
	}
	if k.named != d.target.Named || d.onlyH1 && isH2(k.conn) || time.Since(k.since) > keptFor ||
		!d.c.judgeAddress(d.req, k.up.addr).Allowed() || k.up.enter(d) != nil {
		k.up.Close()
		return nil
	}
	return k
}
