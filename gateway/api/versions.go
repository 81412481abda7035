package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

// VersionsIn is a page of a list of versions.
type VersionsIn struct {
	Before int64 `query:"before" minimum:"1" doc:"Only versions below this one: next_before of the page before."`
	Limit  int   `query:"limit" minimum:"1" maximum:"200" default:"50"`
}

type namedVersionsIn struct {
	Name string `path:"name"`
	VersionsIn
}

type versionListOut struct {
	Body struct {
		Versions   []versionView `json:"versions" nullable:"false" doc:"Newest first. The last 200 are kept, and those that a kept decision names."`
		NextBefore *int64        `json:"next_before" doc:"null: there are no more."`
	}
}

type versionView struct {
	Version   int64     `json:"version"`
	Current   bool      `json:"current"`
	Restored  int64     `json:"restored_from,omitempty" doc:"The version that it is again."`
	Bytes     int64     `json:"bytes"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
}

// VersionIn names a version.
type VersionIn struct {
	Version int64 `path:"version" minimum:"1"`
	FormIn
}

type namedVersionIn struct {
	Name string `path:"name"`
	VersionIn
}

// RestoreIn names a version that is to come back.
type RestoreIn struct {
	VersionIn
	ChangeIn
	TestsIn
}

type namedRestoreIn struct {
	Name string `path:"name"`
	RestoreIn
}

func (s *Server) versionRoutes() {
	for _, at := range []struct{ path, id, what string }{{"/settings/egress", "egress", "the org's ceiling"}, {"/policies/{name}", "policy", "a named policy"}} {
		list := huma.Operation{OperationID: "list-" + at.id + "-versions", Method: http.MethodGet, Path: at.path + "/versions", Summary: "List the versions of " + at.what, Tags: []string{"policies"}}
		get := documentOperation(huma.Operation{OperationID: "get-" + at.id + "-version", Method: http.MethodGet, Path: at.path + "/versions/{version}",
			Summary: "Get a version of " + at.what, Tags: []string{"policies"}})
		restore := documentOperation(huma.Operation{OperationID: "restore-" + at.id + "-version", Method: http.MethodPost, Path: at.path + "/versions/{version}/restore",
			Summary: "Bring back a version of " + at.what, Description: "It becomes a new version; a deleted policy is there again.", Tags: []string{"policies"}})
		if at.id == "egress" {
			route(s, sso.ScopeRead, list, func(ctx context.Context, c *caller, in *VersionsIn) (*versionListOut, error) {
				return s.listVersions(ctx, c, store.Ceiling, in)
			})
			route(s, sso.ScopeRead, get, func(ctx context.Context, c *caller, in *VersionIn) (*documentOut, error) {
				return s.getVersion(ctx, c, store.Ceiling, in)
			})
			route(s, sso.ScopeAdmin, restore, func(ctx context.Context, c *caller, in *RestoreIn) (*documentOut, error) {
				return s.restore(ctx, c, store.Ceiling, in)
			})
			continue
		}
		route(s, sso.ScopeRead, list, func(ctx context.Context, c *caller, in *namedVersionsIn) (*versionListOut, error) {
			if !policyName.MatchString(in.Name) { // the ceiling has a name of its own in the store
				return nil, notFound("policy")
			}
			return s.listVersions(ctx, c, in.Name, &in.VersionsIn)
		})
		route(s, sso.ScopeRead, get, func(ctx context.Context, c *caller, in *namedVersionIn) (*documentOut, error) {
			if !policyName.MatchString(in.Name) {
				return nil, notFound("policy")
			}
			return s.getVersion(ctx, c, in.Name, &in.VersionIn)
		})
		route(s, sso.ScopeAdmin, restore, func(ctx context.Context, c *caller, in *namedRestoreIn) (*documentOut, error) {
			if !policyName.MatchString(in.Name) {
				return nil, notFound("policy")
			}
			return s.restore(ctx, c, in.Name, &in.RestoreIn)
		})
	}
}

func (s *Server) listVersions(ctx context.Context, c *caller, name string, in *VersionsIn) (*versionListOut, error) {
	current, err := s.Store.Policy(ctx, c.org(), name)
	if err != nil && !errors.Is(err, store.ErrNotFound) { // of a deleted one the versions are there still
		return nil, err
	}
	all, err := s.Store.PolicyVersions(ctx, c.org(), name, in.Before, in.Limit+1)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 && in.Before == 0 && name != store.Ceiling {
		return nil, notFound("policy")
	}
	out := &versionListOut{}
	out.Body.Versions = []versionView{}
	if len(all) > in.Limit {
		all = all[:in.Limit]
		out.Body.NextBefore = &all[len(all)-1].Version
	}
	for _, v := range all {
		out.Body.Versions = append(out.Body.Versions, versionView{v.Version, v.Version == current.Version, v.Restored, v.Bytes, v.CreatedAt, v.CreatedBy})
	}
	return out, nil
}

// versionOf returns one version of a document, or the refusal.
func (s *Server) versionOf(ctx context.Context, c *caller, name string, version int64) (store.Policy, error) {
	p, err := s.Store.PolicyVersion(ctx, c.org(), name, version)
	if errors.Is(err, store.ErrNotFound) {
		return p, notFound("version")
	}
	return p, err
}

func (s *Server) getVersion(ctx context.Context, c *caller, name string, in *VersionIn) (*documentOut, error) {
	p, err := s.versionOf(ctx, c, name, in.Version)
	if err != nil {
		return nil, err
	}
	return in.answer(p, changed{})
}

// restore makes an old version the newest. It is read as if it were sent now: what the language, the grants or its own tests
// refuse today is refused.
func (s *Server) restore(ctx context.Context, c *caller, name string, in *RestoreIn) (*documentOut, error) {
	old, err := s.versionOf(ctx, c, name, in.Version)
	if err != nil {
		return nil, err
	}
	text := []byte(old.Source)
	if old.Source == "" {
		text = old.Document
	}
	d, err := s.readDocument(text)
	if err != nil {
		return nil, err
	}
	d.origin.Restored = in.Version
	action := audit.PolicyRestore
	if name == store.Ceiling {
		action = audit.EgressRestore
	}
	return s.storeDocument(ctx, c, name, d, &in.ChangeIn, in.Tests == "report", &in.FormIn, action)
}
