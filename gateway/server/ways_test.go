package server

import (
	"testing"

	"portreeve.dev/egress/dial"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/role"
)

// TestOnlyNamedOrgsKeepToTheProxy: an org goes directly only where others are named, and not it.
func TestOnlyNamedOrgsKeepToTheProxy(t *testing.T) {
	t.Parallel()
	org := store.Org{ID: "org_1", Slug: "acme"}
	for _, tt := range []struct {
		name    string
		proxied []string
		want    dial.Way
	}{
		{"nobody is named", nil, dial.Way{}},
		{"by its short name", []string{"other", "acme"}, dial.Way{}},
		{"by its id", []string{"org_1"}, dial.Way{}},
		{"another", []string{"acme2"}, dial.Way{Direct: true}},
	} {
		c := &control{setup: role.ControlStart{Proxied: tt.proxied}}
		if got := c.way(org); got != tt.want {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}
