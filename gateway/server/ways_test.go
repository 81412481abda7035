package server

import (
	"net/netip"
	"slices"
	"testing"

	"portreeve.dev/egress/dial"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/role"
)

// TestOnlyNamedOrgsGoWithoutTheProxy: an org goes directly only where it is named itself.
func TestOnlyNamedOrgsGoWithoutTheProxy(t *testing.T) {
	t.Parallel()
	one, two := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	org := store.Org{ID: "org_1", Slug: "acme"}
	for _, tt := range []struct {
		name    string
		direct  []string
		sources map[string][]netip.Addr
		want    dial.Way
	}{
		{"nobody is named", nil, nil, dial.Way{}},
		{"by its short name", []string{"other", "acme"}, nil, dial.Way{Direct: true}},
		{"by its id", []string{"org_1"}, nil, dial.Way{Direct: true}},
		{"another", []string{"acme2"}, nil, dial.Way{}},
		{"a source by its short name", nil, map[string][]netip.Addr{"acme": {one}, "other": {two}}, dial.Way{Sources: []netip.Addr{one}}},
		{"a source by its id", nil, map[string][]netip.Addr{"org_1": {two}}, dial.Way{Sources: []netip.Addr{two}}},
		{"a source of another", nil, map[string][]netip.Addr{"other": {two}}, dial.Way{}},
	} {
		c := &control{setup: role.ControlStart{Direct: tt.direct, Sources: tt.sources}}
		if got := c.way(org); got.Direct != tt.want.Direct || !slices.Equal(got.Sources, tt.want.Sources) {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}
