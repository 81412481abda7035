package api_test

import (
	"context"
	"testing"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/api/apitest"
	"portreeve.dev/gateway/internal/store"
)

// TestFreshDecisionIsFound: whoever was just refused has the id while the decision is still on its way.
func TestFreshDecisionIsFound(t *testing.T) {
	id, arrive := store.NewID("dec"), func() {}
	w := apitest.New(t, func(c *api.Config) { c.Settle = func(context.Context) { arrive() } })
	c := w.Org("one")
	box := c.Sandbox()
	c.Do("GET", "/decisions/"+id, nil).Refused(404, "decision_not_found")
	arrive = func() {
		record(t, w, c.Org, box, "good.test", func(d *decisions.Decision) { d.ID = id })
		arrive = func() {}
	}
	if a := c.Do("GET", "/decisions/"+id, nil).Want(200); a.String("decision.host") != "good.test" {
		t.Errorf("%s", a.Body)
	}
}
