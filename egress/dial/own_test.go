package dial

import (
	"net/netip"
	"testing"

	"portreeve.dev/policies"
)

func TestOwnAddressesAreKnown(t *testing.T) {
	for text, want := range map[string]bool{"127.0.0.1": true, "192.0.2.1": false, "203.0.113.1": false} {
		if got := own(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s is our own: %v, want %v", text, got, want)
		}
	}
}

// TestOwnAddressIsRefused: also where an exemption opens the range that it is in.
func TestOwnAddressIsRefused(t *testing.T) {
	floor, err := policies.NewFloor(policies.FloorConfig{Exempt: []policies.Exemption{{CIDR: netip.MustParsePrefix("203.0.113.0/24"), Ports: []uint16{80}, Orgs: []string{policies.EveryOrg}}}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(Config{Servers: []netip.AddrPort{netip.MustParseAddrPort("203.0.113.53:53")}}, floor)
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddr("203.0.113.7")
	if v := d.judge("org", addr, 80); !v.Allowed() {
		t.Fatalf("an exempt address: %+v", v)
	}
	d.own = func(a netip.Addr) bool { return a == addr }
	if v := d.judge("org", addr, 80); v.Allowed() || v.Reason != policies.ReasonFloorHard || v.Layer != policies.FloorLayer {
		t.Errorf("an address of our own: %+v", v)
	}
	if v := d.judge("org", addr.Next(), 80); !v.Allowed() {
		t.Errorf("the address beside it: %+v", v)
	}
}
