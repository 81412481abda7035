package netns

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSocketsAreAsTheFirewallNeedsThem(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	s, err := e.Sockets()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, tt := range []struct {
		f           *os.File
		proto, port int
		pktinfo     int
	}{{s.Proxy, unix.IPPROTO_TCP, 15001, 0}, {s.DNSStream, unix.IPPROTO_TCP, 53, 0}, {s.DNSPacket, unix.IPPROTO_UDP, 53, 1}} {
		fd := int(tt.f.Fd())
		get := func(level, opt int) int {
			v, err := unix.GetsockoptInt(fd, level, opt)
			if err != nil {
				t.Error(err)
			}
			return v
		}
		if got := get(unix.SOL_SOCKET, unix.SO_PROTOCOL); got != tt.proto {
			t.Errorf("%s: protocol %d (MPTCP?)", tt.f.Name(), got)
		}
		if get(unix.SOL_IP, unix.IP_TRANSPARENT) != 1 || get(unix.SOL_IP, unix.IP_PKTINFO) != tt.pktinfo {
			t.Errorf("%s: wrong options", tt.f.Name())
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("%s: goes to every child (%v)", tt.f.Name(), err)
		}
		sa, err := unix.Getsockname(fd)
		in4, ok := sa.(*unix.SockaddrInet4)
		if err != nil || !ok || in4.Addr != [4]byte{127, 0, 0, 1} || in4.Port != tt.port {
			t.Errorf("%s: bound to %+v, %v", tt.f.Name(), sa, err)
		}
	}
	if _, err := e.Sockets(); err == nil {
		t.Error("made twice: two sets would share the connections")
	}
	s.Close()
	again, err := e.Sockets() // one copy only: after Close nothing holds the ports
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	again.Close()
}

func TestSocketsAreOutOfReachWithoutRules(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	p := newPair(t, e, "10.200.0.1")
	if err := p.Up(context.Background()); err != nil {
		t.Fatal(err)
	}
	s, err := e.Sockets()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l, err := net.FileListener(s.Proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	in(t, p.Name, func() error { // 127.0.0.1 is routed to eth0 to make it reach as far as it can
		return os.WriteFile("/proc/sys/net/ipv4/conf/all/route_localnet", []byte("1"), 0)
	})
	for _, addr := range []string{"10.200.0.0:15001", "8.8.8.8:443", "10.200.0.0:53"} {
		if _, err := dial(t, p.Name, addr, 200*time.Millisecond); err == nil {
			t.Errorf("connected to %s without any rule", addr)
		}
	}
	// The twin: a listener on all addresses would be reached, so the link is not what refuses.
	listenIn(t, e.Fd(), "0.0.0.0:15002")
	if _, err := dial(t, p.Name, "10.200.0.0:15002", 5*time.Second); err != nil {
		t.Errorf("the link carries nothing: %v", err)
	}
}
