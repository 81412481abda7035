package e2e

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"portreeve.dev/lab"
)

// TestOrgLeavesFromItsOwnAddress, another org from the machine's; and when the address is gone, nothing of the org leaves. The judge is
// the capture.
func TestOrgLeavesFromItsOwnAddress(t *testing.T) {
	t.Parallel()
	l := lab.Start(t, lab.Options{})
	own, state := netip.MustParseAddr("203.0.113.7"), filepath.Join(l.Dir, "kept")
	p := l.StartProduct(t, lab.ProductOptions{Config: small, State: state})
	other, key := registered(t, p)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	config := "  sources: {" + other + ": [" + own.String() + "]}\n" + small
	// Not an address of the machine's yet.
	said, code := refused(t, l, "egress:\n"+config, "--state", filepath.Join(l.Dir, "refused"))
	if code != 1 || !strings.Contains(said, "egress.sources."+other) {
		t.Errorf("an address that is not there: exit %d:\n%s", code, said)
	}
	if err := l.AddGatewayAddr(own); err != nil {
		t.Fatal(err)
	}
	p = l.StartProduct(t, lab.ProductOptions{Config: config, State: state})
	theirs := *p
	theirs.Info.APIKey = key
	ceiling(t, p, allow("good", "good.test"))
	ceiling(t, &theirs, allow("good", "good.test"))
	ours, b := armed(t, &theirs), armed(t, p)
	if err := l.Capture.Forget(); err != nil {
		t.Fatal(err)
	}
	good := []string{"tls", "good.test:443", "good.test", "good.test", "/"}
	openings := func() map[netip.Addr]int {
		t.Helper()
		if err := l.Capture.Sync(); err != nil {
			t.Fatal(err)
		}
		from := map[netip.Addr]int{}
		for _, q := range l.Capture.Seen(func(q lab.Packet) bool { return q.SYN && q.FromGate && q.Dst == l.Addr("good.test") }) {
			from[q.Src]++
		}
		return from
	}
	if open, said := ours.hostile(good...); !open {
		t.Fatal(said)
	}
	if from := openings(); len(from) != 1 || from[own] == 0 {
		t.Errorf("connections of the org came from %v, want %v", from, own)
	}
	// The twin: an org without an address of its own.
	if err := l.Capture.Forget(); err != nil {
		t.Fatal(err)
	}
	if open, said := b.hostile(good...); !open {
		t.Fatal(said)
	}
	if from := openings(); len(from) != 1 || from[own] != 0 {
		t.Errorf("connections of the other org came from %v", from)
	}
	// The address goes away: the org's connections fail, and none leaves from another.
	if err := l.RemoveGatewayAddr(own); err != nil {
		t.Fatal(err)
	}
	if err := l.Capture.Forget(); err != nil {
		t.Fatal(err)
	}
	if open, said := ours.hostile(good...); open {
		t.Errorf("it got through without its address: %s", said)
	}
	ours.decided("says that the address is gone", func(d decision) bool { return d.Host == "good.test" && d.Error == "source_unavailable" })
	if from := openings(); len(from) != 0 {
		t.Errorf("connections came from %v", from)
	}
	if open, said := b.hostile(good...); !open {
		t.Errorf("the other org: %s", said)
	}
}
