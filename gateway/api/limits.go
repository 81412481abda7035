package api

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/egress/flows"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/limits"
	"portreeve.dev/sso"
)

type limitsView struct {
	Limits   limits.Limits `json:"limits" doc:"What holds: of the org's own and the platform's, the lower one. A field that is not there has no limit."`
	Own      limits.Limits `json:"own" doc:"What the org set for itself."`
	Platform limits.Limits `json:"platform" doc:"What the platform sets for each org."`
	Version  int64         `json:"version"`
}

type limitsOut struct {
	ETag string `header:"ETag"`
	Body limitsView
}

type limitsIn struct {
	IfMatch string `header:"If-Match"`
	Wait    string `query:"wait" enum:"applied" doc:"Answer after every connected edge has acknowledged."`
	Body    struct {
		limits.Limits
		Version int64 `json:"version,omitempty" minimum:"0" doc:"Counts as If-Match."`
	}
}

type usageOut struct {
	Body usageView
}

type usageView struct {
	Month    string         `json:"month" doc:"The calendar month in UTC."`
	BytesIn  int64          `json:"bytes_in" doc:"To sandboxes."`
	BytesOut int64          `json:"bytes_out" doc:"From sandboxes."`
	Used     int64          `json:"used_bytes" doc:"Both ways together: what counts against the quota."`
	Quota    *int64         `json:"quota_bytes" doc:"null: none."`
	Left     *int64         `json:"left_bytes" doc:"null: no quota."`
	State    limits.State   `json:"state" enum:"ok,warning,exhausted" doc:"warning from 80 % on; exhausted: connections are refused with reason quota."`
	ResetsAt time.Time      `json:"resets_at"`
	Months   []monthlyUsage `json:"months" nullable:"false" doc:"The newest first, this one included; at most twelve."`
}

type monthlyUsage struct {
	Month    string `json:"month"`
	BytesIn  int64  `json:"bytes_in"`
	BytesOut int64  `json:"bytes_out"`
}

func (s *Server) limitRoutes() {
	tags := []string{"limits"}
	route(s, sso.ScopeRead, huma.Operation{OperationID: "get-limits", Method: http.MethodGet, Path: "/settings/limits", Summary: "Get the org's egress limits", Tags: tags}, s.getLimits)
	route(s, sso.ScopeAdmin, huma.Operation{OperationID: "put-limits", Method: http.MethodPut, Path: "/settings/limits", Summary: "Set lower egress limits for the org",
		Description: "Replaces the org's own limits. One that is left out or 0 is the platform's; one above the platform's is refused.", Tags: tags}, s.putLimits)
	route(s, sso.ScopeRead, huma.Operation{OperationID: "get-egress-usage", Method: http.MethodGet, Path: "/usage/egress", Summary: "Get what the org moved in this month",
		Description: "Counted at the edge as it moves, also for connections that are still open.", Tags: tags}, s.getUsage)
}

func (s *Server) answerLimits(own store.OrgLimits) *limitsOut {
	return &limitsOut{ETag: etag(own.Version), Body: limitsView{Limits: s.Egress.Lowered(own.Limits), Own: own.Limits, Platform: s.Egress, Version: own.Version}}
}

func (s *Server) getLimits(ctx context.Context, c *caller, _ *struct{}) (*limitsOut, error) {
	own, err := s.Store.Limits(ctx, c.org())
	if err != nil {
		return nil, err
	}
	return s.answerLimits(own), nil
}

func (s *Server) putLimits(ctx context.Context, c *caller, in *limitsIn) (*limitsOut, error) {
	expected, err := expectedVersion(in.IfMatch, in.Body.Version)
	if err != nil {
		return nil, err
	}
	if above := s.Egress.Above(in.Body.Limits); len(above) > 0 {
		return nil, invalid("body."+above[0], "is above what the platform allows")
	}
	var own store.OrgLimits
	revision, err := s.Store.Change(ctx, c.By, func(tx *store.Tx) (err error) {
		if own, err = tx.PutLimits(ctx, in.Body.Limits, expected); err != nil {
			return err
		}
		tx.Bump()
		return tx.Record(ctx, audit.LimitsUpdate, "limits", map[string]string{"version": strconv.FormatInt(own.Version, 10)})
	})
	if err != nil {
		return nil, err
	}
	if err := s.published(ctx, revision, in.Wait); err != nil {
		return nil, err
	}
	return s.answerLimits(own), nil
}

func (s *Server) getUsage(ctx context.Context, c *caller, _ *struct{}) (*usageOut, error) {
	own, err := s.Store.Limits(ctx, c.org())
	if err != nil {
		return nil, err
	}
	months, err := s.Store.UsageByMonth(ctx, c.org(), 12)
	if err != nil {
		return nil, err
	}
	now := s.Now().UTC()
	out := &usageOut{usageView{Month: flows.MonthOf(now), ResetsAt: time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC), Months: []monthlyUsage{}}}
	u := &out.Body
	for _, m := range months {
		u.Months = append(u.Months, monthlyUsage{m.Month, m.In, m.Out})
		if m.Month == u.Month {
			u.BytesIn, u.BytesOut, u.Used = m.In, m.Out, m.In+m.Out
		}
	}
	quota := s.Egress.Lowered(own.Limits).MonthlyQuota
	u.State = limits.StateOf(quota, u.Used)
	if quota > 0 {
		left := max(0, quota-u.Used)
		u.Quota, u.Left = &quota, &left
	}
	return out, nil
}
