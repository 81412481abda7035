package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

type settingsView struct {
	DefaultPolicy *string `json:"default_policy" doc:"Given to a sandbox that names none; null: the ceiling alone."`
	Version       int64   `json:"version"`
}

type settingsOut struct {
	ETag string `header:"ETag"`
	Body settingsView
}

type settingsIn struct {
	IfMatch string `header:"If-Match"`
	Body    struct {
		DefaultPolicy *string `json:"default_policy" doc:"Given to a sandbox that names none; null: the ceiling alone."`
		Version       int64   `json:"version,omitempty" minimum:"0" doc:"Counts as If-Match."`
	}
}

func (s *Server) settingsRoutes() {
	tags := []string{"policies"}
	route(s, sso.ScopeRead, huma.Operation{OperationID: "get-settings", Method: http.MethodGet, Path: "/settings", Summary: "Get the org's settings", Tags: tags}, s.getSettings)
	route(s, sso.ScopeAdmin, huma.Operation{OperationID: "put-settings", Method: http.MethodPut, Path: "/settings", Summary: "Set the org's settings", Tags: tags}, s.putSettings)
}

func answerSettings(v store.Settings) *settingsOut {
	out := &settingsOut{ETag: etag(v.Version), Body: settingsView{Version: v.Version}}
	if v.DefaultPolicy != "" {
		out.Body.DefaultPolicy = &v.DefaultPolicy
	}
	return out
}

func (s *Server) getSettings(ctx context.Context, c *caller, _ *struct{}) (*settingsOut, error) {
	v, err := s.Store.Settings(ctx, c.org())
	if err != nil {
		return nil, err
	}
	return answerSettings(v), nil
}

func (s *Server) putSettings(ctx context.Context, c *caller, in *settingsIn) (*settingsOut, error) {
	expected, err := expectedVersion(in.IfMatch, in.Body.Version)
	if err != nil {
		return nil, err
	}
	want := store.Settings{}
	if in.Body.DefaultPolicy != nil {
		want.DefaultPolicy = *in.Body.DefaultPolicy
	}
	var stored store.Settings
	_, err = s.Store.Change(ctx, c.By, func(tx *store.Tx) (err error) {
		if want.DefaultPolicy != "" {
			if _, err := tx.Policy(ctx, tx.Org(), want.DefaultPolicy); errors.Is(err, store.ErrNotFound) {
				return invalid("body.default_policy", "there is no such policy")
			} else if err != nil {
				return err
			}
		}
		if stored, err = tx.PutSettings(ctx, want, expected); err != nil {
			return err
		}
		return tx.Record(ctx, audit.SettingsUpdate, "settings", map[string]string{"default_policy": want.DefaultPolicy, "version": strconv.FormatInt(stored.Version, 10)})
	})
	if err != nil {
		return nil, err
	}
	return answerSettings(stored), nil
}
