package proxy

import (
	"context"
	"net/http"
	"strings"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
	"portreeve.dev/policies/httphead"
	"portreeve.dev/policies/pathmatch"
	"portreeve.dev/secrets"
)

// A handler serves the requests of all HTTP connections, clear and opened, HTTP/1 and HTTP/2.
type handler Proxy

// An exchange is one request and its answer.
type exchange struct {
	p     *Proxy
	c     *connection
	w     http.ResponseWriter
	r     *http.Request
	begun time.Time

	ctx    context.Context // of the request; its cause says why it was ended
	cancel context.CancelCauseFunc

	path, query string // path in the form that is judged and sent; query as sent
	hasQuery    bool
	webSocket   bool
	foreign     []string // where it carried credentials of the sandbox's own
	foreignHash []string // beside each, under the org's key
	scrub       *secrets.Scrubber
	reflected   bool        // the answer had a stored credential in it
	live        egress.Live // its bytes are those of the bodies
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := (*Proxy)(h)
	c := r.Context().Value(connectionKey{}).(*connection)
	if !c.hold() {
		panic(http.ErrAbortHandler) // a stream that began as its connection ended
	}
	defer c.release()
	c.requests.Add(1)
	if c.guard != nil {
		defer c.guard.answered.Add(1)
	}
	c.told.Store(true) // whatever comes of it, the request has a decision of its own
	x := &exchange{p: p, c: c, w: w, r: r, begun: time.Now()}
	x.live.Since = x.begun
	x.live.Moved()
	if refusal := c.refusal(r); refusal != nil {
		x.refuseHead(refusal)
		return
	}
	switch j := c.denied.Load(); {
	case c.forward != nil:
		x.serveForward()
	case c.local:
		x.serveLocal()
	case j != nil && j.v.Reason == policies.ReasonQuota: // the policy would allow it
		x.deny(*j, 0)
	default:
		x.serve()
	}
}

// refusal tells a request that stands in for a refused one, and checks on HTTP/2 what the guard checks on HTTP/1.
func (c *connection) refusal(r *http.Request) *httphead.Refusal {
	if c.guard == nil {
		return httphead.CheckRequest(r)
	}
	if r.Method == httphead.Refused {
		return c.guard.reader.Refusal()
	}
	return nil
}

// refuseHead records and answers a request that could not be read in one way.
func (x *exchange) refuseHead(refusal *httphead.Refusal) {
	j := judgement{req: x.c.request(policies.StageRequest, x.protocol())}
	x.deny(j.unreadable(refusal), refusal.Status)
}

// unreadable turns the judgement into a refusal of what can't be read in one way.
func (j judgement) unreadable(refusal *httphead.Refusal) judgement {
	j = j.deny(reasonOf(refusal))
	j.v.Message = "The request was refused: " + refusal.Detail + "."
	return j
}

func reasonOf(refusal *httphead.Refusal) policies.Reason {
	if refusal.Status == http.StatusRequestHeaderFieldsTooLarge {
		return policies.ReasonHeadTooLarge
	}
	return policies.ReasonParse
}

func (x *exchange) protocol() policies.Protocol {
	if x.c.opened {
		return policies.HTTPS
	}
	return policies.HTTP
}

// serve judges one request and forwards it. Each request on a connection comes through here, under the snapshot of now.
func (x *exchange) serve() {
	req := x.c.request(policies.StageRequest, x.protocol())
	if other, reason := x.c.sameIdentity(x.r.Host); reason != "" {
		x.refuseIdentity(judgement{req: req}.deny(reason), other)
		return
	}
	if !x.splitTarget() {
		x.deny(judgement{req: req}.deny(policies.ReasonParse), 0)
		return
	}
	req.Method, req.Path = x.r.Method, x.path

	x.ctx, x.cancel = context.WithCancelCause(x.r.Context())
	defer x.cancel(nil)
	remove, err := x.c.use(req, false, &x.live, func(r policies.Reason) { x.cancel(killed(r)) })
	if err != nil {
		x.deny(judgement{req: req}.full(err), 0)
		return
	}
	defer remove()
	j := x.c.judge(req)
	if !j.v.Allowed() {
		x.deny(j, 0)
		return
	}
	x.allowed(j)
}

// refuseIdentity answers a request for another destination than its connection's: 421 where a connection of its own would
// be allowed, so that a client that pools too eagerly opens one.
func (x *exchange) refuseIdentity(j judgement, other named) {
	status := 0
	if j.v.Reason == policies.ReasonIdentityMismatch && x.c.misdirected(other, x.protocol()) {
		status = http.StatusMisdirectedRequest
	}
	x.deny(j, status)
}

// splitTarget brings the path into the one form.
func (x *exchange) splitTarget() bool {
	target := x.r.RequestURI
	if target == "" || target[0] != '/' { // absolute form: the guard saw to its authority
		i := strings.Index(target, "://")
		if i < 0 {
			return false
		}
		if target = target[i+3:]; strings.IndexByte(target, '/') < 0 {
			target = "/"
		} else {
			target = target[strings.IndexByte(target, '/'):]
		}
	}
	path, query, hasQuery := strings.Cut(target, "?")
	canonical, err := pathmatch.Canonical(path)
	x.path, x.query, x.hasQuery = canonical, query, hasQuery
	return err == nil
}

// allowed does what is left between an allowing verdict and the upstream: foreign credentials, secrets, the record.
func (x *exchange) allowed(j judgement) {
	x.webSocket = wantsWebSocket(x.r)
	granted := x.c.granted()
	if name := x.overriding(); name != "" && (j.v.Inside || granted) { // grants, too, are for methods and paths
		j = j.deny(policies.ReasonOverride)
		j.v.Message = policies.ReasonOverride.Guidance() + " Found: " + name + "."
		x.deny(j, 0)
		return
	}
	if !j.v.DoH && x.asksResolver() {
		x.deny(j.deny(policies.ReasonDoH), 0)
		return
	}
	out := x.outgoing()
	if !x.takeForeign(out, granted, j.v.Foreign) {
		x.denyForeign(j)
		return
	}
	prepareHeader(x.r, x.webSocket) // before anything of ours is set, and behind the search: Connection may name what it hides
	var in Injection
	if granted {
		var err error
		withhold := !x.c.opened || j.v.Observed // only over verified TLS, and never where a policy only watches
		if in, err = x.p.cfg.Injector.Apply(x.ctx, x.c.binding, Place{x.c.host, x.c.dst.Port(), x.path, withhold}, out); err != nil {
			x.p.injecting.Do(func() { x.p.cfg.Log.Warn("injecting a secret", "err", err, "sandbox", x.c.binding.Sandbox) })
			x.deny(j.deny(policies.ReasonSecretUnavailable), 0)
			return
		}
		x.scrub = in.Scrub
		x.askReadable(out.Header)
	}
	pool := x.p.pools.get(x.c, j, in.Uses)
	d := x.c.decision(layerHTTP, levelHTTP, j)
	d.Secrets, d.Foreign, d.ForeignHash = in.Uses, x.foreign, x.foreignHash
	if x.c.record(d) != nil {
		x.problem(j.deny(policies.ReasonRecordFailed), 0, "")
		return
	}
	x.forward(pool, out, j, d)
}

// deny records a refusal and answers it. A status of 0 is the reason's own.
func (x *exchange) deny(j judgement, status int) {
	d := x.c.decision(layerHTTP, levelHTTP, j)
	d.Foreign, d.ForeignHash = x.foreign, x.foreignHash
	if x.c.record(d) != nil {
		x.problem(j.deny(policies.ReasonRecordFailed), 0, "")
		return
	}
	x.problem(j, status, d.ID)
}

// problem answers with a refusal.
func (x *exchange) problem(j judgement, status int, decision string) {
	if status == 0 {
		status = statusOf(j.v.Reason)
	}
	x.answer(j, failed{status, j.v.Reason.String(), j.v.Reason}, decision)
}

func (x *exchange) answer(j judgement, f failed, decision string) {
	v := j.v
	v.Reason = f.reason
	if v.Reason != j.v.Reason {
		v.Message = ""
	}
	closing := x.c.denied.Load() != nil && x.r.ProtoMajor == 1
	writeProblem(x.w, closing, problem{
		Title: titleOf(f), Status: f.status, Code: f.code, Decision: decision, Rule: v.Rule, Reason: v.Reason.String(),
		Guidance: v.Guidance(), Version: v.Version, Requestable: v.Requestable, RequestURL: x.requestURL(v), Destination: x.c.destination(),
	})
}

// requestURL is where access to what was refused may be asked for.
func (x *exchange) requestURL(v policies.Verdict) string {
	if x.p.cfg.Self == nil || !v.Requestable {
		return ""
	}
	return "http://" + SelfHost + "/requests"
}

func titleOf(f failed) string {
	switch {
	case !f.refuses():
		return "The destination is allowed, but did not answer"
	case f.status == http.StatusServiceUnavailable:
		return "Nothing can be let through at the moment"
	}
	return "Not allowed to leave the sandbox"
}

// destination names where the connection goes, for whoever was refused.
func (c *connection) destination() string {
	if c.forward != nil || c.host == "" && !c.dst.Addr().IsValid() {
		return "" // none is known yet
	}
	scheme := uint16(80)
	if c.opened {
		scheme = 443
	}
	return c.usualAuthority(scheme)
}
