package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/secrets"
)

// Behind a public tunnel of a sandbox that may use a secret, anybody could have the application use it for them. Neither may
// come to the other, whichever was first, unless the org's ingress policy says so.

// grantedTo names one of the secrets of which a grant applies to sandboxes under that policy; "" where none does.
func grantedTo(all []store.Secret, policy string) string {
	for _, s := range all {
		if applies(s.Grants, policy) {
			return s.Name
		}
	}
	return ""
}

// publicWithGrants reports whether the org's ingress policy lets both come together.
func publicWithGrants(ctx context.Context, tx *store.Tx) (bool, error) {
	p, err := tx.IngressPolicy(ctx, tx.Org())
	return p.PublicWithGrants, err
}

// notOpenToAll refuses grants that apply to a sandbox with a public tunnel.
func notOpenToAll(ctx context.Context, tx *store.Tx, grants []secrets.Grant) error {
	if may, err := publicWithGrants(ctx, tx); err != nil || may {
		return err
	}
	open, err := tx.PublicSandboxes(ctx, tx.Org(), tx.Earliest())
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
	if may, err := publicWithGrants(ctx, tx); err != nil || may {
		return err
	}
	open, err := tx.PublicSandboxes(ctx, tx.Org(), tx.Earliest())
	if err != nil || !slices.ContainsFunc(open, func(p store.SandboxPolicy) bool { return p.Sandbox == b.ID }) {
		return err
	}
	all, err := tx.Secrets(ctx, tx.Org())
	if err != nil || grantedTo(all, b.Policy) == "" {
		return err
	}
	return problem(http.StatusConflict, "public_with_grant", "the sandbox has a public tunnel, and under this policy it may use a secret: anybody could use it through the tunnel",
		FieldError{"body.policy", "grants a secret to a sandbox with a public tunnel"})
}

// applies reports whether some grant is for sandboxes under that policy.
func applies(grants []secrets.Grant, policy string) bool {
	return slices.ContainsFunc(grants, func(g secrets.Grant) bool { return len(g.Policies) == 0 || slices.Contains(g.Policies, policy) })
}
