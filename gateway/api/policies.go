package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

var (
	policyName    = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	reservedNames = []string{"ceiling", "floor", "own", "check", "lint", "presets", "replay", "learn", "test", "diff", "versions"}
)

// ChangeIn is what every change of a document takes. It is exported because huma looks for parameters only in embedded structs
// that are.
type ChangeIn struct {
	IfMatch     string `header:"If-Match" doc:"The ETag of the version that this one replaces; a stale one is 412. Without it the last write wins."`
	IfNoneMatch string `header:"If-None-Match" enum:"*" doc:"Only if there is none yet."`
	Wait        string `query:"wait" enum:"applied" doc:"Answer after every connected edge has acknowledged."`
}

// DocumentIn is a change that brings a document.
type DocumentIn struct {
	RawBody []byte `contentType:"application/json"`
	ChangeIn
	TestsIn
	FormIn
}

type namedIn struct {
	Name string `path:"name" doc:"Lower-case letters, digits and hyphens."`
	DocumentIn
}

type nameIn struct {
	Name    string `path:"name"`
	Version int64  `query:"version" minimum:"0" doc:"An older version; default the current one."`
	FormIn
}

type nameDeleteIn struct {
	Name    string `path:"name"`
	IfMatch string `header:"If-Match"`
}

type policyListOut struct {
	Body struct {
		Policies []policyView `json:"policies" nullable:"false"`
	}
}

type policyView struct {
	Name      string    `json:"name"`
	ID        string    `json:"id"`
	Version   int64     `json:"version"`
	Rules     int       `json:"rules" doc:"How many."`
	Default   bool      `json:"default" doc:"Given to a sandbox that names none."`
	UpdatedAt time.Time `json:"updated_at"`
	UpdatedBy string    `json:"updated_by"`
}

func (s *Server) policyRoutes() {
	tags := []string{"policies"}
	body := "The document, JSON or YAML: rules, or the form with mode and allowed_domains, which is converted and shown as rules. A version beside the rules counts as If-Match. " +
		"The answer is the stored document with its version and, after a change, the revision that the edges acknowledge. YAML is kept as it was written, with its comments. " +
		"warnings are what is allowed and probably not meant; a failing test of the document refuses the change."
	document := func(op huma.Operation) huma.Operation {
		op.Tags = tags
		return documentOperation(op)
	}
	route(s, sso.ScopeRead, document(huma.Operation{OperationID: "get-egress", Method: http.MethodGet, Path: "/settings/egress", Summary: "Get the org's ceiling"}), s.getCeiling)
	route(s, sso.ScopeAdmin, document(huma.Operation{OperationID: "put-egress", Method: http.MethodPut, Path: "/settings/egress", Summary: "Set the org's ceiling", Description: body}), s.putCeiling)
	route(s, sso.ScopeRead, huma.Operation{OperationID: "list-policies", Method: http.MethodGet, Path: "/policies", Summary: "List named policies", Tags: tags}, s.listPolicies)
	route(s, sso.ScopeRead, document(huma.Operation{OperationID: "get-policy", Method: http.MethodGet, Path: "/policies/{name}", Summary: "Get a named policy"}), s.getPolicy)
	route(s, sso.ScopeAdmin, document(huma.Operation{OperationID: "put-policy", Method: http.MethodPut, Path: "/policies/{name}", Summary: "Set a named policy", Description: body}), s.putPolicy)
	s.versionRoutes()
	s.diffRoutes()
	s.lintRoutes()
	s.testRoutes()
	s.replayRoutes()
	s.learnRoutes()
	s.pruneRoutes()
	route(s, sso.ScopeAdmin, huma.Operation{OperationID: "delete-policy", Method: http.MethodDelete, Path: "/policies/{name}", Summary: "Delete a named policy", Tags: tags}, s.deletePolicy)
}

func (s *Server) getCeiling(ctx context.Context, c *caller, in *FormIn) (*documentOut, error) {
	p, err := s.Store.Policy(ctx, c.org(), store.Ceiling)
	if err != nil {
		return nil, err
	}
	return in.answer(p, changed{})
}

func (s *Server) putCeiling(ctx context.Context, c *caller, in *DocumentIn) (*documentOut, error) {
	return s.putDocument(ctx, c, store.Ceiling, in)
}

func (s *Server) getPolicy(ctx context.Context, c *caller, in *nameIn) (p *documentOut, err error) {
	var found store.Policy
	switch {
	case !policyName.MatchString(in.Name): // the ceiling has a name of its own in the store
		return nil, notFound("policy")
	case in.Version > 0:
		found, err = s.Store.PolicyVersion(ctx, c.org(), in.Name, in.Version)
	default:
		found, err = s.Store.Policy(ctx, c.org(), in.Name)
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound("policy")
	}
	if err != nil {
		return nil, err
	}
	return in.answer(found, changed{})
}

func (s *Server) putPolicy(ctx context.Context, c *caller, in *namedIn) (*documentOut, error) {
	if !policyName.MatchString(in.Name) || slices.Contains(reservedNames, in.Name) {
		return nil, invalid("path.name", "must be lower-case letters, digits and hyphens, at most 63, and none of "+strings.Join(reservedNames, ", "))
	}
	return s.putDocument(ctx, c, in.Name, &in.DocumentIn)
}

func (s *Server) putDocument(ctx context.Context, c *caller, name string, in *DocumentIn) (*documentOut, error) {
	d, err := s.readDocument(in.RawBody)
	if err != nil {
		return nil, err
	}
	action := audit.PolicyUpdate
	if name == store.Ceiling {
		action = audit.EgressUpdate
	}
	return s.storeDocument(ctx, c, name, d, &in.ChangeIn, in.Tests == "report", &in.FormIn, action)
}

// storeDocument makes a document the next version of a name.
func (s *Server) storeDocument(ctx context.Context, c *caller, name string, d draftDocument, in *ChangeIn, report bool, form *FormIn, action audit.Action) (*documentOut, error) {
	expected, err := in.expected(d.version, func() (bool, error) {
		p, err := s.Store.Policy(ctx, c.org(), name)
		if errors.Is(err, store.ErrNotFound) {
			return false, nil
		}
		return p.Version > 0, err
	})
	if err != nil {
		return nil, err
	}
	warnings, err := s.lint(ctx, c.org(), name, d.document)
	if err != nil {
		return nil, err
	}
	floor, err := s.FloorNow(ctx) // before the change, which keeps the store's other readers of it waiting
	if err != nil {
		return nil, err
	}
	broken, err := s.othersBroken(ctx, floor, c.org(), name, d) // only told, so the store's writers need not wait for it
	if err != nil {
		return nil, err
	}
	done := changed{more: map[string]any{"warnings": warnings}}
	var p store.Policy
	done.revision, err = s.Store.Change(ctx, c.By, func(tx *store.Tx) (err error) {
		failed, err := s.holdTests(ctx, tx, floor, tx.Org(), name, d, report)
		if err != nil {
			return err
		}
		done.more["failed_tests"] = append(failed, broken...)
		if p, err = tx.PutPolicyFrom(ctx, name, d.normal, d.origin, expected); err != nil {
			return tooManyPolicies(err)
		}
		if err := noneGranted(ctx, tx, name, s.Now()); err != nil {
			return err
		}
		tx.Bump()
		details := map[string]string{"version": strconv.FormatInt(p.Version, 10)}
		if p.Restored > 0 {
			details["restored"] = strconv.FormatInt(p.Restored, 10)
		}
		return tx.Record(ctx, action, objectOf(name), details)
	})
	if err != nil {
		return nil, err
	}
	if err := s.published(ctx, done.revision, in.Wait); err != nil {
		return nil, err
	}
	return form.answer(p, done)
}

// objectOf names a document in the audit log.
func objectOf(name string) string {
	if name == store.Ceiling {
		return "ceiling"
	}
	return "policy:" + name
}

// tooManyPolicies says which limit was reached.
func tooManyPolicies(err error) error {
	if !errors.Is(err, store.ErrLimit) {
		return err
	}
	return problem(http.StatusConflict, "limit_reached", fmt.Sprintf("the org's policies would be over %d, or over %d MiB in all, which is as many as an org may have: delete some, or shorten them",
		store.PolicyCount, store.PolicyBytes>>20), FieldError{"body", "is over the org's limit"})
}

// expected turns the preconditions of a request into the version that must be stored. inside is the version that the document
// itself names; there reports whether any is stored.
func (in *ChangeIn) expected(inside *int64, there func() (bool, error)) (int64, error) {
	want := store.AnyVersion
	add := func(v int64) error {
		if want != store.AnyVersion && want != v {
			return problem(http.StatusPreconditionFailed, "version_changed", "the preconditions contradict each other")
		}
		want = v
		return nil
	}
	if in.IfNoneMatch == "*" {
		want = 0
	}
	if in.IfMatch == "*" { // any, but there must be one
		if yes, err := there(); err != nil {
			return 0, err
		} else if !yes {
			return 0, problem(http.StatusPreconditionFailed, "version_changed", "there is none to replace")
		}
	} else if in.IfMatch != "" {
		v, err := parseETag(in.IfMatch)
		if err != nil {
			return 0, err
		}
		if err := add(v); err != nil {
			return 0, err
		}
	}
	if inside != nil {
		if err := add(*inside); err != nil {
			return 0, err
		}
	}
	return want, nil
}

func etag(version int64) string { return fmt.Sprintf(`"v%d"`, version) }

// expectedVersion is the version that a change says it replaces, by If-Match or else by its body.
func expectedVersion(ifMatch string, inBody int64) (int64, error) {
	switch {
	case ifMatch != "" && ifMatch != "*":
		return parseETag(ifMatch)
	case inBody > 0:
		return inBody, nil
	}
	return store.AnyVersion, nil
}

func parseETag(s string) (int64, error) {
	number, ok := strings.CutPrefix(strings.TrimPrefix(s, "W/"), `"v`)
	number, ok2 := strings.CutSuffix(number, `"`)
	v, err := strconv.ParseInt(number, 10, 64)
	if !ok || !ok2 || err != nil || v < 0 {
		// An ETag that we never gave is one that can't be the current one.
		return 0, problem(http.StatusPreconditionFailed, "version_changed", "this is not an ETag of ours", FieldError{"header.If-Match", "is not an ETag of ours"})
	}
	return v, nil
}

// published tells the feed and, if the client asked for it, waits for the edges.
func (s *Server) published(ctx context.Context, revision int64, wait string) error {
	s.Feed.Publish(ctx, revision)
	if wait != "applied" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.Applied)
	defer cancel()
	if err := s.Feed.WaitApplied(ctx, revision); err != nil {
		s.Log.Warn("a change was not acknowledged in time", "err", err, "request_id", requestID(ctx))
		return problem(http.StatusGatewayTimeout, "not_applied", fmt.Sprintf("the change is stored as revision %d, but not every edge has acknowledged it", revision))
	}
	return nil
}

func (s *Server) listPolicies(ctx context.Context, c *caller, _ *struct{}) (*policyListOut, error) {
	all, err := s.Store.Policies(ctx, c.org())
	if err != nil {
		return nil, err
	}
	settings, err := s.Store.Settings(ctx, c.org())
	if err != nil {
		return nil, err
	}
	out := &policyListOut{}
	out.Body.Policies = []policyView{}
	for _, p := range all {
		var d struct{ Rules []json.RawMessage }
		if err := json.Unmarshal(p.Document, &d); err != nil {
			return nil, fmt.Errorf("reading policy %q: %w", p.Name, err)
		}
		out.Body.Policies = append(out.Body.Policies, policyView{p.Name, p.ID, p.Version, len(d.Rules), p.Name == settings.DefaultPolicy, p.CreatedAt, p.CreatedBy})
	}
	return out, nil
}

func (s *Server) deletePolicy(ctx context.Context, c *caller, in *nameDeleteIn) (*success, error) {
	if !policyName.MatchString(in.Name) {
		return nil, notFound("policy")
	}
	expected := store.AnyVersion
	if in.IfMatch != "" && in.IfMatch != "*" {
		var err error
		if expected, err = parseETag(in.IfMatch); err != nil {
			return nil, err
		}
	}
	revision, err := s.Store.Change(ctx, c.By, func(tx *store.Tx) error {
		settings, err := tx.Settings(ctx, tx.Org())
		if err != nil {
			return err
		}
		if settings.DefaultPolicy == in.Name {
			return problem(http.StatusConflict, "policy_in_use", "the policy is the org's default")
		}
		if err := tx.DeletePolicy(ctx, in.Name, expected); err != nil {
			return err
		}
		tx.Bump()
		return tx.Record(ctx, audit.PolicyDelete, "policy:"+in.Name, nil)
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, notFound("policy")
	case errors.Is(err, store.ErrConflict):
		return nil, problem(http.StatusConflict, "policy_in_use", "a live sandbox has the policy")
	case err != nil:
		return nil, err
	}
	s.Feed.Publish(ctx, revision)
	return succeeded(), nil
}
