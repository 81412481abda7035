package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/secrets"
)

// Behind a public tunnel of a sandbox that may use a secret, anybody could have the application use it for them. Neither may
// come to the other, whichever was first.

// noGrantApplies refuses a public tunnel of a sandbox that may use a secret.
func noGrantApplies(ctx context.Context, tx *store.Tx, b store.Sandbox) error {
	all, err := tx.Secrets(ctx, tx.Org())
	if err != nil {
		return err
	}
	for _, s := range all {
		if applies(s.Grants, b.Policy) {
			return problem(http.StatusConflict, "public_with_grant", fmt.Sprintf("secret %q is granted to this sandbox, so a tunnel of it can't be public: anybody could use the secret through it", s.Name),
				FieldError{"body.public", "is not possible while a secret is granted to the sandbox"})
		}
	}
	return nil
}

// notOpenToAll refuses grants that apply to a sandbox with a public tunnel.
func notOpenToAll(ctx context.Context, tx *store.Tx, grants []secrets.Grant) error {
	open, err := tx.PublicSandboxes(ctx, tx.Org(), tx.Now())
	if err != nil {
		return err
	}
	for _, b := range open {
		if applies(grants, b.Policy) {
			return problem(http.StatusConflict, "public_with_grant", fmt.Sprintf("sandbox %s has a public tunnel, through which anybody could use the secret: end the tunnel, or name other policies", b.Sandbox),
				FieldError{"body.grants", "apply to a sandbox with a public tunnel"})
		}
	}
	return nil
}

// notOpenWithGrant refuses a policy for a sandbox with a public tunnel under which it may use a secret.
func notOpenWithGrant(ctx context.Context, tx *store.Tx, b store.Sandbox) error {
	open, err := tx.PublicSandboxes(ctx, tx.Org(), tx.Now())
	if err != nil || !slices.ContainsFunc(open, func(p store.SandboxPolicy) bool { return p.Sandbox == b.ID }) {
		return err
	}
	err = noGrantApplies(ctx, tx, b)
	if p, ok := errors.AsType[*Problem](err); ok {
		p.Detail = "the sandbox has a public tunnel, and under this policy it may use a secret: anybody could use it through the tunnel"
		p.Errors = []FieldError{{"body.policy", "grants a secret to a sandbox with a public tunnel"}}
	}
	return err
}

// applies reports whether some grant is for sandboxes under that policy.
func applies(grants []secrets.Grant, policy string) bool {
	return slices.ContainsFunc(grants, func(g secrets.Grant) bool { return len(g.Policies) == 0 || slices.Contains(g.Policies, policy) })
}
