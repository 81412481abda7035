package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/webhooks"
	"portreeve.dev/policies"
)

type approveIn struct {
	ID   string `path:"id"`
	Body struct {
		For    string `json:"for,omitempty" maxLength:"20" doc:"How long, from now: 10m, 1h; at most 24h. Default: as asked."`
		Width  string `json:"width,omitempty" enum:"host,url" doc:"Default: as asked. url needs paths, which the request has or not."`
		Reason string `json:"reason,omitempty" maxLength:"500" doc:"The sandbox is told it."`
		DryRun bool   `json:"dry_run,omitempty" doc:"Only say what it would do."`
		Hours  int    `json:"hours,omitempty" default:"24" minimum:"1" maximum:"168" doc:"How far to look back."`
		Wait   bool   `json:"wait,omitempty" doc:"Answer after every connected edge has acknowledged."`
	}
}

type approveOut struct {
	Body struct {
		Request  requestView     `json:"request"`
		Applied  bool            `json:"applied"`
		Already  bool            `json:"already_allowed" doc:"Nothing had to change."`
		Rule     json.RawMessage `json:"rule" doc:"The rule that was or would be added."`
		Layers   []string        `json:"layers" nullable:"false" doc:"Where: ceiling, policy:NAME."`
		Revision int64           `json:"revision,omitempty"`
		Would    wouldAllow      `json:"would_have_allowed"`
	}
}

type denyIn struct {
	ID   string `path:"id"`
	Body struct {
		Reason string `json:"reason,omitempty" maxLength:"500" doc:"The sandbox is told it."`
	}
}

func (s *Server) approveRequest(ctx context.Context, c *caller, in *approveIn) (*approveOut, error) {
	for range 5 { // somebody else may change a layer in between
		out, err := s.approveOnce(ctx, c, in)
		if !errors.Is(err, store.ErrVersion) {
			return out, err
		}
	}
	return nil, store.ErrVersion
}

func (s *Server) approveOnce(ctx context.Context, c *caller, in *approveIn) (*approveOut, error) {
	r, err := s.openRequest(ctx, c.org(), in.ID)
	if err != nil {
		return nil, err
	}
	now := s.Now().UTC()
	if r, err = s.asApproved(r, in, now); err != nil {
		return nil, err
	}
	plan, err := s.plan(ctx, c, r, now)
	if err != nil {
		return nil, err
	}
	out := &approveOut{}
	out.Body.Rule, out.Body.Layers, out.Body.Already = plan.rule, plan.layers(), len(plan.drafts) == 0
	looking := &allowIn{}
	looking.Body.Hours = in.Body.Hours
	if out.Body.Would, err = s.replay(ctx, c, looking, plan.drafts, now); err != nil {
		return nil, err
	}
	if in.Body.DryRun {
		out.Body.Request = viewRequest(r)
		out.Body.Request.State = string(store.AccessOpen)
		return out, nil
	}
	if len(plan.drafts) > 0 {
		r.Rule, r.Layers = plan.id, plan.layers()
	}
	out.Body.Revision, err = s.Store.Change(ctx, c.By, func(tx *store.Tx) (err error) {
		if r, err = tx.DecideAccessRequest(ctx, r); err != nil {
			return err
		}
		if err := s.putPlan(ctx, tx, c, r.Sandbox, plan); err != nil {
			return err
		}
		if err := tx.Enqueue(ctx, webhooks.RequestDecided, viewRequest(r)); err != nil {
			return err
		}
		return tx.Record(ctx, audit.AccessApprove, r.ID, map[string]string{"sandbox": r.Sandbox, "host": r.Host, "width": r.Width, "rule": r.Rule,
			"layers": strings.Join(r.Layers, ","), "until": r.ExpiresAt.Format(time.RFC3339)})
	})
	if err != nil {
		return nil, decided(err)
	}
	out.Body.Request, out.Body.Applied = viewRequest(r), true
	if out.Body.Revision == 0 {
		return out, nil
	}
	wait := ""
	if in.Body.Wait {
		wait = "applied"
	}
	return out, s.published(ctx, out.Body.Revision, wait)
}

// openRequest returns a request that can be decided.
func (s *Server) openRequest(ctx context.Context, org, id string) (store.AccessRequest, error) {
	r, err := s.accessRequest(ctx, org, id)
	if err == nil && r.State != store.AccessOpen {
		err = notOpen(r)
	}
	return r, err
}

func notOpen(r store.AccessRequest) error {
	return problem(http.StatusConflict, "not_open", "the request is "+string(r.State)+" already")
}

func decided(err error) error {
	switch {
	case errors.Is(err, store.ErrDecided):
		return problem(http.StatusConflict, "not_open", "somebody else decided it, or its time is over")
	case errors.Is(err, store.ErrSandboxDecides):
		return problem(http.StatusForbidden, "own_request", "whoever asks does not decide")
	case errors.Is(err, store.ErrNotFound):
		return notFound("request")
	}
	return err
}

// asApproved is the request as it is when it is approved this way.
func (s *Server) asApproved(r store.AccessRequest, in *approveIn, now time.Time) (store.AccessRequest, error) {
	if in.Body.For != "" {
		d, err := time.ParseDuration(in.Body.For)
		if err != nil || d < time.Minute || d > accessMost {
			return r, invalid("body.for", "must be a duration from 1m to 24h")
		}
		r.Lasts = d
	}
	switch {
	case in.Body.Width == "url" && len(r.Paths) == 0:
		return r, invalid("body.width", "the request names no paths; it can be given for the host, or denied")
	case in.Body.Width == "host":
		r.Width, r.Methods, r.Paths = "host", nil, nil
	}
	r.State, r.Reason, r.ExpiresAt = store.AccessApproved, in.Body.Reason, now.Add(r.Lasts).Truncate(time.Second)
	return r, nil
}

// A plan is what an approval changes.
type plan struct {
	id     string // of the rule
	rule   json.RawMessage
	drafts []store.Policy
}

func (p *plan) layers() []string {
	names := []string{}
	for _, d := range p.drafts {
		names = append(names, layerName(d.Name))
	}
	return names
}

// plan finds out which of the sandbox's layers need a rule, under what holds now: not under what held when it was asked.
func (s *Server) plan(ctx context.Context, c *caller, r store.AccessRequest, now time.Time) (*plan, error) {
	if v := s.Floor.JudgeHost(r.Host); !v.Allowed() {
		return nil, problem(http.StatusConflict, string(v.Reason), v.Reason.Guidance())
	}
	box, err := s.Store.Sandbox(ctx, c.org(), r.Sandbox)
	if err != nil {
		return nil, err
	}
	if box.Status.Ended() {
		return nil, problem(http.StatusConflict, "not_open", "the sandbox has ended")
	}
	current, err := s.layersOf(ctx, c, r.Sandbox, "")
	if err != nil {
		return nil, err
	}
	inspect, err := s.mustOpen(ctx, c.org(), r)
	if err != nil {
		return nil, err
	}
	p := &plan{}
	if p.id, p.rule, err = accessRule(r, inspect); err != nil {
		return nil, err
	}
	probes, err := accessProbes(r, now)
	if err != nil {
		return nil, err
	}
	for _, probe := range probes {
		drafts, err := draft(current, p.rule, probe, now)
		if err != nil {
			return nil, err
		}
		for _, d := range drafts {
			if !slices.ContainsFunc(p.drafts, func(have store.Policy) bool { return have.Name == d.Name }) {
				p.drafts = append(p.drafts, d)
			}
		}
	}
	return p, s.contradicted(ctx, c.org(), current, p.drafts, now)
}

// putPlan stores the layers with their new rule.
func (s *Server) putPlan(ctx context.Context, tx *store.Tx, c *caller, sandbox string, p *plan) error {
	for _, d := range p.drafts {
		if err := s.putAllowed(ctx, tx, c, sandbox, d); err != nil {
			return err
		}
	}
	for _, d := range p.drafts { // not before all of them are there
		if d.Name == ownName { // it can't let anything through that the other layers open
			continue
		}
		if err := noneGranted(ctx, tx, d.Name, s.Now()); err != nil {
			return err
		}
	}
	if len(p.drafts) > 0 {
		tx.Bump()
	}
	return nil
}

// mustOpen reports whether TLS to the host has to be opened: for methods and paths, and where a secret is granted.
func (s *Server) mustOpen(ctx context.Context, org string, r store.AccessRequest) (bool, error) {
	if r.Protocol != policies.HTTPS.String() {
		return false, nil
	}
	if r.Width == "url" {
		return true, nil
	}
	all, err := s.Store.Secrets(ctx, org)
	if err != nil {
		return false, err
	}
	for _, secret := range all {
		for _, g := range secret.Grants {
			if g.Host == r.Host {
				return true, nil
			}
		}
	}
	return false, nil
}

// accessRule writes the rule that gives what is asked for, and nothing else.
func accessRule(r store.AccessRequest, inspect bool) (id string, rule json.RawMessage, err error) {
	var random [4]byte
	rand.Read(random[:])
	id = allowPrefix + hex.EncodeToString(random[:])
	fields := map[string]any{"id": id, "action": "allow", "hosts": []string{r.Host}, "ports": []uint16{r.Port}, "protocols": []string{r.Protocol}}
	if !r.ExpiresAt.IsZero() {
		fields["expires_at"] = r.ExpiresAt.Format(time.RFC3339)
	}
	if inspect {
		fields["tls"] = "inspect"
	}
	if r.Width == "url" {
		fields["methods"], fields["paths"] = r.Methods, r.Paths
	}
	if rule, err = json.Marshal(fields); err != nil {
		return "", nil, err
	}
	_, err = policies.Parse(slices.Concat([]byte(`{"rules":[`), rule, []byte(`]}`)))
	return id, rule, err
}

// accessProbes are the questions that the request comes to.
func accessProbes(r store.AccessRequest, now time.Time) ([]policies.Request, error) {
	protocol, ok := policies.ParseProtocol(r.Protocol)
	if !ok {
		return nil, fmt.Errorf("request %q has the protocol %q", r.ID, r.Protocol)
	}
	probe := policies.Request{Stage: policies.StageConnect, Host: r.Host, Port: r.Port, Protocol: protocol, Now: now}
	if r.Width != "url" {
		if protocol != policies.HTTPS && protocol != policies.HTTP {
			return []policies.Request{probe}, nil
		}
		// Every method and path: one that no rule names stands for them.
		probe.Stage, probe.Method, probe.Path = policies.StageRequest, "PORTREEVE", "/portreeve-any/portreeve-any"
		return []policies.Request{probe}, nil
	}
	var all []policies.Request
	for _, m := range r.Methods {
		for _, p := range r.Paths {
			probe.Stage, probe.Method = policies.StageRequest, m
			if base, deep := strings.CutSuffix(p, "/**"); deep {
				p = base + "/portreeve-any/portreeve-any"
			}
			probe.Path = p
			all = append(all, probe)
		}
	}
	return all, nil
}

func (s *Server) denyRequest(ctx context.Context, c *caller, in *denyIn) (*requestOut, error) {
	r, err := s.openRequest(ctx, c.org(), in.ID)
	if err != nil {
		return nil, err
	}
	r.State, r.Reason = store.AccessDenied, in.Body.Reason
	_, err = s.Store.Change(ctx, c.By, func(tx *store.Tx) (err error) {
		if r, err = tx.DecideAccessRequest(ctx, r); err != nil {
			return err
		}
		if err := tx.Enqueue(ctx, webhooks.RequestDecided, viewRequest(r)); err != nil {
			return err
		}
		return tx.Record(ctx, audit.AccessDeny, r.ID, map[string]string{"sandbox": r.Sandbox, "host": r.Host})
	})
	if err != nil {
		return nil, decided(err)
	}
	return &requestOut{viewRequest(r)}, nil
}
