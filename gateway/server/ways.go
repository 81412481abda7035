package server

import (
	"context"
	"slices"

	"portreeve.dev/egress/dial"
	"portreeve.dev/gateway/internal/store"
)

// way is how an org's connections leave. Only where the configuration names the orgs that go through the company's proxy, others go
// without it.
func (c *control) way(o store.Org) dial.Way {
	named := func(name string) bool { return name == o.ID || name == o.Slug }
	return dial.Way{Direct: len(c.setup.Proxied) > 0 && !slices.ContainsFunc(c.setup.Proxied, named)}
}

// ways are those of all orgs, by id.
func (c *control) ways(ctx context.Context) (map[string]dial.Way, error) {
	orgs, err := c.store.Orgs(ctx)
	if err != nil {
		return nil, err
	}
	ways := make(map[string]dial.Way, len(orgs))
	for _, o := range orgs {
		ways[o.ID] = c.way(o)
	}
	return ways, nil
}
