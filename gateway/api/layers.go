package api

import (
	"context"
	"errors"
	"fmt"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies"
)

// A question is always asked of some layers: the ceiling, and the policy of a sandbox, one that was named, or the default.
type layers struct {
	ceiling store.Policy
	named   *store.Policy // nil: the ceiling alone
	own     *store.Policy // a sandbox's own list; nil: none
}

// ownName stands for a sandbox's own list among documents; no policy can have it.
const ownName = "\x00own"

func layerName(policy string) string {
	switch policy {
	case store.Ceiling:
		return "ceiling"
	case ownName:
		return "own"
	}
	return "policy:" + policy
}

// layersOf finds the layers that hold for a sandbox or a policy; for neither, those of a sandbox that names no policy.
func (s *Server) layersOf(ctx context.Context, c *caller, sandbox, policy string) (layers, error) {
	var l layers
	switch {
	case sandbox != "" && policy != "":
		return layers{}, invalid("body.policy", "give a sandbox or a policy, not both")
	case sandbox != "":
		b, err := s.Store.Sandbox(ctx, c.org(), sandbox)
		if errors.Is(err, store.ErrNotFound) {
			return layers{}, notFound("sandbox")
		}
		if err != nil {
			return layers{}, err
		}
		policy = b.Policy
		if b.Own != nil {
			l.own = &store.Policy{Name: ownName, Version: b.OwnVersion, Document: b.Own}
		}
	case policy == "ceiling":
		policy = store.Ceiling
	case policy == "":
		settings, err := s.Store.Settings(ctx, c.org())
		if err != nil {
			return layers{}, err
		}
		policy = settings.DefaultPolicy
	}
	var err error
	if l.ceiling, err = s.Store.Policy(ctx, c.org(), store.Ceiling); err != nil || policy == "" {
		return l, err
	}
	named, err := s.Store.Policy(ctx, c.org(), policy)
	if errors.Is(err, store.ErrNotFound) {
		return l, notFound("policy")
	}
	l.named = &named
	return l, err
}

// all returns the documents, the ceiling first.
func (l layers) all() []store.Policy {
	all := []store.Policy{l.ceiling}
	for _, p := range []*store.Policy{l.named, l.own} {
		if p != nil {
			all = append(all, *p)
		}
	}
	return all
}

// through returns the layers from the ceiling to the one of that name: what its tests are run under.
func (l layers) through(name string) layers {
	l.own = nil
	if name == store.Ceiling {
		l.named = nil
	}
	return l
}

// compile builds the snapshot that the edge would judge by.
func (l layers) compile() (*policies.Snapshot, error) { return compileAll(l.all()) }

func compileAll(documents []store.Policy) (*policies.Snapshot, error) {
	var all []policies.Layer
	for _, p := range documents {
		d, err := policies.Parse(p.Document)
		if err != nil {
			return nil, fmt.Errorf("reading %s version %d: %w", layerName(p.Name), p.Version, err)
		}
		all = append(all, policies.Layer{Name: layerName(p.Name), Version: p.Version, Document: d})
	}
	return policies.Compile(all...)
}
