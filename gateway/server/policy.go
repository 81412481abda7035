package server

import (
	"context"
	"encoding/json"

	"portreeve.dev/gateway/canary"
	"portreeve.dev/gateway/feed"
)

// feeds are the two publishers as the API and the sandboxes know them: whatever changes may change both, and what must have
// arrived before anything goes on is the policy.
type feeds struct{ policies, routes *feed.Publisher }

func (f feeds) Publish(context.Context, int64) {
	f.policies.Publish()
	f.routes.Publish()
}

func (f feeds) WaitApplied(ctx context.Context, revision int64) error {
	return f.policies.WaitApplied(ctx, uint64(revision))
}

// state is what edges must know, as committed.
func (c *control) state(ctx context.Context) (any, uint64, error) {
	now, err := c.store.FeedState(ctx)
	if err != nil {
		return nil, 0, err
	}
	ways, err := c.ways(ctx)
	if err != nil {
		return nil, 0, err
	}
	s := feed.State{Revision: uint64(now.Revision), Orgs: []feed.Org{}, Sandboxes: []feed.Sandbox{}}
	for _, o := range now.Orgs {
		org := feed.Org{ID: o.Org, Ceiling: feed.Policy{Version: o.Ceiling.Version, Document: o.Ceiling.Document}}
		org.Direct, org.Sources = ways[o.Org].Direct, ways[o.Org].Sources
		org.Records = c.records(o.Org, o.Decisions)
		for _, p := range o.Named {
			org.Policies = append(org.Policies, feed.Policy{Name: p.Name, Version: p.Version, Document: p.Document})
		}
		org.Secrets = c.openSecrets(o.Secrets)
		org.DoorKeys = c.openDoorKeys(o.DoorKeys)
		org.Authority = o.Authority
		if org.Limits, err = c.limitsOf(ctx, o.Org, o.Limits); err != nil {
			return nil, 0, err
		}
		var boxes []feed.Sandbox
		for _, b := range o.Sandboxes {
			boxes = append(boxes, feed.Sandbox{ID: b.Sandbox, Org: o.Org, Policy: b.Policy, Own: b.Own, OwnVersion: b.Version, Attached: attached(b)})
		}
		if org, boxes, err = c.within(org, boxes); err != nil {
			return nil, 0, err
		}
		s.Orgs, s.Sandboxes = append(s.Orgs, org), append(s.Sandboxes, boxes...)
	}
	if c.canary != nil {
		// A ceiling without a document denies everything.
		s.Orgs = append(s.Orgs, feed.Org{ID: canary.Org})
		s.Sandboxes = append(s.Sandboxes, feed.Sandbox{ID: canary.Sandbox, Org: canary.Org})
	}
	s.Exempt, err = c.exemptions(ctx, now.Exempt)
	return s, s.Revision, err
}

// orgMost is how much of the state one org may be, in bytes.
const orgMost = 16 << 20

// within passes an org on if it keeps to its share of the state. Of one that doesn't nothing goes but that all is denied: the
// whole state would else be too large for a link, and every org without a policy.
func (c *control) within(org feed.Org, boxes []feed.Sandbox) (feed.Org, []feed.Sandbox, error) {
	size := 0
	for _, part := range []any{org, boxes} {
		raw, err := json.Marshal(part)
		if err != nil {
			return org, nil, err
		}
		size += len(raw)
	}
	if size <= orgMost {
		return org, boxes, nil
	}
	c.log.Error("an org is more than the edges take; all is denied to it", "org", org.ID, "bytes", size)
	denied := make([]feed.Sandbox, len(boxes))
	for i, b := range boxes {
		denied[i] = feed.Sandbox{ID: b.ID, Org: b.Org, Attached: b.Attached}
	}
	return feed.Org{ID: org.ID, Limits: org.Limits}, denied, nil
}
