package api

import (
	"context"
	"fmt"
	"time"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies"
	"portreeve.dev/secrets"
)

// notPassed refuses a grant for a host that some policy of the org lets through unopened: there, nobody could put the secret
// in or take the sandbox's own credentials out.
func notPassed(ctx context.Context, tx *store.Tx, location string, g secrets.Grant, now time.Time) error {
	ceiling, err := tx.Policy(ctx, tx.Org(), store.Ceiling)
	if err != nil {
		return err
	}
	named, err := tx.Policies(ctx, tx.Org())
	if err != nil {
		return err
	}
	for _, p := range append([]store.Policy{{}}, named...) { // the first is the ceiling alone
		rule, passed, err := passes(ceiling, p, g, now)
		if err != nil {
			return err
		}
		if passed {
			return invalid(location, fmt.Sprintf("%s is let through unopened by rule %q; set tls: inspect there first", g.Host, rule))
		}
	}
	return nil
}

// noneGranted refuses a document under which a host that has a grant would be let through unopened.
func noneGranted(ctx context.Context, tx *store.Tx, changed store.Policy, now time.Time) error {
	all, err := tx.Secrets(ctx, tx.Org())
	if err != nil || len(all) == 0 {
		return err
	}
	for _, s := range all {
		for _, g := range s.Grants {
			if changed.Name == store.Ceiling {
				err = notPassed(ctx, tx, "body.rules", g, now)
			} else {
				err = notPassedUnder(ctx, tx, changed, g, now)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func notPassedUnder(ctx context.Context, tx *store.Tx, p store.Policy, g secrets.Grant, now time.Time) error {
	ceiling, err := tx.Policy(ctx, tx.Org(), store.Ceiling)
	if err != nil {
		return err
	}
	rule, passed, err := passes(ceiling, p, g, now)
	if err == nil && passed {
		err = invalid("body.rules", fmt.Sprintf("rule %q lets %s through unopened, and a secret is granted there: set tls: inspect", rule, g.Host))
	}
	return err
}

// passes reports whether the two documents together allow the grant's host and port without opening TLS, and by which rule.
func passes(ceiling, named store.Policy, g secrets.Grant, now time.Time) (rule string, passed bool, err error) {
	var layers []policies.Layer
	for _, p := range []store.Policy{ceiling, named} {
		if p.Document == nil {
			continue
		}
		d, err := policies.Parse(p.Document)
		if err != nil {
			return "", false, fmt.Errorf("reading policy %q: %w", p.Name, err)
		}
		layers = append(layers, policies.Layer{Name: p.Name, Version: p.Version, Document: d})
	}
	snapshot, err := policies.Compile(layers...)
	if err != nil {
		return "", false, err
	}
	v := snapshot.Evaluate(&policies.Request{Stage: policies.StageConnect, Host: g.Host, Port: g.Port, Protocol: policies.HTTPS, Now: now})
	return v.Rule, v.Allowed() && v.TLS == policies.Pass, nil
}
