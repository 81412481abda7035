package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

type keyView struct {
	ID        string      `json:"id"`
	Name      string      `json:"name"`
	Prefix    string      `json:"key_prefix"`
	Scopes    []sso.Scope `json:"scopes" nullable:"false"`
	Policies  []string    `json:"policies" nullable:"false" doc:"Named policies that it may give to a sandbox; * for all."`
	LastUsed  *time.Time  `json:"last_used_at,omitempty"`
	ExpiresAt *time.Time  `json:"expires_at,omitempty"`
	CreatedAt time.Time   `json:"created_at"`
}

func viewKey(k store.Key) keyView {
	return keyView{k.ID, k.Name, k.Prefix, k.Scopes, k.Policies, timeOrNil(k.LastUsed), timeOrNil(k.ExpiresAt), k.CreatedAt}
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

type keyListOut struct {
	Body struct {
		Keys []keyView `json:"api_keys" nullable:"false"`
	}
}

type keyCreateIn struct {
	Body struct {
		Name     string   `json:"name" minLength:"1" maxLength:"100"`
		Days     int      `json:"expires_in_days,omitempty" minimum:"1" maximum:"3650"`
		Scopes   []string `json:"scopes,omitempty" enum:"read,write,admin,grants,approve,platform" doc:"Default: read and write. platform is the installer's to give: no org's key has it."`
		Policies []string `json:"policies,omitempty" maxItems:"100" doc:"Named policies that it may give to a sandbox; * for all. Default: none but the org's default."`
	}
}

type keyIDIn struct {
	ID string `path:"id"`
}

type keyCreateOut struct {
	Body struct {
		APIKey keyView `json:"api_key"`
		Key    string  `json:"key" doc:"Shown once."`
	}
}

func (s *Server) keyRoutes() {
	tags := []string{"keys"}
	route(s, sso.ScopeAdmin, huma.Operation{OperationID: "list-api-keys", Method: http.MethodGet, Path: "/api-keys", Summary: "List keys", Tags: tags}, s.listKeys)
	route(s, sso.ScopeAdmin, huma.Operation{OperationID: "create-api-key", Method: http.MethodPost, Path: "/api-keys", Summary: "Create a key",
		DefaultStatus: http.StatusCreated, Tags: tags}, s.createKey)
	route(s, sso.ScopeAdmin, huma.Operation{OperationID: "delete-api-key", Method: http.MethodDelete, Path: "/api-keys/{id}", Summary: "Revoke a key", Tags: tags}, s.deleteKey)
	route(s, sso.ScopeAdmin, huma.Operation{OperationID: "rotate-api-key", Method: http.MethodPost, Path: "/api-keys/{id}/rotate",
		Summary: "Replace a key by a new one with the same rights", DefaultStatus: http.StatusCreated, Tags: tags}, s.rotateKey)
}

func (s *Server) listKeys(ctx context.Context, c *caller, _ *struct{}) (*keyListOut, error) {
	keys, err := s.Store.Keys(ctx, c.org())
	if err != nil {
		return nil, err
	}
	out := &keyListOut{}
	out.Body.Keys = []keyView{}
	for _, k := range keys {
		out.Body.Keys = append(out.Body.Keys, viewKey(k))
	}
	return out, nil
}

func (s *Server) createKey(ctx context.Context, c *caller, in *keyCreateIn) (*keyCreateOut, error) {
	want := store.Key{Name: in.Body.Name, Policies: in.Body.Policies, Scopes: []sso.Scope{sso.ScopeRead, sso.ScopeWrite}}
	if in.Body.Scopes != nil {
		want.Scopes = nil
		for i, name := range in.Body.Scopes {
			scope, ok := sso.ParseScope(name)
			if !ok {
				return nil, invalid(fmt.Sprintf("body.scopes[%d]", i), "is not a scope")
			}
			if !slices.Contains(want.Scopes, scope) {
				want.Scopes = append(want.Scopes, scope)
			}
		}
	}
	if in.Body.Days > 0 {
		want.ExpiresAt = s.Now().UTC().Truncate(time.Second).AddDate(0, 0, in.Body.Days)
	}
	if err := notStronger(c.Principal, want); err != nil {
		return nil, err
	}
	return s.addKey(ctx, c, want, "", audit.KeyCreate)
}

// notStronger refuses a key that may do what its maker may not.
func notStronger(who sso.Principal, k store.Key) error {
	for i, scope := range k.Scopes {
		if !who.Has(scope) {
			return problem(http.StatusForbidden, "stronger_key", "a key can't give a scope that it lacks", FieldError{fmt.Sprintf("body.scopes[%d]", i), "is not a scope of yours"})
		}
	}
	for i, policy := range k.Policies {
		if policy != sso.AnyPolicy && !policyName.MatchString(policy) {
			return invalid(fmt.Sprintf("body.policies[%d]", i), "is not a policy name")
		}
		if !who.MayGive(policy) {
			return problem(http.StatusForbidden, "stronger_key", "a key can't give a policy that it may not give itself", FieldError{fmt.Sprintf("body.policies[%d]", i), "is not yours to give"})
		}
	}
	return nil
}

// addKey makes a key, in the place of an old one if it is named.
func (s *Server) addKey(ctx context.Context, c *caller, want store.Key, old string, action audit.Action) (*keyCreateOut, error) {
	secret, key, err := sso.NewKey()
	if err != nil {
		return nil, err
	}
	want.ID, want.Prefix, want.Hash = key.ID, key.Prefix, key.Hash[:]
	details := map[string]string{"key": key.ID}
	object := key.ID
	_, err = s.Store.Change(ctx, c.By, func(tx *store.Tx) (err error) {
		if old != "" {
			object = old
			if err := tx.RevokeKey(ctx, old); err != nil {
				return err
			}
		}
		if want, err = tx.CreateKey(ctx, want); err != nil {
			return err
		}
		return tx.Record(ctx, action, object, details)
	})
	if err != nil {
		return nil, err
	}
	out := &keyCreateOut{}
	out.Body.APIKey, out.Body.Key = viewKey(want), secret.Reveal()
	return out, nil
}

func (s *Server) deleteKey(ctx context.Context, c *caller, in *keyIDIn) (*success, error) {
	return s.deleteRow(ctx, c, "api_key", in.ID, audit.KeyDelete, (*store.Tx).RevokeKey)
}

func (s *Server) rotateKey(ctx context.Context, c *caller, in *keyIDIn) (*keyCreateOut, error) {
	old, err := s.Store.Key(ctx, c.org(), in.ID)
	if errors.Is(err, store.ErrNotFound) || err == nil && !old.Live(s.Now()) {
		return nil, notFound("api_key")
	}
	if err != nil {
		return nil, err
	}
	// Whoever rotates a key learns it: so it must not be stronger than theirs.
	if err := notStronger(c.Principal, old); err != nil {
		return nil, err
	}
	out, err := s.addKey(ctx, c, store.Key{Name: old.Name, Scopes: old.Scopes, Policies: old.Policies, ExpiresAt: old.ExpiresAt}, old.ID, audit.KeyRotate)
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound("api_key")
	}
	return out, err
}
