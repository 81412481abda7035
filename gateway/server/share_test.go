package server

import (
	"slices"
	"strings"
	"testing"

	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies"
	"portreeve.dev/secrets"
)

// TestOrgKeepsToItsShareOfTheState: an org that is too much for the edges is denied all, and the others have what they had.
func TestOrgKeepsToItsShareOfTheState(t *testing.T) {
	c, w := newControl(t)
	one, two := w.Org("one"), w.Org("two")
	for _, by := range []store.By{one, two} {
		for _, name := range []string{store.Ceiling, "web"} {
			if _, _, err := w.Policy(by, name, `{"rules":[]}`, 0); err != nil {
				t.Fatal(err)
			}
		}
		w.Sandbox(by, "web")
	}
	state, _, err := c.state(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := state.(feed.State)
	for i, o := range s.Orgs { // the store keeps an org's parts small enough; nothing here counts on that
		if o.ID == one.Principal.Org {
			o.Secrets = []feed.Secret{{ID: "sec_much", Grants: slices.Repeat([]secrets.Grant{{Host: "a.test", Path: "/" + strings.Repeat("x", 2000)}}, 9000)}}
		}
		box := slices.IndexFunc(s.Sandboxes, func(b feed.Sandbox) bool { return b.Org == o.ID })
		org, boxes, err := c.within(o, s.Sandboxes[box:box+1])
		if err != nil {
			t.Fatal(err)
		}
		s.Orgs[i], s.Sandboxes[box] = org, boxes[0]
	}
	for _, o := range s.Orgs {
		if all := o.Ceiling.Document != nil && len(o.Policies) == 1; all != (o.ID == two.Principal.Org) {
			t.Errorf("org %s: ceiling %s, %d policies, %d secrets", o.ID, o.Ceiling.Document, len(o.Policies), len(o.Secrets))
		}
	}
	if len(s.Orgs) != 2 || len(s.Sandboxes) != 2 {
		t.Fatalf("%d orgs, %d sandboxes", len(s.Orgs), len(s.Sandboxes))
	}
	// And an edge can use it.
	if err := feed.NewHolder(policies.FloorConfig{}, nil, nil).Apply(s); err != nil {
		t.Error(err)
	}
}
