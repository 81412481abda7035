package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

const (
	modeStrict     = "strict"
	modeBestEffort = "best_effort"
)

type recordSettings struct {
	Mode     string `json:"mode" enum:"strict,best_effort" doc:"strict: what can't be recorded is refused. best_effort: it goes on, and the loss is counted; never a request with a secret."`
	Paths    string `json:"paths" enum:"full,prefix,none" doc:"What is recorded of paths; prefix: two segments. A query never is."`
	KeepDays int64  `json:"keep_days" minimum:"1" maximum:"365" doc:"Decisions are deleted after so many days, or when they take too much room."`
	Version  int64  `json:"version,omitempty" minimum:"0" doc:"Counts as If-Match."`
}

type recordSettingsOut struct {
	ETag string `header:"ETag"`
	Body recordSettings
}

type recordSettingsIn struct {
	IfMatch string `header:"If-Match"`
	Wait    string `query:"wait" enum:"applied" doc:"Answer after every connected edge has acknowledged."`
	Body    recordSettings
}

func (s *Server) recordRoutes() {
	tags := []string{"decisions"}
	route(s, sso.ScopeRead, huma.Operation{OperationID: "get-decision-settings", Method: http.MethodGet, Path: "/settings/decisions", Summary: "Get how decisions are recorded", Tags: tags}, s.getRecordSettings)
	route(s, sso.ScopeAdmin, huma.Operation{OperationID: "put-decision-settings", Method: http.MethodPut, Path: "/settings/decisions", Summary: "Set how decisions are recorded", Tags: tags}, s.putRecordSettings)
	route(s, sso.ScopeRead, huma.Operation{OperationID: "get-decision-health", Method: http.MethodGet, Path: "/decisions/health", Summary: "See whether decisions were lost",
		Description: "By node: what was written, what arrived, what is missing. A loss is counted by what is missing among the numbers that arrived, not by whoever lost it.", Tags: tags}, s.decisionHealth)
}

func answerRecordSettings(v store.DecisionSettings) *recordSettingsOut {
	return &recordSettingsOut{ETag: etag(v.Version), Body: recordSettings{Mode: modeOf(v), Paths: v.Paths, KeepDays: v.KeepDays, Version: v.Version}}
}

func modeOf(v store.DecisionSettings) string {
	if v.BestEffort {
		return modeBestEffort
	}
	return modeStrict
}

func (s *Server) getRecordSettings(ctx context.Context, c *caller, _ *struct{}) (*recordSettingsOut, error) {
	h, err := s.Store.Holdings(ctx, c.org())
	if err != nil {
		return nil, err
	}
	return answerRecordSettings(h.DecisionSettings), nil
}

func (s *Server) putRecordSettings(ctx context.Context, c *caller, in *recordSettingsIn) (*recordSettingsOut, error) {
	expected, err := expectedVersion(in.IfMatch, in.Body.Version)
	if err != nil {
		return nil, err
	}
	want := store.DecisionSettings{BestEffort: in.Body.Mode == modeBestEffort, Paths: in.Body.Paths, KeepDays: in.Body.KeepDays}
	var stored store.DecisionSettings
	revision, err := s.Store.Change(ctx, c.By, func(tx *store.Tx) (err error) {
		if stored, err = tx.PutDecisionSettings(ctx, want, expected); err != nil {
			return err
		}
		tx.Bump()
		return tx.Record(ctx, audit.SettingsUpdate, "settings:decisions", map[string]string{"mode": modeOf(stored), "paths": stored.Paths,
			"keep_days": strconv.FormatInt(stored.KeepDays, 10), "version": strconv.FormatInt(stored.Version, 10)})
	})
	if err != nil {
		return nil, err
	}
	if err := s.published(ctx, revision, in.Wait); err != nil {
		return nil, err
	}
	return answerRecordSettings(stored), nil
}
