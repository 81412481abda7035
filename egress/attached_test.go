package egress

import (
	"net/netip"
	"testing"
	"time"
)

func TestAttachedEnds(t *testing.T) {
	now := time.Now()
	table := NewBindings(nil)
	table.now = func() time.Time { return now }
	b := Binding{Sandbox: "sbx_a", Org: "org_a", Incarnation: 1}
	if _, ok := table.Attached("sbx_a"); ok {
		t.Error("a sandbox that nobody attached is there")
	}
	if err := table.Attach(b, now.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute - 1)
	if got, ok := table.Current(b); !ok || got != b {
		t.Errorf("before its end: %+v, %v", got, ok)
	}
	now = now.Add(1)
	if _, ok := table.Current(b); ok {
		t.Error("it is there although its end has come")
	}
	if err := table.Attach(b, now.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, ok := table.Attached("sbx_a"); !ok {
		t.Error("its end was moved and it is gone all the same")
	}
	if !table.Detach("sbx_a") || table.Detach("sbx_a") {
		t.Error("it was not detached exactly once")
	}
	if _, ok := table.Attached("sbx_a"); ok {
		t.Error("it is there although it was detached")
	}
}

func TestSandboxIsAttachedOrHasAnAddress(t *testing.T) {
	end := time.Now().Add(time.Hour)
	table := NewBindings(nil)
	own := Binding{Sandbox: "sbx_a", Org: "org_a", Addr: netip.MustParseAddr("10.200.0.1")}
	if err := table.Attach(own, end); err == nil {
		t.Error("a sandbox with an address was attached")
	}
	if err := table.Bind(own); err != nil {
		t.Fatal(err)
	}
	if err := table.Attach(Binding{Sandbox: "sbx_a", Org: "org_a"}, end); err == nil {
		t.Error("one that has an address was attached")
	}
	if err := table.Attach(Binding{Sandbox: "sbx_b", Org: "org_a"}, end); err != nil {
		t.Fatal(err)
	}
	own.Sandbox, own.Addr = "sbx_b", netip.MustParseAddr("10.200.0.3")
	if err := table.Bind(own); err == nil {
		t.Error("an attached one was given an address")
	}
	if _, ok := table.Lookup(netip.Addr{}); ok {
		t.Error("no address belongs to somebody")
	}
	if all := table.AllAttached(); len(all) != 1 || all[0] != "sbx_b" {
		t.Errorf("attached are %v", all)
	}
}
