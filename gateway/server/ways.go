package server

import (
	"context"
	"maps"
	"slices"

	"portreeve.dev/egress/dial"
	"portreeve.dev/gateway/internal/store"
)

// way is how an org's connections leave. Without the company's proxy go only those that the configuration names.
func (c *control) way(o store.Org) dial.Way {
	named := func(name string) bool { return name == o.ID || name == o.Slug }
	w := dial.Way{Direct: slices.ContainsFunc(c.setup.Direct, named)}
	if w.Sources = c.setup.Sources[o.ID]; w.Sources == nil {
		w.Sources = c.setup.Sources[o.Slug]
	}
	return w
}

// ways are those of all orgs, by id.
func (c *control) ways(ctx context.Context) (map[string]dial.Way, error) {
	orgs, err := c.store.Orgs(ctx)
	if err != nil {
		return nil, err
	}
	c.unknown.Do(func() { c.warnOfUnknown(orgs) })
	ways := make(map[string]dial.Way, len(orgs))
	for _, o := range orgs {
		ways[o.ID] = c.way(o)
	}
	return ways, nil
}

// warnOfUnknown says which orgs the configuration gives a way to that are not there: a slip of the pen would give it to nobody.
func (c *control) warnOfUnknown(orgs []store.Org) {
	for _, name := range slices.Concat(c.setup.Direct, slices.Sorted(maps.Keys(c.setup.Sources))) {
		if !slices.ContainsFunc(orgs, func(o store.Org) bool { return name == o.ID || name == o.Slug }) {
			c.log.Warn("the configuration names an org that is not there", "org", name)
		}
	}
}
