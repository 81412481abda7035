package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies"
	"portreeve.dev/sso"
)

type decisionListIn struct {
	Sandbox string `query:"sandbox_id" maxLength:"64"`
	Verdict string `query:"verdict" enum:"allow,deny"`
	Host    string `query:"host" maxLength:"300"`
	Since   string `query:"since" maxLength:"40" doc:"RFC 3339, or a duration before now like 15m."`
	Limit   int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor  string `query:"cursor" maxLength:"400"`
}

type decisionListOut struct {
	Body struct {
		Decisions  []decisions.Decision `json:"decisions" nullable:"false"`
		NextCursor *string              `json:"next_cursor" doc:"null: there are no more."`
		loss
	}
}

type decisionOut struct {
	Body struct {
		Decision decisions.Decision `json:"decision"`
		Rule     json.RawMessage    `json:"rule" doc:"The rule that decided, as it was in that version; null if none did."`
		Summary  string             `json:"summary" doc:"One sentence for people."`
		Guidance string             `json:"agent_guidance" doc:"One sentence for agents."`
		Allow    *allowHint         `json:"allow,omitempty" doc:"What to send to POST /allow, if that would help."`
	}
}

type allowHint struct {
	Host     string `json:"host"`
	Port     uint16 `json:"port,omitempty"`
	Protocol string `json:"protocol,omitempty"`
	Sandbox  string `json:"sandbox"`
}

func (s *Server) decisionRoutes() {
	tags := []string{"decisions"}
	list := huma.Operation{OperationID: "list-decisions", Method: http.MethodGet, Path: "/settings/egress/audit", Summary: "List decisions, newest first", Tags: tags}
	route(s, sso.ScopeRead, list, s.listDecisions)
	list.OperationID, list.Path = "list-decisions-alias", "/decisions"
	route(s, sso.ScopeRead, list, s.listDecisions)
	route(s, sso.ScopeRead, huma.Operation{OperationID: "explain-decision", Method: http.MethodGet, Path: "/decisions/{id}", Summary: "Explain a decision", Tags: tags}, s.explainDecision)
	s.plain(sso.ScopeRead, huma.Operation{OperationID: "follow-decisions", Method: http.MethodGet, Path: "/decisions/stream", Summary: "Follow decisions",
		Description: "Server-sent events, in the order of their arrival, from now on or after Last-Event-ID. Filters: sandbox_id, verdict, host.", Tags: tags}, nil, nil, s.followDecisions)
}

func (s *Server) listDecisions(ctx context.Context, c *caller, in *decisionListIn) (*decisionListOut, error) {
	f := store.DecisionFilter{Sandbox: in.Sandbox, Verdict: in.Verdict, Host: strings.ToLower(strings.TrimSuffix(in.Host, ".")), Limit: in.Limit + 1}
	if in.Since != "" {
		since, ok := parseSince(in.Since, s.Now())
		if !ok {
			return nil, invalid("query.since", "must be an RFC 3339 time or a duration like 15m")
		}
		f.Since = since
	}
	if f.Sandbox != "" {
		if _, err := s.sandbox(ctx, c, f.Sandbox); err != nil {
			return nil, err
		}
	}
	question := strings.Join([]string{"decisions", f.Sandbox, f.Verdict, f.Host, in.Since}, "\x00")
	if in.Cursor != "" {
		var err error
		if f.After, err = s.openCursor(c.org(), question, in.Cursor); err != nil {
			return nil, err
		}
	}
	if in.Cursor == "" {
		s.Settle(ctx)
	}
	all, err := s.Store.Decisions(ctx, c.org(), f)
	if err != nil {
		return nil, err
	}
	out := &decisionListOut{}
	out.Body.Decisions = []decisions.Decision{}
	if len(all) > in.Limit {
		all = all[:in.Limit]
		next := s.cursor(c.org(), question, all[len(all)-1].Place())
		out.Body.NextCursor = &next
	}
	if out.Body.loss, _, err = s.lossOf(ctx, c.org()); err != nil {
		return nil, err
	}
	for _, d := range all {
		out.Body.Decisions = append(out.Body.Decisions, d.Decision)
	}
	return out, nil
}

// parseSince reads a time, or how long ago it was.
func parseSince(s string, now time.Time) (time.Time, bool) {
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), true
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	return t, err == nil
}

type decisionIDIn struct {
	ID string `path:"id"`
}

func (s *Server) explainDecision(ctx context.Context, c *caller, in *decisionIDIn) (*decisionOut, error) {
	d, err := s.Store.Decision(ctx, c.org(), in.ID)
	if errors.Is(err, store.ErrNotFound) { // whoever was just refused knows the id before it is here
		s.Settle(ctx)
		d, err = s.Store.Decision(ctx, c.org(), in.ID)
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound("decision")
	}
	if err != nil {
		return nil, err
	}
	out := &decisionOut{}
	out.Body.Decision = d.Decision
	if out.Body.Rule, err = s.ruleOf(ctx, c, d); err != nil {
		return nil, err
	}
	out.Body.Guidance = guidance(d.Decision)
	out.Body.Summary = summary(d.Decision)
	if d.Verdict == policies.Deny.String() && d.Reason == string(policies.ReasonNoRule) && d.Host != "" {
		out.Body.Allow = &allowHint{Host: d.Host, Port: d.Port, Protocol: d.Protocol, Sandbox: d.Sandbox}
	}
	return out, nil
}

// ruleOf finds the text of the rule that decided, in the version in which it did.
func (s *Server) ruleOf(ctx context.Context, c *caller, d store.Decision) (json.RawMessage, error) {
	none := json.RawMessage("null")
	name, isPolicy := strings.CutPrefix(d.RuleLayer, "policy:")
	if !isPolicy && d.RuleLayer != "ceiling" && d.RuleLayer != "own" || d.Rule == "" {
		return none, nil
	}
	if !isPolicy {
		name = store.Ceiling
	}
	p, err := s.documentOf(ctx, c, d, name)
	if errors.Is(err, store.ErrNotFound) {
		return none, nil
	}
	if err != nil {
		return nil, err
	}
	var document struct{ Rules []json.RawMessage }
	if err := json.Unmarshal(p.Document, &document); err != nil {
		return nil, err
	}
	for _, raw := range document.Rules {
		var rule struct{ ID string }
		if json.Unmarshal(raw, &rule) == nil && rule.ID == d.Rule {
			return raw, nil
		}
	}
	return none, nil
}

// documentOf is the document that decided. Of a sandbox's own list only the one that it has now is kept.
func (s *Server) documentOf(ctx context.Context, c *caller, d store.Decision, name string) (store.Policy, error) {
	if d.RuleLayer != "own" {
		return s.Store.PolicyVersion(ctx, c.org(), name, d.Version)
	}
	b, err := s.Store.Sandbox(ctx, c.org(), d.Sandbox)
	if err == nil && (b.Own == nil || b.OwnVersion != d.Version) {
		err = store.ErrNotFound
	}
	return ownAsPolicy(b), err
}

func summary(d decisions.Decision) string {
	var b strings.Builder
	verb := "was allowed to reach "
	if d.Verdict != policies.Allow.String() {
		verb = "was refused "
	}
	b.WriteString(d.Sandbox + " " + verb)
	switch {
	case d.Host != "":
		b.WriteString(d.Host)
	case d.Addr != "":
		b.WriteString(d.Addr)
	default:
		b.WriteString("an unnamed destination")
	}
	switch {
	case d.Rule != "":
		b.WriteString(" by rule " + d.Rule + " of " + d.RuleLayer)
	case d.RuleLayer != "":
		b.WriteString(" by " + d.RuleLayer)
	}
	b.WriteString(": " + d.Reason)
	if d.Error != "" {
		b.WriteString("; it ended with " + d.Error)
	}
	return b.String()
}

// guidance is what the sandbox was told, or would have been: of what was allowed and failed, about that.
func guidance(d decisions.Decision) string {
	if d.Guidance != "" {
		return d.Guidance
	}
	switch failed := policies.Reason(d.Error); {
	case d.Error == "":
		return policies.Reason(d.Reason).Guidance()
	case failed.Valid():
		return failed.Guidance()
	}
	return "The request was allowed, and failed afterwards: " + d.Error + "."
}
