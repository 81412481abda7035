package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies"
	"portreeve.dev/sso"
)

const (
	allowPrefix = "allow-" // ids of rules that POST /allow made
	allowMost   = 30 * 24 * time.Hour
	replayMost  = 5000 // decisions looked at
	replayShown = 20
)

type allowIn struct {
	Body struct {
		Host     string `json:"host" maxLength:"300" doc:"A name, or *.name for all below it."`
		For      string `json:"for,omitempty" default:"1h" maxLength:"20" doc:"How long: 30m, 1h, 24h; at most 720h."`
		Port     int    `json:"port,omitempty" minimum:"1" maximum:"65535" doc:"Default: the protocol's."`
		Protocol string `json:"protocol,omitempty" doc:"https, http, tls, tcp, ssh or postgres; default https."`
		Sandbox  string `json:"sandbox,omitempty" maxLength:"64" doc:"Allow it in this sandbox's policy."`
		Policy   string `json:"policy,omitempty" maxLength:"63" doc:"Allow it in this policy. Default: the org's default."`
		DryRun   bool   `json:"dry_run,omitempty" doc:"Only say what it would have allowed."`
		Hours    int    `json:"hours,omitempty" default:"24" minimum:"1" maximum:"168" doc:"How far to look back."`
		Wait     bool   `json:"wait,omitempty" doc:"Answer after every connected edge has acknowledged."`
	}
}

type allowOut struct {
	Body struct {
		Applied   bool            `json:"applied"`
		Already   bool            `json:"already_allowed" doc:"Nothing had to change."`
		ExpiresAt time.Time       `json:"expires_at"`
		Rule      json.RawMessage `json:"rule" doc:"The rule that was or would be added."`
		Layers    []string        `json:"layers" nullable:"false" doc:"Where: ceiling, policy:NAME."`
		Revision  int64           `json:"revision,omitempty"`
		Would     wouldAllow      `json:"would_have_allowed"`
	}
}

type wouldAllow struct {
	Looked    int                  `json:"looked_at" doc:"Recorded denials of the time that was looked at."`
	Count     int                  `json:"count"`
	Sandboxes []string             `json:"sandboxes" nullable:"false"`
	Decisions []decisions.Decision `json:"decisions" nullable:"false" doc:"The newest of them."`
}

func (s *Server) allowRoutes() {
	route(s, sso.ScopeAdmin, huma.Operation{OperationID: "allow-host", Method: http.MethodPost, Path: "/allow", Summary: "Allow a host for a while",
		Description: "Adds a rule with an end to each layer that lacks one, and says which recorded denials it would have allowed.", Tags: []string{"policies"}}, s.allow)
}

func (s *Server) allow(ctx context.Context, c *caller, in *allowIn) (*allowOut, error) {
	for range 5 { // somebody else may change a layer in between
		out, err := s.allowOnce(ctx, c, in)
		if !errors.Is(err, store.ErrVersion) {
			return out, err
		}
	}
	return nil, store.ErrVersion
}

func (s *Server) allowOnce(ctx context.Context, c *caller, in *allowIn) (*allowOut, error) {
	d, err := time.ParseDuration(in.Body.For)
	if err != nil || d < time.Minute || d > allowMost {
		return nil, invalid("body.for", "must be a duration from 1m to 720h")
	}
	now := s.Now().UTC()
	end := now.Add(d).Truncate(time.Second)
	rule, probe, err := s.allowRule(in, end)
	if err != nil {
		return nil, err
	}
	current, err := s.layersOf(ctx, c, in.Body.Sandbox, in.Body.Policy)
	if err != nil {
		return nil, err
	}
	drafts, err := draft(current, rule, probe, now)
	if err != nil {
		return nil, err
	}
	if err := s.contradicted(ctx, c.org(), current, drafts, now); err != nil {
		return nil, err
	}
	out := &allowOut{}
	out.Body.ExpiresAt, out.Body.Rule, out.Body.Layers, out.Body.Already = end, rule, []string{}, len(drafts) == 0
	for _, p := range drafts {
		out.Body.Layers = append(out.Body.Layers, layerName(p.Name))
	}
	if out.Body.Would, err = s.replay(ctx, c, in, drafts, now); err != nil {
		return nil, err
	}
	if in.Body.DryRun || len(drafts) == 0 {
		return out, nil
	}
	out.Body.Revision, err = s.Store.Change(ctx, c.By, func(tx *store.Tx) error {
		for _, p := range drafts {
			if err := s.putAllowed(ctx, tx, c, in.Body.Sandbox, p); err != nil {
				return err
			}
		}
		for _, p := range drafts { // not before all of them are there
			if p.Name == ownName { // it can't let anything through that the other layers open
				continue
			}
			if err := noneGranted(ctx, tx, p.Name, s.Now()); err != nil {
				return allowedUnopened(err)
			}
		}
		tx.Bump()
		return tx.Record(ctx, audit.EgressAllow, strings.Join(out.Body.Layers, ","), map[string]string{"host": probe.Host, "until": end.Format(time.RFC3339)})
	})
	if err != nil {
		return nil, err
	}
	out.Body.Applied = true
	wait := ""
	if in.Body.Wait {
		wait = "applied"
	}
	return out, s.published(ctx, out.Body.Revision, wait)
}

// contradicted refuses a rule against which a test of some layer speaks that holds now.
func (s *Server) contradicted(ctx context.Context, org string, current layers, drafts []store.Policy, now time.Time) error {
	changed := current
	for i := range drafts {
		switch {
		case drafts[i].Name == store.Ceiling:
			changed.ceiling = drafts[i]
		case drafts[i].Name != ownName:
			changed.named = &drafts[i]
		}
	}
	floor, err := s.FloorNow(ctx)
	if err != nil {
		return err
	}
	for _, p := range drafts {
		document, err := policies.Parse(p.Document)
		if err != nil {
			return err
		}
		if len(document.Tests) == 0 || p.Name == ownName {
			continue
		}
		before, err := current.through(p.Name).compile()
		if err != nil {
			return err
		}
		after, err := changed.through(p.Name).compile()
		if err != nil {
			return err
		}
		held := floor.RunTests(org, before, document.Tests, now)
		for i, r := range floor.RunTests(org, after, document.Tests, now) {
			if held[i].Passed && !r.Passed {
				return problem(http.StatusConflict, "tests_failed", fmt.Sprintf("a test of %s says otherwise: %q: %s; change the document", layerName(p.Name), r.Name, r.Message),
					FieldError{"body.host", "is expected to be denied by a test of the document"})
			}
		}
	}
	return nil
}

// putAllowed stores a layer with its new rule.
func (s *Server) putAllowed(ctx context.Context, tx *store.Tx, c *caller, sandbox string, p store.Policy) error {
	if p.Name != ownName {
		_, err := tx.PutPolicyFrom(ctx, p.Name, p.Document, p.Origin, p.Version)
		return tooManyPolicies(err)
	}
	if _, err := s.mayChange(ctx, tx, c, sandbox); err != nil {
		return err
	}
	_, err := tx.SetOwnList(ctx, sandbox, p.Document, p.Version)
	return tooMuchOwn(err)
}

// allowedUnopened says of a refusal about a rule, which the client did not write, what it means for the host.
func allowedUnopened(err error) error {
	p, ok := errors.AsType[*Problem](err)
	if !ok {
		return err
	}
	p.Errors = []FieldError{{"body.host", "has a grant, and would be let through unopened; allow it by a rule with tls: inspect in a policy"}}
	return p
}

// allowRule writes the rule, and the request by which each layer is asked whether it needs it.
func (s *Server) allowRule(in *allowIn, end time.Time) (json.RawMessage, policies.Request, error) {
	protocol := policies.HTTPS
	if in.Body.Protocol != "" {
		p, ok := policies.ParseProtocol(in.Body.Protocol)
		if !ok {
			return nil, policies.Request{}, invalid("body.protocol", "must be https, http, tls, tcp, ssh or postgres")
		}
		protocol = p
	}
	port := uint16(in.Body.Port)
	if port == 0 {
		port = protocol.Port()
	}
	if port == 0 {
		return nil, policies.Request{}, invalid("body.port", "is missing; this protocol has none of its own")
	}
	probe := policies.Request{Stage: policies.StageConnect, Port: port, Protocol: protocol}
	plain, wildcard := strings.CutPrefix(in.Body.Host, "*.")
	if err := hostOf(plain, &probe); err != nil {
		return nil, probe, err
	}
	if probe.Host == "" {
		return nil, probe, invalid("body.host", "must be a name; addresses are allowed by a rule with cidrs in a policy")
	}
	if v := s.Floor.JudgeHost(probe.Host); !v.Allowed() {
		return nil, probe, problem(http.StatusConflict, string(v.Reason), v.Reason.Guidance(), FieldError{"body.host", "can't be opened by any rule"})
	}
	host := probe.Host
	if wildcard {
		host = "*." + host
		probe.Host = "any." + probe.Host
	}
	var random [4]byte
	rand.Read(random[:])
	rule, err := json.Marshal(map[string]any{
		"id": allowPrefix + hex.EncodeToString(random[:]), "action": "allow", "hosts": []string{host}, "ports": []uint16{port},
		"protocols": protocol, "expires_at": end.Format(time.RFC3339),
	})
	if err != nil {
		return nil, probe, err
	}
	// Refused here, and not as a fault of a document that the client never saw: a public suffix, for one.
	if _, err := policies.Parse(slices.Concat([]byte(`{"rules":[`), rule, []byte(`]}`))); err != nil {
		p := refuseDocument(err, rule)
		return nil, probe, invalid("body.host", p.Errors[0].Message)
	}
	return rule, probe, nil
}

// draft returns the layers that need the rule, with it, each at the version that it was read with; rules of earlier allows whose
// time is over go.
func draft(current layers, rule json.RawMessage, probe policies.Request, now time.Time) ([]store.Policy, error) {
	var drafts []store.Policy
	probe.Now = now
	for _, p := range current.all() {
		snapshot, err := compileAll([]store.Policy{p})
		if err != nil {
			return nil, err
		}
		v := snapshot.Evaluate(&probe)
		if v.Allowed() && !v.Observed {
			continue
		}
		if v.Reason == policies.ReasonRuleDenied {
			return nil, problem(http.StatusConflict, "rule_denied", fmt.Sprintf("rule %s of %s denies it, and a deny wins over every allow", v.Rule, layerName(p.Name)))
		}
		added := edit{add: rule, drop: func(id string, end time.Time) bool { return strings.HasPrefix(id, allowPrefix) && over(end, now) }}
		if p, _, err = added.of(p); err != nil {
			return nil, err
		}
		drafts = append(drafts, p)
	}
	return drafts, nil
}

// replay asks which recorded denials the drafts would have allowed: each by the layers of its own sandbox.
func (s *Server) replay(ctx context.Context, c *caller, in *allowIn, drafts []store.Policy, now time.Time) (wouldAllow, error) {
	w := wouldAllow{Sandboxes: []string{}, Decisions: []decisions.Decision{}}
	denied, err := s.Store.Decisions(ctx, c.org(), store.DecisionFilter{Sandbox: in.Body.Sandbox, Verdict: "deny", Since: now.Add(-time.Duration(in.Body.Hours) * time.Hour), Limit: replayMost})
	if err != nil {
		return w, err
	}
	floor, err := s.FloorNow(ctx)
	if err != nil {
		return w, err
	}
	seen := map[string]*pair{}
	boxes := map[string]bool{}
	for _, d := range denied {
		w.Looked++
		r, ok := s.recorded(d, now)
		if !ok {
			continue
		}
		p, err := s.pairOf(ctx, c, d.Sandbox, drafts, seen)
		if err != nil {
			return w, err
		}
		if p == nil || floor.Evaluate(c.org(), p.before, &r).Allowed() || !floor.Evaluate(c.org(), p.after, &r).Allowed() {
			continue
		}
		w.Count += max(int(d.Count), 1)
		boxes[d.Sandbox] = true
		if len(w.Decisions) < replayShown {
			w.Decisions = append(w.Decisions, d.Decision)
		}
	}
	w.Sandboxes = slices.Sorted(maps.Keys(boxes))
	return w, nil
}

// A pair is what a sandbox is judged by now and would be with the drafts.
type pair struct{ before, after *policies.Snapshot }

// pairOf compiles a sandbox's layers, once per sandbox; nil if its policy is gone.
func (s *Server) pairOf(ctx context.Context, c *caller, sandbox string, drafts []store.Policy, seen map[string]*pair) (*pair, error) {
	if p, ok := seen[sandbox]; ok {
		return p, nil
	}
	seen[sandbox] = nil
	l, err := s.layersOf(ctx, c, sandbox, "")
	if pr, ok := errors.AsType[*Problem](err); ok && pr.Status == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	before, err := l.compile()
	if err != nil {
		return nil, err
	}
	all := l.all()
	for i := range all {
		for _, d := range drafts {
			if all[i].Name == d.Name {
				all[i] = d
			}
		}
	}
	after, err := compileAll(all)
	if err != nil {
		return nil, err
	}
	seen[sandbox] = &pair{before, after}
	return seen[sandbox], nil
}
