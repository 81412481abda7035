package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies"
	"portreeve.dev/sso"
)

type lintIn struct {
	Body struct {
		Document json.RawMessage `json:"document" doc:"An object, or a string of JSON or YAML."`
		Policy   string          `json:"policy,omitempty" maxLength:"63" doc:"The policy that it would become: compared with the ceiling too. Without: it would become the ceiling."`
	}
}

type lintOut struct {
	Body struct {
		Findings []policies.Finding `json:"findings" nullable:"false" doc:"What is allowed, and probably not meant. None of it stands in the way of a change."`
	}
}

type presetListOut struct {
	Body struct {
		Presets []presetView `json:"presets" nullable:"false"`
	}
}

type presetView struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Rules       json.RawMessage `json:"rules" doc:"What a document that names the preset gets, written out."`
}

func (s *Server) lintRoutes() {
	tags := []string{"policies"}
	route(s, sso.ScopeRead, huma.Operation{OperationID: "lint-policy", Method: http.MethodPost, Path: "/policies/lint", Summary: "Look for what is probably not meant", Tags: tags}, s.lintDocument)
	route(s, sso.ScopeRead, huma.Operation{OperationID: "list-presets", Method: http.MethodGet, Path: "/policies/presets", Summary: "List the presets that a document may name", Tags: tags}, s.listPresets)
}

func (s *Server) lintDocument(ctx context.Context, c *caller, in *lintIn) (*lintOut, error) {
	d, err := s.readInside("document", in.Body.Document)
	if err != nil {
		return nil, err
	}
	name, err := draftName(in.Body.Policy)
	if err != nil {
		return nil, err
	}
	out := &lintOut{}
	out.Body.Findings, err = s.lint(ctx, c.org(), name, d.document)
	return out, err
}

// lint looks at a document with what the org has beside it.
func (s *Server) lint(ctx context.Context, org, name string, d *policies.Document) ([]policies.Finding, error) {
	floor, err := s.FloorNow(ctx)
	if err != nil {
		return nil, err
	}
	o := policies.LintOptions{Now: s.Now(), Floor: floor, Org: org}
	kept, err := s.Store.Secrets(ctx, org)
	if err != nil {
		return nil, err
	}
	for _, secret := range kept {
		for _, g := range secret.Grants {
			o.Granted = append(o.Granted, g.Host)
		}
	}
	if name != store.Ceiling {
		ceiling, err := s.Store.Policy(ctx, org, store.Ceiling)
		if err != nil {
			return nil, err
		}
		if o.Ceiling, err = policies.Parse(ceiling.Document); err != nil {
			return nil, fmt.Errorf("reading the ceiling version %d: %w", ceiling.Version, err)
		}
	}
	return policies.Lint(d, o), nil
}

func (s *Server) listPresets(context.Context, *caller, *struct{}) (*presetListOut, error) {
	out := &presetListOut{}
	for _, p := range policies.Presets() {
		rules, err := json.Marshal(p.Rules)
		if err != nil {
			return nil, err
		}
		out.Body.Presets = append(out.Body.Presets, presetView{p.Name, p.Description, rules})
	}
	return out, nil
}
