package node

import (
	"net/netip"
	"strings"
	"testing"

	"portreeve.dev/gateway/role"
)

func TestNamesOfTheEdgeAreBounded(t *testing.T) {
	w := newWorld(t)
	edge := w.meet(t, "edge", (&edgeSide{hello: role.EdgeHello{Serving: true}}).mux())
	w.meet(t, "inward", (&inwardSide{}).mux())
	control := w.meet(t, "control", nil)
	if err := call(control, role.NodeCreate, spec("one"), nil); err != nil {
		t.Fatal(err)
	}
	good := role.Name{Sandbox: "sbx_one", Incarnation: 1, Host: "a.test", Addr: netip.MustParseAddr("198.18.0.16")}
	with := func(change func(*role.Name)) role.Name {
		n := good
		change(&n)
		return n
	}
	// The sibling's own call, so that there is an answer to look at; edge itself only notifies.
	tell := func(n role.Name) error { return call(edge, role.EdgeName, n, nil) }
	for when, n := range map[string]role.Name{
		"of a sandbox that is not here":  with(func(n *role.Name) { n.Sandbox = "sbx_two" }),
		"of another incarnation":         with(func(n *role.Name) { n.Incarnation = 2 }),
		"just below the synthetic range": with(func(n *role.Name) { n.Addr = netip.MustParseAddr("198.17.255.255") }),
		"just above it":                  with(func(n *role.Name) { n.Addr = netip.MustParseAddr("198.20.0.0") }),
		"at no address":                  with(func(n *role.Name) { n.Addr = netip.Addr{} }),
		"that is too long":               with(func(n *role.Name) { n.Host = strings.Repeat("a", 254) }),
	} {
		if err := tell(n); err == nil {
			t.Errorf("a name %s is kept", when)
		}
	}
	if kept := w.names.list(); len(kept) != 0 {
		t.Fatalf("kept %v", kept)
	}
	for range 2 { // the same may come again
		if err := tell(good); err != nil {
			t.Fatal(err)
		}
	}
	if err := tell(with(func(n *role.Name) { n.Host = "b.test" })); err == nil {
		t.Error("an address stands for two names")
	}
	if err := tell(with(func(n *role.Name) { n.Addr = n.Addr.Next() })); err == nil {
		t.Error("a name has two addresses")
	}
	for i, host := range []string{"b.test", "c.test", "d.test", "e.test"} {
		addr := good.Addr
		for range i + 1 {
			addr = addr.Next()
		}
		err := tell(role.Name{Sandbox: "sbx_one", Incarnation: 1, Host: host, Addr: addr})
		if full := i == 3; (err != nil) != full {
			t.Errorf("name %d of 4: %v", i+2, err)
		}
	}
	if kept := w.names.list(); len(kept) != 4 {
		t.Errorf("kept %v", kept)
	}
}

func TestNamesOfANewIncarnationBeginAnew(t *testing.T) {
	n := newNames(4)
	old := role.Name{Sandbox: "sbx_one", Incarnation: 1, Host: "a.test", Addr: netip.MustParseAddr("198.18.0.16")}
	now := role.Name{Sandbox: "sbx_one", Incarnation: 2, Host: "b.test", Addr: old.Addr}
	if err := n.add(old); err != nil {
		t.Fatal(err)
	}
	if err := n.add(now); err != nil {
		t.Errorf("the same address, in another incarnation: %v", err)
	}
	if err := n.add(old); err == nil {
		t.Error("a name of the old incarnation came back")
	}
	if all := n.list(); len(all) != 1 || all[0] != now {
		t.Errorf("kept %v", all)
	}
}
