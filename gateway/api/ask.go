package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"portreeve.dev/egress"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/webhooks"
	"portreeve.dev/policies"
	"portreeve.dev/policies/pathmatch"
	"portreeve.dev/sso"
)

// What a sandbox may ask for.
const (
	accessDefault = time.Hour
	accessMost    = 24 * time.Hour
	accessOpen    = 24 * time.Hour // how long an open request waits to be decided
	accessLists   = 16             // methods, and paths
	whyMost       = 500
)

var accessLimits = store.AccessLimits{PerSandbox: 10, PerOrg: 200, Again: 10 * time.Minute}

// Ask enters what a sandbox asks for. The edge that brought it is believed in nothing: whose the sandbox is and what may be
// asked for is found here, under what holds now. What is refused is a *Problem.
func (s *Server) Ask(ctx context.Context, b egress.Binding, a egress.Ask) (egress.Access, error) {
	box, err := s.asking(ctx, b)
	if err != nil {
		return egress.Access{}, err
	}
	r, err := normalAsk(a)
	if err != nil {
		return egress.Access{}, err
	}
	r.Sandbox, r.ExpiresAt = box.ID, s.Now().Add(accessOpen)
	by := store.By{Principal: sso.Sandbox(box.ID, box.Org)}
	if err := s.mayBeAsked(ctx, &caller{By: by}, r); err != nil {
		return egress.Access{}, err
	}
	_, err = s.Store.Change(ctx, by, func(tx *store.Tx) (err error) {
		if r, err = tx.CreateAccessRequest(ctx, r, accessLimits); err != nil {
			return err
		}
		if err := tx.Enqueue(ctx, webhooks.RequestCreated, viewRequest(r)); err != nil {
			return err
		}
		return tx.Record(ctx, audit.AccessRequest, r.ID, map[string]string{"host": r.Host, "width": r.Width})
	})
	switch {
	case errors.Is(err, store.ErrJoined):
	case errors.Is(err, store.ErrOrgLimit):
		return egress.Access{}, problem(http.StatusTooManyRequests, "too_many_open_requests", "the sandboxes here have asked for all that they may; wait until some of it is decided")
	case errors.Is(err, store.ErrLimit):
		return egress.Access{}, problem(http.StatusTooManyRequests, "too_many_open_requests", "this sandbox has ten open requests; wait until one of them is decided")
	case err != nil:
		return egress.Access{}, err
	}
	return s.tellAccess(r), nil
}

// asking is the sandbox that asks, if it is what the edge says that it is.
func (s *Server) asking(ctx context.Context, b egress.Binding) (store.Sandbox, error) {
	box, err := s.Store.Sandbox(ctx, b.Org, b.Sandbox)
	if errors.Is(err, store.ErrNotFound) {
		return box, problem(http.StatusConflict, "sandbox_not_running", "this sandbox is not known")
	}
	if err != nil {
		return box, err
	}
	if box.Status != store.Running && box.Status != store.Paused || box.Incarnation != b.Incarnation {
		return box, problem(http.StatusConflict, "sandbox_not_running", "this sandbox does not run any more")
	}
	return box, nil
}

func refuseAsk(field, message string) *Problem {
	return problem(http.StatusUnprocessableEntity, "invalid_request", field+" "+message)
}

// normalAsk brings what was asked into the one form in which equal ones are equal.
func normalAsk(a egress.Ask) (store.AccessRequest, error) {
	r := store.AccessRequest{Port: a.Port, Width: a.Width, Why: readable(a.Why), Lasts: accessDefault}
	var host policies.Request
	if strings.ContainsAny(a.Host, "*") || hostOf(a.Host, &host) != nil || host.Host == "" {
		return r, refuseAsk("host", "must be one name: no wildcard and no address")
	}
	r.Host = host.Host
	protocol := policies.HTTPS
	if a.Protocol != "" {
		var ok bool
		if protocol, ok = policies.ParseProtocol(a.Protocol); !ok {
			return r, refuseAsk("protocol", "must be https, http, tls, tcp, ssh or postgres")
		}
	}
	if r.Protocol = protocol.String(); r.Port == 0 {
		r.Port = protocol.Port()
	}
	if r.Port == 0 {
		return r, refuseAsk("port", "is missing; this protocol has none of its own")
	}
	if a.For != "" {
		d, err := time.ParseDuration(a.For)
		if err != nil || d < time.Minute || d > accessMost {
			return r, refuseAsk("for", "must be a duration from 1m to 24h")
		}
		r.Lasts = d.Truncate(time.Second)
	}
	if strings.TrimSpace(r.Why) == "" || len(a.Why) > whyMost {
		return r, refuseAsk("why", "must be a sentence of at most 500 bytes")
	}
	return r, widthOf(&r, a, protocol)
}

// widthOf settles methods and paths.
func widthOf(r *store.AccessRequest, a egress.Ask, protocol policies.Protocol) error {
	if r.Width == "" {
		r.Width = egress.WidthHost
		if len(a.Paths)+len(a.Methods) > 0 {
			r.Width = egress.WidthURL
		}
	}
	switch {
	case r.Width == egress.WidthHost:
		return nil
	case r.Width != egress.WidthURL:
		return refuseAsk("width", "must be host or url")
	case protocol != policies.HTTPS && protocol != policies.HTTP:
		return refuseAsk("width", "url is for https and http")
	case len(a.Methods) > accessLists || len(a.Paths) > accessLists:
		return refuseAsk("paths", "and methods are at most 16 each")
	}
	r.Methods, r.Paths = slices.Clone(a.Methods), nil
	if len(r.Methods) == 0 {
		r.Methods = []string{http.MethodGet}
	}
	if slices.ContainsFunc(r.Methods, func(m string) bool { return m != strings.ToUpper(m) }) {
		return refuseAsk("methods", "are written in capitals")
	}
	for _, p := range a.Paths {
		base, deep := strings.CutSuffix(p, "/**")
		if strings.Contains(base, "*") {
			return refuseAsk("paths", "are plain, but for /** at the end")
		}
		canonical, err := pathmatch.Canonical(base + "/")
		if base != "" && !deep {
			canonical, err = pathmatch.Canonical(base)
		}
		if err != nil {
			return refuseAsk("paths", "hold one that can be read in more than one way")
		}
		if deep {
			canonical = strings.TrimSuffix(canonical, "/") + "/**"
		}
		r.Paths = append(r.Paths, canonical)
	}
	if len(r.Paths) == 0 {
		r.Paths = []string{"/**"}
	}
	for _, list := range []*[]string{&r.Methods, &r.Paths} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	if _, _, err := accessRule(*r, protocol == policies.HTTPS); err != nil {
		return refuseAsk("methods", "and paths make no rule")
	}
	return nil
}

// readable keeps what a person can read: an approver's terminal takes no orders from a sandbox.
func readable(s string) string {
	if !utf8.ValidString(s) {
		return ""
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s))
}

// mayBeAsked refuses what is no plain lack of a rule: what the floor closes, what a rule denies, and what is allowed already.
func (s *Server) mayBeAsked(ctx context.Context, c *caller, r store.AccessRequest) error {
	floor, err := s.FloorNow(ctx)
	if err != nil {
		return err
	}
	l, err := s.layersOf(ctx, c, r.Sandbox, "")
	if err != nil {
		return err
	}
	snapshot, err := l.compile()
	if err != nil {
		return err
	}
	probes, err := accessProbes(r, s.Now())
	if err != nil {
		return err
	}
	lacking := false
	for _, probe := range probes {
		switch v := floor.Evaluate(c.org(), snapshot, &probe); {
		case v.Allowed():
		case !v.Requestable:
			return notRequestable(v)
		default:
			lacking = true
		}
	}
	if !lacking {
		return problem(http.StatusConflict, "already_allowed", "this is allowed already; look the name up again and retry")
	}
	return nil
}

func notRequestable(v policies.Verdict) error {
	return problem(http.StatusConflict, "not_requestable", v.Guidance())
}

// Access tells a sandbox how a request of its own stands. With wait it answers once that is decided, the time is over, or nobody
// is there who would decide.
func (s *Server) Access(ctx context.Context, b egress.Binding, id string, wait time.Duration) (egress.Access, error) {
	if _, err := s.asking(ctx, b); err != nil {
		return egress.Access{}, err
	}
	over := time.NewTimer(min(max(wait, 0), accessWait))
	defer over.Stop()
	for {
		changed := s.Store.AccessChanged() // before reading: what comes after it wakes us
		there, moved := s.approvers.there(b.Org)
		r, err := s.accessRequest(ctx, b.Org, id)
		if err == nil && r.Sandbox != b.Sandbox {
			err = notFound("request")
		}
		if err != nil || r.State != store.AccessOpen || !there || wait <= 0 {
			return s.tellAccess(r), err
		}
		select {
		case <-changed:
		case <-moved:
		case <-over.C:
			return s.tellAccess(r), nil
		case <-ctx.Done():
			return egress.Access{}, ctx.Err()
		}
	}
}

// accessWait is the longest that an answer waits.
const accessWait = 30 * time.Second

// tellAccess is what the sandbox may know: not who decided, nor where the rule is.
func (s *Server) tellAccess(r store.AccessRequest) egress.Access {
	there, _ := s.approvers.there(r.Org)
	return egress.Access{ID: r.ID, State: string(r.State), Host: r.Host, Port: r.Port, Protocol: r.Protocol, Methods: r.Methods, Paths: r.Paths, Width: r.Width,
		For: shortDuration(r.Lasts), CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt, Reason: r.Reason, Approver: there}
}

// shortDuration writes 1h instead of 1h0m0s.
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
