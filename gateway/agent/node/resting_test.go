package node

import (
	"errors"
	"net/netip"
	"path/filepath"
	"testing"

	"portreeve.dev/nodes/netns"
)

// TestQuarantineOutlivesTheNode: of two pairs the one that was given back before the node died is not given out after it.
func TestQuarantineOutlivesTheNode(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resting.json")
	open := func() *netns.Addresses {
		addresses, err := netns.NewAddresses(netns.AddressesConfig{Prefix: netip.MustParsePrefix("10.200.0.0/30")})
		if err != nil {
			t.Fatal(err)
		}
		if err := (resting{file, addresses}).load(); err != nil {
			t.Fatal(err)
		}
		return addresses
	}
	first := open()
	addr, err := first.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(first.Release(addr), (resting{file, first}).save()); err != nil {
		t.Fatal(err)
	}
	next := open()
	for {
		other, err := next.Reserve()
		if errors.Is(err, netns.ErrNoAddress) {
			return
		}
		if err != nil || other == addr {
			t.Fatalf("given out: %v, %v; in quarantine is %v", other, err, addr)
		}
	}
}
