package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies"
	"portreeve.dev/sso"
)

// DiffIn says what to compare.
type DiffIn struct {
	Body struct {
		From     int64           `json:"from,omitempty" minimum:"1" doc:"A version. Default: the current one."`
		To       int64           `json:"to,omitempty" minimum:"1" doc:"A version. Default: the current one, if no document is given."`
		Document json.RawMessage `json:"document,omitempty" doc:"A draft in place of the second version: an object, or a string of JSON or YAML."`
	}
}

type namedDiffIn struct {
	Name string `path:"name"`
	DiffIn
}

type diffOut struct {
	Body struct {
		From    int64           `json:"from" doc:"The version; 0: there was none."`
		To      int64           `json:"to,omitempty" doc:"The version; absent: the draft."`
		Same    bool            `json:"same" doc:"Both mean the same."`
		Changes json.RawMessage `json:"changes" doc:"rules, each with its id, kind (added, removed, changed), the names of the changed fields, before and after; and fields of the document itself."`
	}
}

func (s *Server) diffRoutes() {
	op := func(id, path, what string) huma.Operation {
		return huma.Operation{OperationID: "diff-" + id, Method: http.MethodPost, Path: path + "/diff", Summary: "Compare two versions, or a draft with one, of " + what, Tags: []string{"policies"}}
	}
	route(s, sso.ScopeRead, op("egress", "/settings/egress", "the org's ceiling"), func(ctx context.Context, c *caller, in *DiffIn) (*diffOut, error) {
		return s.diff(ctx, c, store.Ceiling, in)
	})
	route(s, sso.ScopeRead, op("policy", "/policies/{name}", "a named policy"), func(ctx context.Context, c *caller, in *namedDiffIn) (*diffOut, error) {
		if !policyName.MatchString(in.Name) {
			return nil, notFound("policy")
		}
		return s.diff(ctx, c, in.Name, &in.DiffIn)
	})
}

func (s *Server) diff(ctx context.Context, c *caller, name string, in *DiffIn) (*diffOut, error) {
	b := in.Body
	switch {
	case b.Document != nil && b.To != 0:
		return nil, invalid("body.to", "give a version or a document, not both")
	case b.Document == nil && b.To == 0 && b.From == 0:
		return nil, invalid("body", "names nothing to compare: give from, to or a document")
	}
	from, err := s.versionOrCurrent(ctx, c, name, b.From)
	if err != nil {
		return nil, err
	}
	out := &diffOut{}
	out.Body.From = from.Version
	before, err := policies.Parse(from.Document)
	if err != nil {
		return nil, fmt.Errorf("reading %s version %d: %w", layerName(name), from.Version, err)
	}
	var after *policies.Document
	if b.Document != nil {
		d, err := s.readInside("document", b.Document)
		if err != nil {
			return nil, err
		}
		after = d.document
	} else {
		to, err := s.versionOrCurrent(ctx, c, name, b.To)
		if err != nil {
			return nil, err
		}
		if after, err = policies.Parse(to.Document); err != nil {
			return nil, fmt.Errorf("reading %s version %d: %w", layerName(name), to.Version, err)
		}
		out.Body.To = to.Version
	}
	change := policies.Diff(before, after)
	out.Body.Same = change.Empty()
	out.Body.Changes, err = json.Marshal(change)
	return out, err
}

// versionOrCurrent returns a version, or for 0 the current one: version 0 without a rule if there is none.
func (s *Server) versionOrCurrent(ctx context.Context, c *caller, name string, version int64) (store.Policy, error) {
	if version > 0 {
		return s.versionOf(ctx, c, name, version)
	}
	p, err := s.Store.Policy(ctx, c.org(), name)
	if errors.Is(err, store.ErrNotFound) {
		return store.Policy{Name: name, Document: json.RawMessage(`{"rules":[]}`)}, nil
	}
	return p, err
}
