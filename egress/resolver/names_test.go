package resolver_test

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	"pgregory.net/rapid"

	"portreeve.dev/egress/resolver"
)

// A failure is reproduced by the seed that rapid prints; files of it would be left behind by each proof.
func init() { flag.Set("rapid.nofailfile", "true") }

func newNames(t testing.TB, cfg resolver.NamesConfig) *resolver.Names {
	t.Helper()
	n, err := resolver.NewNames(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAddressNeverReused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, err := resolver.NewNames(resolver.NamesConfig{Range: netip.MustParsePrefix("198.18.0.0/24"), PerSandbox: 300})
		if err != nil {
			t.Fatal(err)
		}
		names, addrs := map[string]netip.Addr{}, map[netip.Addr]string{}
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, 400), 0, 600).Draw(t, "names") {
			name := fmt.Sprintf("n%d.test", i)
			a, err := n.Address("sbx_a", 1, name)
			if err != nil {
				if _, known := names[name]; known || len(names) != 256-16-1 || !errors.Is(err, resolver.ErrNamesFull) {
					t.Fatalf("with %d names: %v", len(names), err)
				}
				continue
			}
			if old, ok := names[name]; ok && old != a {
				t.Fatalf("%s moved from %v to %v", name, old, a)
			}
			if old, ok := addrs[a]; ok && old != name {
				t.Fatalf("%v stood for %s, now for %s", a, old, name)
			}
			names[name], addrs[a] = a, name
			if !n.Contains(a) || a == n.Self() {
				t.Fatalf("%v was given out", a)
			}
		}
		for a, name := range addrs {
			if got, ok := n.Name("sbx_a", 1, a); !ok || got != name {
				t.Fatalf("%v stands for %q, want %q", a, got, name)
			}
		}
	})
}

func TestFullTableEvictsNothing(t *testing.T) {
	n := newNames(t, resolver.NamesConfig{PerSandbox: 2})
	a, _ := n.Address("sbx_a", 1, "a.test")
	n.Address("sbx_a", 1, "b.test")
	if _, err := n.Address("sbx_a", 1, "c.test"); !errors.Is(err, resolver.ErrNamesFull) {
		t.Errorf("a third of two: %v", err)
	}
	if name, _ := n.Name("sbx_a", 1, a); name != "a.test" {
		t.Errorf("the first is now %q", name)
	}
	if _, err := n.Address("sbx_a", 2, "c.test"); err != nil {
		t.Errorf("the next incarnation: %v", err)
	}
	if _, err := n.Address("sbx_b", 1, "c.test"); err != nil {
		t.Errorf("the neighbour: %v", err)
	}
	if a.String() != "198.18.0.16" || n.Self().String() != "198.18.0.1" {
		t.Errorf("first address %v, own %v", a, n.Self())
	}
	if name, ok := n.Name("sbx_a", 1, netip.MustParseAddr("198.18.0.99")); ok {
		t.Errorf("an address that was never given stands for %q", name)
	}
}

func TestEntryIsHandedOutFirst(t *testing.T) {
	var handed []resolver.Entry
	var n *resolver.Names
	var away error
	w := newWorld(t, resolver.Config{}, resolver.NamesConfig{OnAdd: func(e resolver.Entry) error {
		if away != nil {
			return away
		}
		handed = append(handed, e)
		return nil
	}})
	n = w.names
	r := new(dns.Msg)
	if err := r.Unpack(w.server.MessageForTest(boxA, pack(t, question("good.test.", dns.TypeA)), true)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(n.Export(), handed, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || len(handed) != 1 || handed[0].Addr != address(r) {
		t.Errorf("answered %v, handed out %v\n%s", address(r), handed, diff)
	}
	w.server.MessageForTest(boxA, pack(t, question("good.test.", dns.TypeA)), true)
	w.server.MessageForTest(boxA, pack(t, question("evil.test.", dns.TypeA)), true)
	if len(handed) != 1 {
		t.Errorf("handed out %v", handed)
	}
	// Nobody to take the next one: there is no address, for the old name there still is.
	away = errors.New("away")
	for name, want := range map[string]int{"fine.test.": dns.RcodeServerFailure, "good.test.": dns.RcodeSuccess} {
		if err := r.Unpack(w.server.MessageForTest(boxA, pack(t, question(name, dns.TypeA)), true)); err != nil || r.Rcode != want {
			t.Errorf("%s with nobody to take entries: %v %v", name, r, err)
		}
	}
	if addr, known := n.Known(boxA.Sandbox, boxA.Incarnation, "fine.test"); known {
		t.Errorf("it has the address %v all the same", addr)
	}
	away = nil
	w.server.MessageForTest(boxA, pack(t, question("fine.test.", dns.TypeA)), true)
	if len(handed) != 2 {
		t.Errorf("handed out %v", handed)
	}
}

func TestImportContinuesTheTable(t *testing.T) {
	old := newNames(t, resolver.NamesConfig{})
	for i := range 20 {
		old.Address("sbx_a", 1, fmt.Sprintf("n%d.test", i))
		old.Address("sbx_b", 4, fmt.Sprintf("m%d.test", i))
	}
	entries := old.Export()
	restarted := newNames(t, resolver.NamesConfig{OnAdd: func(e resolver.Entry) error {
		if e.Name != "fresh.test" {
			t.Errorf("an imported entry was handed out: %v", e)
		}
		return nil
	}})
	for range 2 { // the second time changes nothing
		if err := restarted.Import(entries); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(entries, restarted.Export(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("after import:\n%s", diff)
	}
	fresh, err := restarted.Address("sbx_a", 1, "fresh.test")
	if err != nil {
		t.Fatal(err)
	}
	if name, ok := old.Name("sbx_a", 1, fresh); ok {
		t.Errorf("%v stood for %q before the restart", fresh, name)
	}
}

func TestImportRefusesContradictions(t *testing.T) {
	addr := netip.MustParseAddr
	base := resolver.Entry{Sandbox: "sbx_a", Incarnation: 1, Name: "a.test", Addr: addr("198.18.0.20")}
	with := func(f func(*resolver.Entry)) resolver.Entry {
		e := base
		f(&e)
		return e
	}
	for name, e := range map[string]resolver.Entry{
		"the name at another address":  with(func(e *resolver.Entry) { e.Addr = addr("198.18.0.21") }),
		"the address for another name": with(func(e *resolver.Entry) { e.Name = "b.test" }),
		"outside the range":            with(func(e *resolver.Entry) { e.Name, e.Addr = "b.test", addr("10.0.0.1") }),
		"our own address":              with(func(e *resolver.Entry) { e.Name, e.Addr = "b.test", addr("198.18.0.1") }),
		"our own name":                 with(func(e *resolver.Entry) { e.Name, e.Addr = resolver.Self, addr("198.18.0.22") }),
		"not in normal form":           with(func(e *resolver.Entry) { e.Name, e.Addr = "B.test", addr("198.18.0.22") }),
		"of nobody":                    with(func(e *resolver.Entry) { e.Sandbox = "" }),
	} {
		t.Run(name, func(t *testing.T) {
			n := newNames(t, resolver.NamesConfig{})
			if err := n.Import([]resolver.Entry{base}); err != nil {
				t.Fatal(err)
			}
			before := n.Export()
			fine := resolver.Entry{Sandbox: "sbx_a", Incarnation: 1, Name: "fine.test", Addr: addr("198.18.0.30")}
			if err := n.Import([]resolver.Entry{fine, e}); err == nil {
				t.Error("accepted")
			}
			if diff := cmp.Diff(before, n.Export(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("a refused import changed the table:\n%s", diff)
			}
			if err := n.Import([]resolver.Entry{fine}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRangeIsChecked(t *testing.T) {
	for _, p := range []string{"198.18.0.1/15", "198.18.0.0/25", "fd00::/64"} {
		if _, err := resolver.NewNames(resolver.NamesConfig{Range: netip.MustParsePrefix(p)}); err == nil {
			t.Errorf("%s: accepted", p)
		}
	}
}
