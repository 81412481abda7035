package netns

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

func TestNothingPassesBeforeUp(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	p := newPair(t, e, "10.200.3.5")
	listenIn(t, e.Fd(), "0.0.0.0:8080")
	// That nothing connects would hide a link that the kernel has yet to bring up: what Pair asked of it is what counts.
	if l, err := e.nl.LinkByName(p.Interface); err != nil || l.Attrs().Flags&net.FlagUp != 0 {
		t.Errorf("the edge's end is up before Up: %v", err)
	}
	if _, err := dial(t, p.Name, "10.200.3.4:8080", 200*time.Millisecond); err == nil {
		t.Error("connected before Up")
	}
	if err := p.Up(context.Background()); err != nil {
		t.Fatal(err)
	}
	c, err := dial(t, p.Name, "10.200.3.4:8080", 5*time.Second)
	if err != nil {
		t.Fatalf("after Up: %v", err)
	}
	if got := c.LocalAddr().(*net.TCPAddr).AddrPort().Addr(); got != p.Sandbox {
		t.Errorf("came from %v", got)
	}
}

func TestReaddressAfterTheRuntimeTookTheAddress(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	p := newPair(t, e, "10.200.3.5")
	if err := p.Up(context.Background()); err != nil {
		t.Fatal(err)
	}
	h := handle(t, p.Name)
	l, err := h.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if l.Attrs().MTU != 1500 {
		t.Errorf("MTU %d", l.Attrs().MTU)
	}
	for range 2 { // the second time nothing is left to delete
		_ = h.AddrDel(l, half(p.Sandbox))
		if err := p.Readdress(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Readdress(context.Background()); err != nil {
		t.Fatalf("with everything in place: %v", err)
	}
	addrs, err := h.AddrList(l, netlink.FAMILY_V4)
	if err != nil || len(addrs) != 1 || addrs[0].IPNet.String() != "10.200.3.5/31" {
		t.Errorf("addresses %v, %v", addrs, err)
	}
	routes, err := h.RouteList(l, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, r := range routes {
		found = found || r.Gw.String() == "10.200.3.4"
	}
	if !found {
		t.Errorf("no default route: %v", routes)
	}
}

func TestAdoptFindsThePairAgain(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	newPair(t, e, "10.200.9.1")
	p := newPair(t, e, "10.200.9.3")
	again, _, err := OpenEdge(e.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	got, err := again.Adopt(p.Name)
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != p.Name || got.Interface != p.Interface || got.Gateway != p.Gateway || got.Sandbox != p.Sandbox {
		t.Errorf("adopted %+v, was %+v", got, p)
	}
	names, err := List(p.Name)
	if err != nil || len(names) != 1 || names[0] != p.Name {
		t.Errorf("listed %v, %v", names, err)
	}
	if err := got.Remove(); err != nil {
		t.Error(err)
	}
	if err := got.Remove(); err != nil {
		t.Errorf("removed twice: %v", err)
	}
	if _, err := again.Adopt(p.Name); err == nil {
		t.Error("adopted what was removed")
	}
	if _, err := e.nl.LinkByName(p.Interface); err == nil {
		t.Error("the link is still there")
	}
}

func TestPairThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	e, _, err := OpenEdge(unique("edge"))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Remove()
	name := unique("sbx")
	if _, err := e.Pair(context.Background(), name, netip.MustParseAddr("10.200.0.2")); err == nil {
		t.Error("an even address was taken")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := e.Pair(ctx, name, netip.MustParseAddr("10.200.0.1")); err == nil {
		t.Error("a cancelled call went on")
	}
	first, err := e.Pair(context.Background(), unique("sbx"), netip.MustParseAddr("10.200.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Pair(context.Background(), first.Name, netip.MustParseAddr("10.200.0.3")); err == nil {
		t.Error("one name for two pairs")
	}
	if _, err := e.Adopt(first.Name); err != nil {
		t.Errorf("the second took the first away: %v", err)
	}
	if err := first.Remove(); err != nil {
		t.Error(err)
	}
	e.Close()
	if err := first.Remove(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("worked after Close, in whose namespace? %v", err)
	}
	if _, err := e.Pair(context.Background(), name, netip.MustParseAddr("10.200.0.5")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("made after Close: %v", err)
	}
	if names, err := List(name); err != nil || len(names) != 0 {
		t.Errorf("left %v, %v", names, err)
	}
}

func TestInterfaceNamesAreShortAndNew(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		n := interfaceName()
		if len(n) > 15 || seen[n] {
			t.Fatalf("%q: too long or used before", n)
		}
		seen[n] = true
	}
}

func TestIPSeesOurNamespaces(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	out, err := exec.Command("ip", "netns", "list").CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte(e.Name)) {
		t.Errorf("%v\n%s", err, out)
	}
}

// BenchmarkPair watches what a sandbox's network adds to its creation (measured design figure: 2.8 ms).
func BenchmarkPair(b *testing.B) {
	e, _, err := OpenEdge(unique("edge"))
	if err != nil {
		b.Fatal(err)
	}
	defer e.Remove()
	name := unique("sbx")
	for b.Loop() {
		p, err := e.Pair(context.Background(), name, netip.MustParseAddr("10.200.0.1"))
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Up(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := p.Remove(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
