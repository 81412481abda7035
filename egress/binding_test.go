package egress

import (
	"net/netip"
	"testing"
)

func bound(sandbox string, incarnation, generation uint64) Binding {
	return Binding{Sandbox: sandbox, Org: "org_1", Incarnation: incarnation, Generation: generation, Addr: netip.MustParseAddr("10.200.0.1")}
}

func TestUnknownAddressHasNoBinding(t *testing.T) {
	table := NewBindings(nil)
	here := bound("sbx_1", 1, 1)
	if b, ok := table.Lookup(here.Addr); ok || b != (Binding{}) {
		t.Fatalf("an empty table has %+v", b)
	}
	if err := table.Bind(here); err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]bool{"10.200.0.1": true, "::ffff:10.200.0.1": true, "10.200.0.0": false, "10.200.0.2": false, "::1": false} {
		if b, ok := table.Lookup(netip.MustParseAddr(addr)); ok != want || ok && b != here {
			t.Errorf("%s is %+v, %v", addr, b, ok)
		}
	}
	if _, ok := table.Lookup(netip.Addr{}); ok {
		t.Error("no address is somebody's")
	}

	// One address, one incarnation of one sandbox; a later generation of it is the same one.
	for name, other := range map[string]Binding{
		"another sandbox":     bound("sbx_2", 1, 1),
		"another incarnation": bound("sbx_1", 2, 2),
		"no sandbox":          bound("", 1, 1),
		"no org":              {Sandbox: "sbx_3", Addr: netip.MustParseAddr("10.200.0.3")},
		"an IPv6 address":     {Sandbox: "sbx_3", Org: "org_1", Addr: netip.MustParseAddr("fd00::1")},
		"no address":          {Sandbox: "sbx_3", Org: "org_1"},
	} {
		if err := table.Bind(other); err == nil {
			t.Errorf("%s was bound", name)
		}
	}
	if b, _ := table.Lookup(here.Addr); b != here {
		t.Errorf("it is %+v now", b)
	}
	later := bound("sbx_1", 1, 2)
	if err := table.Bind(later); err != nil {
		t.Fatal(err)
	}
	if all := table.All(); len(all) != 1 || all[0] != later {
		t.Errorf("the table is %+v", all)
	}
	if table.Unbind("sbx_2", here.Addr) {
		t.Error("another sandbox took its address away")
	}
	if !table.Unbind("sbx_1", here.Addr) || table.Unbind("sbx_1", here.Addr) {
		t.Error("an address is not taken away once")
	}
	if _, ok := table.Lookup(here.Addr); ok {
		t.Error("the address is still somebody's")
	}
	if err := table.Bind(bound("sbx_2", 1, 1)); err != nil {
		t.Errorf("the next one: %v", err)
	}
}
