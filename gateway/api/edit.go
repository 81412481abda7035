package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies"
	"portreeve.dev/sso"
)

// An edit is a change of a document that a program makes: rules that go, and one that comes.
type edit struct {
	drop func(id string, end time.Time) bool // of rules that have an end
	add  json.RawMessage                     // nil: none
}

// over reports whether a rule's time is over.
func over(end, now time.Time) bool { return !end.IsZero() && !now.Before(end) }

// of returns the document with the edit made, in normal form, and which rules went. The author's text is edited likewise.
func (e edit) of(p store.Policy) (store.Policy, []string, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(p.Document, &fields); err != nil {
		return p, nil, err
	}
	var rules []json.RawMessage
	if err := json.Unmarshal(fields["rules"], &rules); err != nil {
		return p, nil, err
	}
	dropped := []string{}
	rules = slices.DeleteFunc(rules, func(raw json.RawMessage) bool {
		var r struct {
			ID        string    `json:"id"`
			ExpiresAt time.Time `json:"expires_at"`
		}
		gone := e.drop != nil && json.Unmarshal(raw, &r) == nil && !r.ExpiresAt.IsZero() && e.drop(r.ID, r.ExpiresAt)
		if gone {
			dropped = append(dropped, r.ID)
		}
		return gone
	})
	if e.add != nil {
		rules = append(rules, e.add)
	}
	if rules == nil {
		rules = []json.RawMessage{}
	}
	var err error
	if fields["rules"], err = json.Marshal(rules); err != nil {
		return p, nil, err
	}
	whole, err := json.Marshal(fields)
	if err != nil {
		return p, nil, err
	}
	parsed, err := policies.Parse(whole)
	if err != nil {
		return p, nil, refuseDocument(err, whole)
	}
	if p.Document, err = json.Marshal(parsed); err != nil {
		return p, nil, err
	}
	source, err := edited(p.Source, parsed)
	if err != nil {
		return p, nil, err
	}
	p.Origin = store.Origin{Source: source}
	return p, dropped, nil
}

// edited makes the same change in the author's text, whose comments stay.
func edited(source string, to *policies.Document) (string, error) {
	if source == "" {
		return "", nil
	}
	text, err := policies.EditYAML([]byte(source), to)
	if err != nil {
		return "", fmt.Errorf("editing the text of a policy: %w", err)
	}
	return string(text), nil
}

type pruneOut struct {
	ETag string `header:"ETag"`
	Body struct {
		Version  int64    `json:"version"`
		Revision int64    `json:"revision,omitempty"`
		Pruned   []string `json:"pruned" nullable:"false" doc:"Ids of the rules that are gone; none: nothing was changed."`
	}
}

type namedPruneIn struct {
	Name string `path:"name"`
	ChangeIn
}

func (s *Server) pruneRoutes() {
	op := func(id, path, what string) huma.Operation {
		return huma.Operation{OperationID: "prune-" + id, Method: http.MethodPost, Path: path + "/prune", Summary: "Take the rules whose time is over out of " + what,
			Description: "They allow nothing any more; this only tidies.", Tags: []string{"policies"}}
	}
	route(s, sso.ScopeAdmin, op("egress", "/settings/egress", "the org's ceiling"), func(ctx context.Context, c *caller, in *ChangeIn) (*pruneOut, error) {
		return s.prune(ctx, c, store.Ceiling, in)
	})
	route(s, sso.ScopeAdmin, op("policy", "/policies/{name}", "a named policy"), func(ctx context.Context, c *caller, in *namedPruneIn) (*pruneOut, error) {
		if !policyName.MatchString(in.Name) {
			return nil, notFound("policy")
		}
		return s.prune(ctx, c, in.Name, &in.ChangeIn)
	})
}

func (s *Server) prune(ctx context.Context, c *caller, name string, in *ChangeIn) (*pruneOut, error) {
	now := s.Now()
	p, err := s.Store.Policy(ctx, c.org(), name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound("policy")
	}
	if err != nil {
		return nil, err
	}
	expected, err := in.expected(nil, func() (bool, error) { return p.Version > 0, nil })
	if err != nil {
		return nil, err
	}
	if expected != store.AnyVersion && expected != p.Version {
		return nil, store.ErrVersion
	}
	out := &pruneOut{}
	p, out.Body.Pruned, err = edit{drop: func(_ string, end time.Time) bool { return over(end, now) }}.of(p)
	if err != nil {
		return nil, err
	}
	if len(out.Body.Pruned) > 0 {
		action := audit.PolicyUpdate
		if name == store.Ceiling {
			action = audit.EgressUpdate
		}
		out.Body.Revision, err = s.Store.Change(ctx, c.By, func(tx *store.Tx) error {
			if p, err = tx.PutPolicyFrom(ctx, name, p.Document, p.Origin, p.Version); err != nil {
				return err
			}
			tx.Bump()
			return tx.Record(ctx, action, objectOf(name), map[string]string{"pruned": strings.Join(out.Body.Pruned, " ")})
		})
		if err != nil {
			return nil, err
		}
	}
	out.ETag, out.Body.Version = etag(p.Version), p.Version
	return out, s.published(ctx, out.Body.Revision, in.Wait)
}
