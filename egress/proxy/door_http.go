package proxy

import (
	"net/http"
	"net/netip"
	"strconv"

	"portreeve.dev/policies"
)

// runForward hands a connection whose requests name their own destinations to the HTTP server. The connection itself goes
// nowhere: it counts against the caps, and each request on it is judged by itself.
func (c *connection) runForward() (handed bool) {
	remove, err := c.p.cfg.Flows.Add(Flow{ID: c.id, Binding: c.binding, Request: c.request(policies.StageConnect, 0), Local: true, Live: &c.live, Kill: c.kill})
	if err != nil {
		return c.drop(judgement{req: c.request(policies.StageConnect, 0)}.full(err))
	}
	c.onClosed(remove)
	c.guard = newGuard(c.client, c)
	return c.p.inbox.Put(c.guard)
}

// serveForward serves a request that came in absolute form, as if it had come on a clear connection to where it goes.
func (x *exchange) serveForward() {
	c := x.c
	if admit := c.forward.Admit; admit != nil {
		if reason := admit(x.r.Header["Proxy-Authorization"]); reason != "" {
			x.challenge(reason)
			return
		}
	}
	delete(x.r.Header, "Proxy-Authorization") // ours: no credential of the sandbox's towards anybody
	n, ok := identify(x.r.Host, 80)           // the guard saw to it that the target says the same
	if !ok || len(x.r.RequestURI) < len("http:") || x.r.RequestURI[4] != ':' {
		reason := policies.ReasonHostInvalid
		if ok {
			reason = policies.ReasonParse // origin form, or https: who wants TLS asks for a tunnel
		}
		x.deny(judgement{req: c.request(policies.StageRequest, policies.HTTP)}.deny(reason), 0)
		return
	}
	x.c = c.toward(n)
	if x.c.local {
		x.serveLocal()
		return
	}
	j := x.c.judge(x.c.request(policies.StageConnect, 0))
	switch allowed := j.v.Allowed(); {
	case allowed && j.v.Protocols&(policies.HTTP|raw) == 0:
		x.deny(j.deny(policies.ReasonNotTLS), 0)
		return
	case allowed:
		if j = x.c.charged(j); !j.v.Allowed() {
			x.deny(j, 0)
			return
		}
	}
	x.serve()
}

// toward is the connection as it would be if it went to n alone. It lives as long as one request.
func (c *connection) toward(n named) *connection {
	own := &connection{p: c.p, id: c.id, client: c.client, binding: c.binding, dst: netip.AddrPortFrom(n.addr, n.port), host: n.host,
		since: c.since, ctx: c.ctx, cancel: c.cancel, watch: c.watch, guard: c.guard, meter: c.meter, door: true}
	own.local = c.p.isSelf(own.host, own.dst.Addr())
	own.authority = own.usualAuthority(80)
	return own
}

// challenge refuses a request for the credential that it lacks. It is the last one on its connection.
func (x *exchange) challenge(reason policies.Reason) {
	refusal := x.c.turnAway(judgement{req: x.c.request(policies.StageConnect, 0)}.deny(reason))
	h := x.w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(refusal.Body)))
	h.Set("Cache-Control", "no-store")
	h.Set("Connection", "close")
	if refusal.Status == http.StatusProxyAuthRequired {
		h.Set("Proxy-Authenticate", `Basic realm="portreeve"`)
	}
	if refusal.Decision != "" {
		h.Set(HeaderDecision, refusal.Decision)
	}
	x.w.WriteHeader(refusal.Status)
	_, _ = x.w.Write(refusal.Body)
}
