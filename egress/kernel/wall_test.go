package kernel

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const edgeUID = 1900000001

// An uplinked host has one uplink to a world of its own.
type uplinked struct {
	t           *testing.T
	host, world int
	h, w        *netlink.Handle
}

// newUplinked makes one whose links are up, with these addresses at the host's end.
func newUplinked(t *testing.T, cidrs ...string) *uplinked {
	t.Helper()
	n := &uplinked{t: t, host: newNamespace(t), world: newNamespace(t)}
	n.h, n.w = handleAt(t, n.host), handleAt(t, n.world)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "uplink"
	n.must(n.h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "world", PeerNamespace: netlink.NsFd(n.world)}))
	for _, l := range []struct {
		h    *netlink.Handle
		name string
	}{{n.h, "lo"}, {n.w, "lo"}, {n.h, "uplink"}, {n.w, "world"}} {
		n.must(l.h.LinkSetUp(link(t, l.h, l.name)))
	}
	awaitUp(t, n.h, "uplink")
	awaitUp(t, n.w, "world")
	n.add(n.h, "uplink", cidrs...)
	return n
}

func (n *uplinked) must(errs ...error) {
	n.t.Helper()
	if err := errors.Join(errs...); err != nil {
		n.t.Fatal(err)
	}
}

func (n *uplinked) add(h *netlink.Handle, name string, cidrs ...string) {
	n.t.Helper()
	for _, cidr := range cidrs {
		a, err := netlink.ParseAddr(cidr)
		n.must(err)
		a.Flags = unix.IFA_F_NODAD
		n.must(h.AddrAdd(link(n.t, h, name), a))
	}
}

// Behind the uplink everything answers.
func TestWallStopsOneUID(t *testing.T) {
	t.Parallel()
	n := newUplinked(t, "203.0.113.2/24", "2001:db8::2/64")
	host, world, h, w, must := n.host, n.world, n.h, n.w, n.must
	n.add(w, "world", "203.0.113.1/24", "2001:db8::1/64")
	uplink := link(t, h, "uplink").Attrs().Index
	for _, s := range []string{"198.18.0.9/32", "198.20.0.9/32", "169.254.169.254/32", "100.100.100.200/32", "100.100.100.201/32",
		"10.200.0.1/32", "10.201.0.1/32", "fd00:ec2::254/128", "fd00:ec2::255/128", "64:ff9b::a9fe:a9fe/128", "64:ff9b::102:304/128"} {
		n.add(w, "lo", s)
		p := netip.MustParsePrefix(s)
		gw := "203.0.113.1"
		if p.Addr().Is6() {
			gw = "2001:db8::1"
		}
		must(h.RouteAdd(&netlink.Route{LinkIndex: uplink, Dst: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}, Gw: net.ParseIP(gw)}))
	}
	for _, ns := range []int{host, world} {
		must(inside(ns, func() error {
			l, err := net.Listen("tcp", ":8080")
			if err == nil {
				t.Cleanup(func() { l.Close() })
			}
			return err
		}))
	}
	dial := func(uid int, addr string, wait time.Duration) error {
		return inside(host, func() error {
			// One thread only: sockets carry the uid of the thread that made them.
			if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
				return e
			}
			c, err := net.DialTimeout("tcp", net.JoinHostPort(addr, "8080"), wait)
			if err == nil {
				c.Close()
			}
			return err
		})
	}
	const patient = 10 * time.Second // the first question for a neighbour may get lost, and is asked again after a second
	hard := []string{"127.0.0.1", "203.0.113.2", "169.254.169.254", "198.18.0.9", "100.100.100.200", "10.200.0.1",
		"::1", "2001:db8::2", "fd00:ec2::254", "64:ff9b::a9fe:a9fe"}
	open := []string{"203.0.113.1", "198.20.0.9", "100.100.100.201", "10.201.0.1", "2001:db8::1", "fd00:ec2::255", "64:ff9b::102:304"}
	for _, a := range append(open, hard...) {
		if err := dial(edgeUID, a, patient); err != nil {
			t.Fatalf("%s without the wall: %v", a, err)
		}
	}
	must(WriteWall(host, Wall{Table: "portreeve_test", UID: edgeUID, Extra: prefixes("10.200.0.0/16")}))
	for _, a := range open {
		if err := dial(edgeUID, a, patient); err != nil {
			t.Errorf("%s is open: %v", a, err)
		}
	}
	for _, a := range hard {
		if err := dial(edgeUID, a, time.Second); err == nil {
			t.Errorf("the edge's uid reached %s", a)
		}
		for _, uid := range []int{0, edgeUID + 1} {
			if err := dial(uid, a, patient); err != nil {
				t.Errorf("uid %d is kept from %s: %v", uid, a, err)
			}
		}
	}
	must(RemoveWall(host, "portreeve_test"))
	if err := dial(edgeUID, "127.0.0.1", patient); err != nil {
		t.Errorf("after removal: %v", err)
	}
}

func TestWallRefusesWhatItCannotMean(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	for _, tt := range []struct {
		table string
		uid   uint32
		extra []netip.Prefix
	}{
		{"portreeve_x", 0, nil}, {"", 1, nil}, {"a b", 1, nil}, {"a;b", 1, nil},
		{"portreeve_x", 1, prefixes("0.0.0.0/0")}, {"portreeve_x", 1, prefixes("::/0")}, {"portreeve_x", 1, []netip.Prefix{{}}},
	} {
		if err := WriteWall(ns, Wall{Table: tt.table, UID: tt.uid, Extra: tt.extra}); err == nil {
			t.Errorf("wrote %+v", tt)
		}
	}
	if err := WriteWall(ns, Wall{Table: "portreeve_x", UID: 1, Reach: []Endpoint{{}}}); err == nil {
		t.Error("wrote a wall with a way to nowhere")
	}
	if err := WriteWall(ns, Wall{Table: "portreeve_x", UID: 1}); err != nil {
		t.Error(err)
	}
}
