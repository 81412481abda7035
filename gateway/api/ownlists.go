package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies"
	"portreeve.dev/sso"
)

// A sandbox's own list narrows what its policy allows, and can be changed while it runs. Widening it again is giving the sandbox
// its policy anew: so only a key that may give that policy may change it.

type ownGetIn struct {
	ID string `path:"id"`
	FormIn
}

type ownPutIn struct {
	ID string `path:"id"`
	DocumentIn
}

type ownDeleteIn struct {
	ID string `path:"id"`
	ChangeIn
}

type sandboxPolicyIn struct {
	ID   string `path:"id"`
	Wait string `query:"wait" enum:"applied" doc:"Answer after every connected edge has acknowledged."`
	Body struct {
		Policy *string `json:"policy" maxLength:"63" doc:"A named policy; null: the ceiling alone."`
	}
}

func (s *Server) ownListRoutes() {
	tags := []string{"sandboxes"}
	document := func(op huma.Operation) huma.Operation {
		op.Tags = tags
		return documentOperation(op)
	}
	only := "For keys that may give the sandbox's policy."
	route(s, sso.ScopeRead, document(huma.Operation{OperationID: "get-sandbox-egress", Method: http.MethodGet, Path: "/sandbox/{id}/egress", Summary: "Get a sandbox's own list"}), s.getOwnList)
	route(s, sso.ScopeWrite, document(huma.Operation{OperationID: "put-sandbox-egress", Method: http.MethodPut, Path: "/sandbox/{id}/egress", Summary: "Set a sandbox's own list",
		Description: "A policy document, JSON or YAML, that only narrows what its policy allows. It holds at once, for connections that are open too, and stays over a pause. " + only}), s.putOwnList)
	route(s, sso.ScopeWrite, huma.Operation{OperationID: "delete-sandbox-egress", Method: http.MethodDelete, Path: "/sandbox/{id}/egress", Summary: "Take a sandbox's own list away",
		Description: "Then its policy alone holds. " + only, Tags: tags}, s.deleteOwnList)
	route(s, sso.ScopeWrite, huma.Operation{OperationID: "put-sandbox-policy", Method: http.MethodPut, Path: "/sandbox/{id}/policy", Summary: "Put a sandbox under another policy",
		Description: "It holds at once. For keys that may give both, the one that it has and the one that it gets.", Tags: tags}, s.putSandboxPolicy)
}

func ownAsPolicy(b store.Sandbox) store.Policy {
	return store.Policy{Name: ownName, Version: b.OwnVersion, Document: b.Own}
}

func (s *Server) getOwnList(ctx context.Context, c *caller, in *ownGetIn) (*documentOut, error) {
	b, err := s.sandbox(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	if b.Own == nil {
		return nil, problem(http.StatusNotFound, "own_list_not_found", "the sandbox has no list of its own: its policy alone holds")
	}
	return in.answer(ownAsPolicy(b), changed{})
}

func (s *Server) putOwnList(ctx context.Context, c *caller, in *ownPutIn) (*documentOut, error) {
	if len(in.RawBody) > maxOwnList {
		return nil, invalid("body", fmt.Sprintf("is over %d bytes; long lists belong into a named policy", maxOwnList))
	}
	d, err := s.readDocument(in.RawBody)
	if err != nil {
		return nil, err
	}
	if len(d.normal) > maxOwnList {
		return nil, invalid("body", fmt.Sprintf("is over %d bytes with all defaults written out; long lists belong into a named policy", maxOwnList))
	}
	b, done, err := s.setOwnList(ctx, c, in.ID, &d, in.Tests == "report", &in.ChangeIn)
	if err != nil {
		return nil, err
	}
	return in.answer(ownAsPolicy(b), done)
}

func (s *Server) deleteOwnList(ctx context.Context, c *caller, in *ownDeleteIn) (*success, error) {
	if _, _, err := s.setOwnList(ctx, c, in.ID, nil, false, &in.ChangeIn); err != nil {
		return nil, err
	}
	return succeeded(), nil
}

// setOwnList changes the own list of a live sandbox; a nil list takes it away.
func (s *Server) setOwnList(ctx context.Context, c *caller, id string, d *draftDocument, report bool, in *ChangeIn) (b store.Sandbox, done changed, err error) {
	var list json.RawMessage
	var inside *int64
	if d != nil {
		list, inside = d.normal, d.version
	}
	if b, err = s.sandbox(ctx, c, id); err != nil {
		return b, done, err
	}
	expected, err := in.expected(inside, func() (bool, error) { return b.Own != nil, nil })
	if err != nil {
		return b, done, err
	}
	floor, err := s.FloorNow(ctx)
	if err != nil {
		return b, done, err
	}
	done.revision, err = s.Store.Change(ctx, c.By, func(tx *store.Tx) error {
		if b, err = s.mayChange(ctx, tx, c, id); err != nil {
			return err
		}
		if list == nil && b.Own == nil {
			return problem(http.StatusNotFound, "own_list_not_found", "the sandbox has no list of its own")
		}
		if d != nil {
			failed, err := s.holdOwnTests(ctx, tx, floor, b, *d, report)
			if err != nil {
				return err
			}
			done.more = map[string]any{"failed_tests": failed}
		}
		if b, err = tx.SetOwnList(ctx, id, list, expected); err != nil {
			return tooMuchOwn(err)
		}
		tx.Bump()
		return tx.Record(ctx, audit.SandboxEgress, id, map[string]string{"version": strconv.FormatInt(b.OwnVersion, 10), "set": strconv.FormatBool(list != nil)})
	})
	if err != nil {
		return b, done, err
	}
	return b, done, s.published(ctx, done.revision, in.Wait)
}

// holdOwnTests refuses a list whose tests fail under what else the sandbox has, as holdTests does.
func (s *Server) holdOwnTests(ctx context.Context, tx *store.Tx, floor *policies.Floor, b store.Sandbox, d draftDocument, report bool) ([]failedTest, error) {
	if len(d.document.Tests) == 0 {
		return []failedTest{}, nil
	}
	ceiling, err := tx.Policy(ctx, tx.Org(), store.Ceiling)
	if err != nil {
		return nil, err
	}
	above := []store.Policy{ceiling}
	if b.Policy != store.Ceiling {
		named, err := tx.Policy(ctx, tx.Org(), b.Policy)
		if err != nil {
			return nil, err
		}
		above = append(above, named)
	}
	results, err := trial{floor, tx.Org(), above, ownName, b.Own, s.Now()}.of(d)
	if err != nil {
		return nil, err
	}
	return failedOf(results, report)
}

// tooMuchOwn says which limit was reached.
func tooMuchOwn(err error) error {
	if !errors.Is(err, store.ErrLimit) {
		return err
	}
	return problem(http.StatusConflict, "limit_reached", fmt.Sprintf("the own lists of the org's sandboxes would be over %d MiB in all: use named policies", store.OwnBytes>>20),
		FieldError{"body", "is over the org's limit"})
}

// mayChange returns a live sandbox whose policy the key may give, as it is within the change.
func (s *Server) mayChange(ctx context.Context, tx *store.Tx, c *caller, id string) (store.Sandbox, error) {
	b, err := tx.Sandbox(ctx, tx.Org(), id)
	if errors.Is(err, store.ErrNotFound) {
		return b, notFound("sandbox")
	}
	if err != nil {
		return b, err
	}
	if b.Status.Ended() || b.Status == store.Terminating {
		return b, notRunning(b)
	}
	yes, err := givesPolicy(ctx, tx, c, b.Policy)
	if err == nil && !yes {
		err = problem(http.StatusForbidden, "policy_not_given", "the key may not give the policy that the sandbox has, so it may not change what narrows it")
	}
	return b, err
}

// givesPolicy reports whether the key may give a policy; "" is the ceiling alone. The org's default is everybody's.
func givesPolicy(ctx context.Context, tx *store.Tx, c *caller, policy string) (bool, error) {
	if c.Principal.MayGive(policy) || policy == store.Ceiling && slices.Contains(c.Principal.Policies, sso.AnyPolicy) {
		return true, nil
	}
	settings, err := tx.Settings(ctx, tx.Org())
	return err == nil && settings.DefaultPolicy == policy, err
}

func (s *Server) putSandboxPolicy(ctx context.Context, c *caller, in *sandboxPolicyIn) (*sandboxOut, error) {
	policy := store.Ceiling
	if in.Body.Policy != nil {
		if policy = *in.Body.Policy; !policyName.MatchString(policy) {
			return nil, invalid("body.policy", "is not a policy name")
		}
	}
	var b store.Sandbox
	revision, err := s.Store.Change(ctx, c.By, func(tx *store.Tx) (err error) {
		if b, err = s.mayChange(ctx, tx, c, in.ID); err != nil {
			return err
		}
		if yes, err := givesPolicy(ctx, tx, c, policy); err != nil {
			return err
		} else if !yes {
			return problem(http.StatusForbidden, "policy_not_given", "the key may not give this policy", FieldError{"body.policy", "is not in the key's list"})
		}
		if policy != store.Ceiling {
			if _, err := tx.Policy(ctx, tx.Org(), policy); errors.Is(err, store.ErrNotFound) {
				return invalid("body.policy", "there is no such policy")
			} else if err != nil {
				return err
			}
		}
		seen := b.Policy
		if b, err = tx.SetSandboxPolicy(ctx, in.ID, seen, policy); err != nil {
			return err
		}
		if err := notOpenWithGrant(ctx, tx, b); err != nil {
			return err
		}
		tx.Bump()
		return tx.Record(ctx, audit.SandboxPolicy, in.ID, map[string]string{"from": seen, "policy": policy})
	})
	if err != nil {
		return nil, err
	}
	if err := s.published(ctx, revision, in.Wait); err != nil {
		return nil, err
	}
	return s.sandboxAnswer(ctx, b)
}

// maxOwnList is how long the list of one sandbox may be: each goes to the edges with every change.
const maxOwnList = 128 << 10

// ownList brings the list that a create holds into its normal form.
func (s *Server) ownList(sent json.RawMessage) (json.RawMessage, error) {
	if len(sent) == 0 {
		return nil, nil
	}
	if len(sent) > maxOwnList {
		return nil, invalid("body.egress", fmt.Sprintf("is over %d bytes; long lists belong into a named policy", maxOwnList))
	}
	d, err := s.readInside("egress", sent)
	if err == nil && len(d.normal) > maxOwnList {
		err = invalid("body.egress", fmt.Sprintf("is over %d bytes with all defaults written out; long lists belong into a named policy", maxOwnList))
	}
	return d.normal, err
}
