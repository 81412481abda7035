package kernel

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestWallReachesWhatItNamesOnly: a proxy on the machine itself or beside it is reached, its other ports and everything else is not.
func TestWallReachesWhatItNamesOnly(t *testing.T) {
	t.Parallel()
	n := newUplinked(t, "203.0.113.2/24", "2001:db8::2/64")
	host, world, must := n.host, n.world, n.must
	n.add(n.w, "world", "203.0.113.1/24", "203.0.113.9/24", "2001:db8::1/64", "2001:db8::9/64")
	for _, ns := range []int{host, world} {
		for _, port := range []string{":3128", ":8080"} {
			must(inside(ns, func() error {
				l, err := net.Listen("tcp", port)
				if err == nil {
					t.Cleanup(func() { l.Close() })
				}
				return err
			}))
		}
	}
	dial := func(uid int, network, addr string) error {
		return inside(host, func() error {
			// One thread only: sockets carry the uid of the thread that made them.
			if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
				return e
			}
			c, err := net.DialTimeout(network, addr, 10*time.Second)
			if err != nil {
				return err
			}
			defer c.Close()
			if network == "udp" {
				_, err = c.Write([]byte("x")) // a wall refuses at once
			}
			return err
		})
	}
	reach := []Endpoint{{AddrPort: netip.MustParseAddrPort("127.0.0.1:3128")}, {AddrPort: netip.MustParseAddrPort("203.0.113.1:3128")},
		{AddrPort: netip.MustParseAddrPort("[2001:db8::1]:3128")}, {AddrPort: netip.MustParseAddrPort("203.0.113.9:53"), UDP: true}}
	for _, tt := range []struct {
		only       bool
		open, shut []string
	}{
		{open: []string{"tcp 203.0.113.1:8080", "tcp 203.0.113.9:8080", "tcp [2001:db8::9]:3128", "udp 203.0.113.1:3128"}, shut: []string{"tcp 127.0.0.1:8080", "tcp [::1]:3128", "tcp 203.0.113.2:3128"}},
		{only: true, shut: []string{"tcp 203.0.113.1:8080", "tcp 203.0.113.9:8080", "tcp 203.0.113.9:3128", "tcp [2001:db8::9]:3128", "tcp [2001:db8::1]:8080", "udp 203.0.113.1:3128",
			"udp 203.0.113.1:53", "tcp 127.0.0.1:8080", "tcp [::1]:3128", "tcp 203.0.113.2:3128"}},
	} {
		must(WriteWall(host, Wall{Table: "portreeve_test", UID: edgeUID, Reach: reach, Only: tt.only}))
		for _, a := range append([]string{"tcp 127.0.0.1:3128", "tcp 203.0.113.1:3128", "tcp [2001:db8::1]:3128", "udp 203.0.113.9:53"}, tt.open...) {
			if err := dial(edgeUID, a[:3], a[4:]); err != nil {
				t.Errorf("only %v: %s is open: %v", tt.only, a, err)
			}
		}
		for _, a := range tt.shut {
			if err := dial(edgeUID, a[:3], a[4:]); err == nil {
				t.Errorf("only %v: the edge's uid reached %s", tt.only, a)
			}
			if err := dial(0, a[:3], a[4:]); err != nil {
				t.Errorf("only %v: root is kept from %s: %v", tt.only, a, err)
			}
		}
	}
}
