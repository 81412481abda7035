package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestEdgeNeverForwards(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	forward := func(v string) {
		t.Helper()
		if err := e.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte(v), 0) }); err != nil {
			t.Fatal(err)
		}
	}
	forward("1")
	if err := e.Check(); err == nil || !strings.Contains(err.Error(), "net/ipv4/ip_forward is 1, must be 0") {
		t.Errorf("forwarding was not named: %v", err)
	}
	// Who opens it next finds it wrong and puts it right.
	again, created, err := OpenEdge(e.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if created {
		t.Error("made again instead of adopted")
	}
	in(t, e.Name, func() error {
		b, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
		if got := strings.TrimSpace(string(b)); got != "0" {
			t.Errorf("ip_forward is %s after it was opened again", got)
		}
		return err
	})
}

func TestCheckNamesEachViolation(t *testing.T) {
	t.Parallel()
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "uplink0"}}
	for _, tt := range []struct {
		name, want string
		do         func(*testing.T, *Edge, *Pair) error
	}{
		{"a fresh one with a pair is fine", "", func(*testing.T, *Edge, *Pair) error { return nil }},
		{"a foreign link", `link "uplink0" is a bridge`, func(_ *testing.T, e *Edge, _ *Pair) error { return e.nl.LinkAdd(bridge) }},
		{"a default route", "default route in table 254", func(t *testing.T, e *Edge, p *Pair) error {
			if err := p.Up(context.Background()); err != nil {
				return err
			}
			l, err := e.nl.LinkByName(p.Interface)
			if err != nil {
				return err
			}
			return e.nl.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: everywhere(), Gw: p.Sandbox.AsSlice()})
		}},
		{"a route by a gateway", "route with a gateway in table 254", func(t *testing.T, e *Edge, p *Pair) error {
			if err := p.Up(context.Background()); err != nil {
				return err
			}
			l, err := e.nl.LinkByName(p.Interface)
			if err != nil {
				return err
			}
			dst := &net.IPNet{IP: net.IPv4(203, 0, 113, 0), Mask: net.CIDRMask(24, 32)}
			return e.nl.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst, Gw: p.Sandbox.AsSlice()})
		}},
		{"no rule", "no rule sends mark 1 to table 100", func(_ *testing.T, e *Edge, _ *Pair) error { return e.nl.RuleDel(proxyRule()) }},
		{"no local route", "table 100 lacks its local default route", func(_ *testing.T, e *Edge, _ *Pair) error {
			lo, err := e.nl.LinkByName("lo")
			if err != nil {
				return err
			}
			return e.nl.RouteDel(&netlink.Route{LinkIndex: lo.Attrs().Index, Table: proxyTable, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST, Dst: everywhere()})
		}},
		{"lo is down", `link "lo" is down`, func(_ *testing.T, e *Edge, _ *Pair) error {
			lo, err := e.nl.LinkByName("lo")
			if err != nil {
				return err
			}
			return e.nl.LinkSetDown(lo)
		}},
		{"IPv6 is on", "net/ipv6/conf/all/disable_ipv6 is 0", func(_ *testing.T, e *Edge, _ *Pair) error {
			return e.Do(func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("0"), 0) })
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t)
			p := newPair(t, e, "10.200.0.1")
			if err := tt.do(t, e, p); err != nil {
				t.Fatal(err)
			}
			err := e.Check()
			if tt.want == "" && err != nil {
				t.Errorf("unexpected: %v", err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestEdgeLinksHaveNoIPv6(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	p := newPair(t, e, "10.200.0.1")
	if err := p.Up(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, end := range []struct{ ns, link string }{{e.Name, p.Interface}, {p.Name, "eth0"}} {
		in(t, end.ns, func() error {
			b, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + end.link + "/disable_ipv6")
			if strings.TrimSpace(string(b)) != "1" {
				t.Errorf("IPv6 is on at %s", end.link)
			}
			return err
		})
	}
	// The twin: lo of the sandbox keeps its own, for servers on ::1.
	in(t, p.Name, func() error {
		l, err := net.Listen("tcp6", "[::1]:0")
		if err == nil {
			l.Close()
		}
		return err
	})
}

func TestRestOfACrashIsReplaced(t *testing.T) {
	t.Parallel()
	name := unique("edge")
	if err := prepareDir(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(Path(name), nil, 0o400); err != nil {
		t.Fatal(err)
	}
	e, created, err := OpenEdge(name)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Remove()
	if !created {
		t.Error("an empty file counted as a namespace")
	}
}

func TestNamesCannotLeaveTheDirectory(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", ".", "..", "../x", "a/b", "/etc/passwd", "A", strings.Repeat("x", 65)} {
		if _, _, err := OpenEdge(name); err == nil {
			t.Errorf("opened %q", name)
		}
		if err := Remove(name); err == nil {
			t.Errorf("removed %q", name)
		}
	}
}

// inside is what the copy does that runs in "ip netns exec": a mount namespace of its own, /run/netns a slave of
// the host's, a fresh /sys.
func inside() error {
	e, _, err := OpenEdge(os.Getenv(insideEnv))
	if err != nil {
		return err
	}
	defer e.Remove()
	name := unique("sbx")
	p, err := e.Pair(context.Background(), name, netip.MustParseAddr("10.200.0.1"))
	if err != nil {
		return err
	}
	names, err := List(name)
	if err := errors.Join(err, p.Up(context.Background()), p.Readdress(context.Background()), e.Check()); err != nil {
		return err
	}
	if len(names) != 1 {
		return fmt.Errorf("listed %v", names)
	}
	s, err := e.Sockets()
	if err != nil {
		return err
	}
	s.Close()
	if _, err := e.Adopt(name); err != nil {
		return err
	}
	return p.Remove()
}

func TestWorksInsideIPNetnsExec(t *testing.T) {
	t.Parallel()
	lab := unique("lab")
	f, err := create(lab, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	defer Remove(lab)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("ip", "netns", "exec", lab, self)
	cmd.Env = append(os.Environ(), insideEnv+"="+unique("edge"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
