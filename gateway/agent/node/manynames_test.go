package node

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"portreeve.dev/gateway/role"
)

// TestManyNamesDontCutTheEdgeOff: a node that starts anew can take all the names that an edge may hold for some sandboxes that
// asked for as many as they could. An edge that lives is introduced only once: with a link that broke, nothing could be bound any more.
func TestManyNamesDontCutTheEdgeOff(t *testing.T) {
	w := newWorld(t)
	var names []role.Name
	for box := range 4 {
		addr := netip.MustParseAddr("198.18.0.16")
		for i := range 4096 {
			host := fmt.Sprintf("%05d.%s.example.com", i, strings.Repeat("x", 46)) // 64 bytes, as many as there may be
			names = append(names, role.Name{Sandbox: fmt.Sprintf("sbx_01a22f40-bdad-7740-b723-cffec08c658%d", box), Incarnation: 1, Host: host, Addr: addr})
			addr = addr.Next()
		}
	}
	edge := &edgeSide{hello: role.EdgeHello{Serving: true, Names: names}}
	w.meet(t, "edge", edge.mux())
	w.meet(t, "inward", (&inwardSide{}).mux())
	await(t, "the first message to edge", func() bool { return edge.syncCount() > 0 })
	if err := call(w.meet(t, "control", nil), role.NodeCreate, spec("one"), nil); err != nil || !edge.has("sbx_one") {
		t.Errorf("a sandbox after that: %v", err)
	}
}
