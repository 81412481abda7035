package ingress

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"portreeve.dev/ingress/access"
	"portreeve.dev/ingress/forward"
	"portreeve.dev/ingress/front"
	"portreeve.dev/ingress/route"
	"portreeve.dev/ingress/streams"
	"portreeve.dev/ingress/wake"
)

// An exchange is one request under way.
type exchange struct {
	s    *Server
	w    http.ResponseWriter
	r    *http.Request
	in   front.Inbound
	kind front.Kind
	rec  *route.Record
	body *readAhead // of a request that was held

	generation uint64        // to be dialled
	waited     time.Duration // for wakes
}

// serve takes a request from the front to its answer.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, in front.Inbound) {
	x := &exchange{s: s, w: w, r: r, in: in, kind: front.KindOf(r)}
	defer func() { x.body.release(w) }()
	if x.route() && x.admit() && x.awake() {
		x.forward()
	}
}

// answer ends the exchange with an answer of our own.
func (x *exchange) answer(p front.Problem) bool {
	front.Answer(x.w, x.r, p)
	return false
}

// route finds the tunnel.
func (x *exchange) route() bool {
	rec, err := x.s.table.Lookup(x.in.Host)
	switch {
	case err == nil:
		x.rec, x.generation = rec, rec.Generation
		return true
	case errors.Is(err, route.ErrGone):
		return x.answer(ended)
	case errors.Is(err, route.ErrUnknown):
		return x.answer(notFound)
	}
	return x.answer(stale)
}

// admit decides whether the request may use the tunnel, and takes away what is ours.
func (x *exchange) admit() bool {
	pass := x.s.gate.Check(x.r, x.rec, x.in.Authority, x.in.Secure)
	switch pass.Verdict {
	case access.Admit:
		access.Strip(x.r)
		return true
	case access.Redirect:
		h := x.w.Header()
		h.Set("Set-Cookie", pass.Cookie)
		h.Set("Location", pass.Location)
		h.Set("Cache-Control", "no-store")
		h.Set("Referrer-Policy", "no-referrer")
		x.w.WriteHeader(http.StatusSeeOther)
		return false
	case access.Foreign:
		return x.answer(foreign)
	}
	if x.kind == front.Preflight {
		// A browser never sends a token with it. Nothing is allowed, and that is all that can be said.
		x.w.Header().Set("Cache-Control", "no-store")
		x.w.Header().Add("Vary", "Origin")
		x.w.WriteHeader(http.StatusNoContent)
		return false
	}
	return x.answer(tokenRequired)
}

// mayWake reports whether the request is one for which a sandbox is woken.
func (x *exchange) mayWake() bool {
	if x.kind == front.Preflight || x.r.Header.Get("Sec-Purpose") != "" || strings.EqualFold(x.r.Header.Get("Purpose"), "prefetch") {
		return false
	}
	switch x.r.URL.Path {
	case "/favicon.ico", "/robots.txt":
		return false
	}
	return true
}

// awake has the sandbox woken if it sleeps.
func (x *exchange) awake() bool {
	if x.rec.State == route.Running {
		return true
	}
	return x.wake()
}

// wake has the sandbox woken from x.generation, in which it was found not running.
func (x *exchange) wake() bool {
	if !x.mayWake() {
		return x.answer(asleep)
	}
	flights := x.s.flights
	call := wake.Call{Org: x.rec.Org, Sandbox: x.rec.Sandbox, From: x.generation, Anonymous: x.rec.Public, PerMinute: x.rec.AnonymousWakes}
	ctx := x.r.Context()
	if x.kind == front.Navigation && x.r.Header.Get("Sec-Fetch-Mode") == "navigate" { // who only accepts HTML may be a program
		if x.s.cfg.PageAfter <= 0 {
			if err := flights.Start(call); err != nil {
				return x.answer(wakeProblem(err))
			}
			if flights.Woken(x.rec.Sandbox, x.generation) == 0 {
				return x.answer(waking)
			}
		} else {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, x.s.cfg.PageAfter, errPage)
			defer cancel()
		}
	}
	if x.body == nil {
		x.body = readBody(x.w, x.r)
	}
	began := time.Now()
	generation, err := flights.Wait(ctx, call)
	x.waited += time.Since(began)
	if err == nil {
		x.s.cfg.Log.Debug("held for a wake", "tunnel", x.rec.Tunnel, "sandbox", x.rec.Sandbox, "waited", x.waited)
		x.generation = generation
		return true
	}
	if x.r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // nobody waits any more
	}
	x.s.cfg.Log.Info("request not held to a wake", "tunnel", x.rec.Tunnel, "sandbox", x.rec.Sandbox, "err", err)
	return x.answer(wakeProblem(err))
}

var errPage = errors.New("a page tells to come back")

// forward takes the request to the app, once more if the sandbox turned out to be in another generation.
func (x *exchange) forward() {
	err := x.attempt()
	if errors.Is(err, forward.ErrStale) || errors.Is(err, streams.Paused) && x.repeatable() {
		// It paused or moved since the route was written. Nothing was sent, or it may be sent again.
		if rec, lookup := x.s.table.Lookup(x.in.Host); lookup == nil && rec.Generation > x.generation && rec.State == route.Running {
			x.rec, x.generation = rec, rec.Generation
		} else if !x.wake() {
			return
		}
		err = x.attempt()
	}
	x.failed(err)
}

// repeatable reports whether the app may see the request twice.
func (x *exchange) repeatable() bool {
	switch x.r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return x.r.ContentLength == 0 && x.kind != front.WebSocket
	}
	return false
}

// attempt registers the stream and forwards.
func (x *exchange) attempt() error {
	ctx, cancel := context.WithCancelCause(x.r.Context())
	defer cancel(nil)
	stream, err := x.s.streams.Open(x.rec, x.generation, func(why streams.Reason) { cancel(why) })
	if err != nil {
		return err
	}
	defer stream.Close()
	if err := x.recheck(); err != nil {
		return err
	}
	hop := forward.Hop{
		Record: x.rec, Generation: x.generation, Client: x.in.Client, Authority: x.in.Authority, Secure: x.in.Secure,
		Stream: stream, Waited: x.waited, Upgrade: front.Takeover, Woken: x.s.flights.WokenAt(x.rec.Sandbox, x.generation),
	}
	if x.body != nil {
		hop.Body = x.body
	}
	return x.s.forward.Forward(ctx, x.w, x.r, hop)
}

// recheck looks at the route again, now that the stream is known: a change before that ended nothing.
func (x *exchange) recheck() error {
	now, err := x.s.table.Lookup(x.in.Host)
	switch {
	case err != nil:
		return err
	case now == x.rec:
		return nil
	case now.AuthEpoch != x.rec.AuthEpoch, now.Public != x.rec.Public, now.TokenHash != x.rec.TokenHash:
		return streams.Revoked
	case now.ExpiresAt.Before(x.rec.ExpiresAt): // the stream was opened to the old end
		return streams.Revoked
	case now.Generation > x.generation, now.Generation == x.generation && now.State != route.Running:
		return forward.ErrStale
	}
	return nil
}

// failed answers what Forward could not, or cuts the connection where an answer has begun.
func (x *exchange) failed(err error) {
	if err == nil {
		return
	}
	// That the request's context has ended by now says nothing: giving up what is left of a body ends it too.
	if errors.Is(err, forward.ErrAborted) || errors.Is(err, context.Canceled) {
		panic(http.ErrAbortHandler)
	}
	p := forwardProblem(err)
	x.s.cfg.Log.Info("request not forwarded", "tunnel", x.rec.Tunnel, "sandbox", x.rec.Sandbox, "reason", p.Code, "err", err)
	x.answer(p)
}
