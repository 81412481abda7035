package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies"
	"portreeve.dev/secrets"
)

// notPassed refuses grants for hosts that some policy of the org lets through unopened: there, nobody could put the secret
// in or take the sandbox's own credentials out.
func notPassed(ctx context.Context, tx *store.Tx, grants []secrets.Grant, now time.Time) error {
	all, err := effective(ctx, tx, store.Ceiling)
	if err != nil {
		return err
	}
	for _, layers := range all {
		for i, g := range grants {
			if rule, layer, yes := passes(layers, g, now); yes {
				return invalid(fmt.Sprintf("body.grants[%d].host", i), fmt.Sprintf("rule %q of %s lets it through unopened; set tls: inspect there first", rule, layer))
			}
		}
	}
	return nil
}

// noneGranted refuses the document that was just put in the place of name, if under it a host that has a grant is let
// through unopened.
func noneGranted(ctx context.Context, tx *store.Tx, name string, now time.Time) error {
	kept, err := tx.Secrets(ctx, tx.Org())
	if err != nil {
		return err
	}
	var grants []secrets.Grant
	for _, s := range kept {
		grants = append(grants, s.Grants...)
	}
	if len(grants) == 0 {
		return nil
	}
	all, err := effective(ctx, tx, name)
	if err != nil {
		return err
	}
	for _, layers := range all {
		for _, g := range grants {
			if rule, layer, yes := passes(layers, g, now); yes {
				return problem(http.StatusUnprocessableEntity, "granted_host", fmt.Sprintf("a secret is granted on %s port %d, and rule %q of %s lets that through unopened: set tls: inspect there",
					g.Host, g.Port, rule, layer), FieldError{"body.rules", "let a host with a grant through unopened"})
			}
		}
	}
	return nil
}

// effective compiles what holds under a policy together with the ceiling; for the ceiling, under it alone and under each policy.
// Each document is compiled once and by itself, however many grants and policies there are: the store's writers wait meanwhile.
func effective(ctx context.Context, tx *store.Tx, name string) ([][]*policies.Snapshot, error) {
	alone := func(name string) (*policies.Snapshot, error) {
		p, err := tx.Policy(ctx, tx.Org(), name)
		if err != nil {
			return nil, err
		}
		return compileAll([]store.Policy{p})
	}
	ceiling, err := alone(store.Ceiling)
	if err != nil {
		return nil, err
	}
	if name != store.Ceiling {
		named, err := alone(name)
		return [][]*policies.Snapshot{{ceiling, named}}, err
	}
	all := [][]*policies.Snapshot{{ceiling}}
	named, err := tx.Policies(ctx, tx.Org())
	if err != nil {
		return nil, err
	}
	for _, p := range named {
		s, err := compileAll([]store.Policy{p})
		if err != nil {
			return nil, err
		}
		all = append(all, []*policies.Snapshot{ceiling, s})
	}
	return all, nil
}

// passes reports whether all the layers let the grant's host and port through without opening TLS (one that opens it opens it
// for all), and the rule of the last of them.
func passes(layers []*policies.Snapshot, g secrets.Grant, now time.Time) (rule, layer string, yes bool) {
	for _, s := range layers {
		v := s.Evaluate(&policies.Request{Stage: policies.StageConnect, Host: g.Host, Port: g.Port, Protocol: policies.HTTPS, Now: now})
		if yes = v.Allowed() && v.TLS == policies.Pass; !yes {
			return "", "", false
		}
		rule, layer = v.Rule, v.Layer
	}
	return rule, layer, yes
}
