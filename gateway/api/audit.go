package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

type auditIn struct {
	Sandbox string `query:"sandbox_id" maxLength:"64"`
	Action  string `query:"action" maxLength:"64"`
	Outcome string `query:"outcome" enum:"success,failure"`
	Start   string `query:"start_time" maxLength:"40" doc:"RFC 3339."`
	End     string `query:"end_time" maxLength:"40" doc:"RFC 3339."`
	Limit   int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Offset  int    `query:"offset" minimum:"0"`
}

type auditOut struct {
	Body struct {
		Events []auditView `json:"events" nullable:"false"`
		Total  int64       `json:"total"`
	}
}

type auditView struct {
	audit.Entry
	Sandbox string `json:"sandbox_id,omitempty"`
	User    string `json:"user_id,omitempty" doc:"Who did it."`
	Session string `json:"session_id,omitempty"`
}

func (s *Server) auditRoutes() {
	route(s, sso.ScopeAdmin, huma.Operation{OperationID: "list-audit", Method: http.MethodGet, Path: "/audit", Summary: "List audit entries, newest first",
		Description: "Each entry holds the hash of the one before it.", Tags: []string{"audit"}}, s.listAudit)
}

func (s *Server) listAudit(ctx context.Context, c *caller, in *auditIn) (*auditOut, error) {
	f := store.AuditFilter{Object: in.Sandbox, Action: in.Action, Outcome: in.Outcome, Limit: in.Limit, Offset: in.Offset}
	for _, t := range []struct {
		text, location string
		into           *time.Time
	}{{in.Start, "query.start_time", &f.Since}, {in.End, "query.end_time", &f.Until}} {
		if t.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, t.text)
		if err != nil {
			return nil, invalid(t.location, "must be an RFC 3339 time")
		}
		*t.into = at
	}
	if in.Sandbox != "" {
		if _, err := s.sandbox(ctx, c, in.Sandbox); err != nil {
			return nil, err
		}
	}
	entries, total, err := s.Store.Audit(ctx, c.org(), f)
	if err != nil {
		return nil, err
	}
	out := &auditOut{}
	out.Body.Events, out.Body.Total = []auditView{}, total
	for _, e := range entries {
		v := auditView{Entry: e, User: e.Actor}
		if strings.HasPrefix(e.Object, "sbx_") {
			v.Sandbox, v.Session = e.Object, e.Object
		}
		out.Body.Events = append(out.Body.Events, v)
	}
	return out, nil
}
