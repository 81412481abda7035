package kernel

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden listings")

// listing is what nft prints of the namespace, without counters.
func listing(t *testing.T, ns int) string {
	t.Helper()
	var out []byte
	if err := inside(ns, func() (err error) {
		out, err = exec.Command("nft", "-y", "list", "ruleset").CombinedOutput()
		return err
	}); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, w := range wordings {
		out = w.pattern.ReplaceAll(out, []byte(w.ours))
	}
	return string(bytes.TrimSpace(out)) + "\n"
}

// wordings are what differs from one listing to another: counts, and how later releases of nft say the same expression.
var wordings = []struct {
	pattern *regexp.Regexp
	ours    string
}{
	{regexp.MustCompile(`packets \d+ bytes \d+`), "packets 0 bytes 0"},
	{regexp.MustCompile(`@nh,50,14 != 0x0`), "@nh,48,16 & 0x3fff != 0x0"},
	{regexp.MustCompile(`tcp flags & \(fin \| syn \| rst \| ack\) != syn`), "tcp flags != syn / fin,syn,rst,ack"},
	{regexp.MustCompile(`tcp flags & \(fin \| syn \| rst \| ack\) == syn`), "tcp flags syn / fin,syn,rst,ack"},
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
}

func TestListings(t *testing.T) {
	t.Parallel()
	edge, wall := newNamespace(t), newNamespace(t)
	if err := WriteEdgeTable(edge, EdgeOptions{}); err != nil {
		t.Fatal(err)
	}
	golden(t, "edge.nft", listing(t, edge))
	if err := WriteWall(wall, Wall{Table: "portreeve_test", UID: 1900000001, Extra: prefixes("10.200.0.0/16", "10.201.0.0/16", "fd12::/32")}); err != nil {
		t.Fatal(err)
	}
	golden(t, "wall.nft", listing(t, wall))
	for _, remove := range []error{RemoveEdgeTable(edge), RemoveEdgeTable(edge), RemoveWall(wall, "portreeve_test"), RemoveWall(wall, "portreeve_test")} {
		if remove != nil {
			t.Error(remove)
		}
	}
	if got := listing(t, edge) + listing(t, wall); strings.TrimSpace(got) != "" {
		t.Errorf("left behind:\n%s", got)
	}
}

func TestCheckNamesWhatDiffers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, nft, want string }{
		{"untouched", "", ""},
		{"a rule more", "insert rule inet portreeve guard accept", `chain "guard" has 9 rules, want 8`},
		{"a rule less", "flush chain inet portreeve output", `chain "output" has 0 rules, want 5`},
		{"another verdict", "flush chain inet portreeve discard; add rule inet portreeve discard update @dropped { iifname counter }; add rule inet portreeve discard counter accept", `chain "discard" rule 1`},
		{"another rate", "flush chain inet portreeve input; add rule inet portreeve input meta mark 1 accept; add rule inet portreeve input meta mark 3 accept", `chain "input" rule 1`},
		{"another policy", "add chain inet portreeve forward { policy accept; }", `chain "forward"`},
		{"a chain more", "add chain inet portreeve nat { type nat hook prerouting priority -100; }", `chain "nat" is not ours`},
		{"a set more", "add set inet portreeve more { type ipv4_addr; }", "7 sets, want 6"},
		{"a foreign table", "add table ip nat", `table "nat" of family 2 is not ours`},
		{"no table", "delete table inet portreeve", "no such file or directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ns := newNamespace(t)
			if err := WriteEdgeTable(ns, EdgeOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := inside(ns, func() error {
				out, err := exec.Command("nft", tt.nft).CombinedOutput()
				if err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			err := CheckEdgeTable(ns, EdgeOptions{})
			if tt.want == "" && err != nil {
				t.Errorf("unexpected: %v", err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestReplacingKeepsTheBoundSetIfAsked(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	ctx := context.Background()
	if err := WriteEdgeTable(ns, EdgeOptions{KeepBound: true}); err != nil {
		t.Fatalf("with nothing to keep: %v", err)
	}
	var many []Link
	for i := range 2500 {
		many = append(many, Link{fmt.Sprintf("pr%011d", i), netip.AddrFrom4([4]byte{10, 200, byte(i >> 7), byte(i<<1 | 1)})})
	}
	b := NewBound(ns)
	if err := b.AddAll(ctx, many); err != nil {
		t.Fatal(err)
	}
	list := func() []Link {
		t.Helper()
		l, err := b.List()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if got := list(); !slices.Equal(got, many) {
		t.Errorf("listed %d, want %d", len(got), len(many))
	}
	if err := WriteEdgeTable(ns, EdgeOptions{KeepBound: true}); err != nil {
		t.Fatal(err)
	}
	if got := list(); !slices.Equal(got, many) {
		t.Errorf("kept %d, want %d", len(got), len(many))
	}
	for range 2 { // twice: what is gone is no error
		if err := b.Remove(ctx, many[0].Interface, many[0].Addr); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if err := b.Add(ctx, many[1].Interface, many[1].Addr); err != nil {
			t.Error(err)
		}
	}
	if got := list(); !slices.Equal(got, many[1:]) {
		t.Errorf("%d left", len(got))
	}
	if err := WriteEdgeTable(ns, EdgeOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := list(); len(got) != 0 {
		t.Errorf("%d kept unasked", len(got))
	}
}

func TestBoundRefusesWhatIsNoLink(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	if err := WriteEdgeTable(ns, EdgeOptions{}); err != nil {
		t.Fatal(err)
	}
	four := netip.MustParseAddr("10.200.0.1")
	for _, l := range []Link{{"", four}, {"lo", four}, {"sixteen-letters-", four}, {"pr\x00x", four}, {"pr1", netip.Addr{}}, {"pr1", netip.MustParseAddr("fe80::1")}} {
		if err := NewBound(ns).Add(context.Background(), l.Interface, l.Addr); err == nil {
			t.Errorf("bound %+v", l)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := NewBound(ns).Add(ctx, "pr1", four); err == nil {
		t.Error("a cancelled call went on")
	}
}

func TestIntervals(t *testing.T) {
	for _, tt := range []struct {
		name, ranges, want string
	}{
		{"one", "10.0.0.0/8", "0a000000 0b000000-"},
		{"ends with the last address", "224.0.0.0/3", "e0000000"},
		{"touching ones become one", "10.200.0.0/16 10.201.0.0/16", "0ac80000 0aca0000-"},
		{"one inside another", "10.0.0.0/8 10.3.0.0/16 10.0.0.0/9", "0a000000 0b000000-"},
		{"inside the last", "224.0.0.0/3 240.0.0.0/4", "e0000000"},
		{"neighbours with a gap", "10.0.0.0/16 10.2.0.0/16", "0a000000 0a010000- 0a020000 0a030000-"},
		{"a carry", "10.255.0.0/16", "0aff0000 0b000000-"},
		{"a host", "10.0.0.255/32", "0a0000ff 0a000100-"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := spell(intervals(prefixes(strings.Fields(tt.ranges)...))); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// BenchmarkBind watches what binding adds to a sandbox's start.
func BenchmarkBind(b *testing.B) {
	ns := newNamespace(b)
	if err := WriteEdgeTable(ns, EdgeOptions{}); err != nil {
		b.Fatal(err)
	}
	bound := NewBound(ns)
	addr := netip.MustParseAddr("10.200.0.1")
	for b.Loop() {
		if err := bound.Add(context.Background(), "pr1", addr); err != nil {
			b.Fatal(err)
		}
	}
}
