package kernel

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Addresses of every kind: the table sends them all to the listener, what they mean is the dialer's business.
var anywhere = []string{"8.8.8.8:443", "1.1.1.1:22", "169.254.169.254:80", "10.200.7.0:15001", "10.200.7.0:80", "10.200.7.3:80",
	"100.64.0.1:443", "0.1.2.3:80", "240.0.0.9:80", "198.18.3.4:443", "255.255.255.254:80", "203.0.113.5:5432"}

func TestTCPEndsAtTheProxy(t *testing.T) {
	t.Parallel()
	l := newLab(t, EdgeOptions{})
	s := l.sandbox(true)
	l.sandbox(true) // 10.200.7.3
	for _, addr := range anywhere {
		c, err := s.dial("tcp4", addr, 5*time.Second)
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		got := l.accepted(l.proxy)
		if got.LocalAddr().String() != addr || got.RemoteAddr().String() != c.LocalAddr().String() {
			t.Errorf("%s arrived as %v from %v", addr, got.LocalAddr(), got.RemoteAddr())
		}
	}
	if _, err := s.dial("tcp4", "9.9.9.9:53", 5*time.Second); err != nil {
		t.Errorf("DNS over TCP: %v", err)
	}
	if got := l.accepted(l.dns); got.LocalAddr().String() != "9.9.9.9:53" {
		t.Errorf("DNS over TCP arrived as %v", got.LocalAddr())
	}
	s.ask("hello", netip.Addr{})
	if text, from := l.asked(); text != "hello" || from.Addr() != s.addr {
		t.Errorf("%q from %v", text, from)
	}
	if n := l.counters(); n.Proxied.Packets == 0 || n.DNSTCP.Packets == 0 || n.Reset.Packets != 0 {
		t.Errorf("counters %+v", n)
	}
}

func TestDeadListenerRefusesAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, EdgeOptions{})
	s := l.sandbox(true)
	if _, err := s.dial("tcp4", "8.8.8.8:443", 5*time.Second); err != nil {
		t.Fatalf("with the listener: %v", err)
	}
	l.silence()
	for _, addr := range []string{"8.8.8.8:443", "169.254.169.254:80", "8.8.8.8:53"} {
		start := time.Now()
		if _, err := s.dial("tcp4", addr, 5*time.Second); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: %v", addr, err)
		}
		within(t, addr, start)
	}
	refusedUDP(t, s, "8.8.8.8:53")
	if l.counters().Reset.Packets == 0 {
		t.Error("resets were not counted")
	}
	l.listen() // a new edge serves without any change of the rules
	if _, err := s.dial("tcp4", "8.8.8.8:443", 5*time.Second); err != nil {
		t.Errorf("with a new listener: %v", err)
	}
}

func TestUnboundSourceReachesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t, EdgeOptions{})
	good, other, never := l.sandbox(true), l.sandbox(true), l.sandbox(false)
	spoofed := netip.MustParseAddr("10.200.7.77")
	inner := link(t, good.inner, "eth0")
	l.must(good.inner.AddrAdd(inner, address(spoofed, 32)), good.inner.AddrAdd(inner, address(other.addr, 32)))
	good.ask("spoofed", spoofed)
	good.ask("other's", other.addr) // bound, but to another link
	never.ask("never bound", netip.Addr{})
	good.ask("good", netip.Addr{})
	if text, from := l.asked(); text != "good" || from.Addr() != good.addr {
		t.Errorf("%q from %v went through", text, from)
	}
	if _, err := never.dial("tcp4", "8.8.8.8:443", 200*time.Millisecond); err == nil {
		t.Error("a sandbox that was never bound connected")
	}
	n := l.counters().PerLinks
	if n[good.link].Dropped.Packets != 2 || n[never.link].Dropped.Packets < 2 || n[other.link].Dropped.Packets != 0 {
		t.Errorf("counted %+v", n)
	}
	l.must(l.bound.Remove(context.Background(), good.link, good.addr))
	good.ask("after removal", netip.Addr{})
	other.ask("other", netip.Addr{})
	if text, _ := l.asked(); text != "other" {
		t.Errorf("%q went through", text)
	}
}

func TestFragmentsAreDropped(t *testing.T) {
	t.Parallel()
	l := newLab(t, EdgeOptions{})
	s := l.sandbox(true)
	s.ask("large"+strings.Repeat("x", 2500), netip.Addr{})
	s.ask("small", netip.Addr{})
	if text, _ := l.asked(); text != "small" {
		t.Errorf("%q was put together and delivered", text)
	}
	if n := l.counters().Dropped.Packets; n != 2 {
		t.Errorf("%d packets dropped, want the two fragments", n)
	}
	s.ask("fits"+strings.Repeat("x", 1400), netip.Addr{})
	if text, _ := l.asked(); !strings.HasPrefix(text, "fits") {
		t.Errorf("%q", text)
	}
}

func TestOtherUDPIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, EdgeOptions{})
	s := l.sandbox(true)
	for _, addr := range []string{"8.8.8.8:443", "8.8.8.8:54", "10.200.7.0:53000", "198.18.0.1:123"} {
		refusedUDP(t, s, addr)
	}
	if n := l.counters(); n.Refused.Packets != 4 || n.PerLinks[s.link].Refused.Packets != 4 {
		t.Errorf("counted %+v", n)
	}
	s.ask("dns", netip.Addr{})
	if text, _ := l.asked(); text != "dns" {
		t.Errorf("%q", text)
	}
}

func refusedUDP(t *testing.T, s *sandbox, addr string) {
	t.Helper()
	c, err := s.dial("udp4", addr, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	c.SetDeadline(start.Add(2 * time.Second))
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("udp %s: %v", addr, err)
	}
	within(t, "udp "+addr, start)
}

func TestOtherProtocolsAreDropped(t *testing.T) {
	t.Parallel()
	l := newLab(t, EdgeOptions{})
	s := l.sandbox(true)
	icmp := []byte{8, 0, 0xf7, 0xfd, 0, 1, 0, 1} // an echo request
	conns := map[string]net.Conn{}
	for _, network := range []string{"ip4:icmp", "ip4:47", "ip4:4", "ip4:132"} {
		var c net.Conn
		l.do(s.ns, func() (err error) {
			c, err = net.Dial(network, s.gw.String())
			return err
		})
		defer c.Close()
		if _, err := c.Write(icmp); err != nil {
			t.Fatal(err)
		}
		conns[network] = c
	}
	l.do(s.ns, func() error { return sendIPv6(link(t, s.inner, "eth0").Attrs().Index) })
	s.ask("sync", netip.Addr{})
	l.asked()
	for network, c := range conns {
		c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, err := c.Read(make([]byte, 256)); err == nil {
			t.Errorf("%s was answered with %d bytes", network, n)
		}
	}
	if n := l.counters().PerLinks[s.link].Dropped.Packets; n != 5 { // four of ours and the IPv6 frame
		t.Errorf("%d packets dropped, want 5", n)
	}
}

// sendIPv6 puts a raw IPv6 packet, UDP to port 53 of all nodes, onto the link.
func sendIPv6(index int) error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	p := make([]byte, 48)
	p[0], p[5], p[6], p[7] = 0x60, 8, unix.IPPROTO_UDP, 64
	p[8], p[9], p[23] = 0xfe, 0x80, 1
	p[24], p[25], p[39] = 0xff, 0x02, 1
	p[41], p[43], p[45] = 53, 53, 8
	to := &unix.SockaddrLinklayer{Protocol: 0xdd86, Ifindex: index, Halen: 6, Addr: [8]byte{0x33, 0x33, 0, 0, 0, 1}}
	return unix.Sendto(fd, p, 0, to)
}

func TestFullSetsRefuse(t *testing.T) {
	t.Parallel()
	l := newLab(t, EdgeOptions{SetSize: 1})
	a, b := l.sandbox(true), l.sandbox(true)
	// a takes the one place in each set: dns, syn, refusals, dropped.
	a.ask("first", netip.Addr{})
	l.asked()
	if _, err := a.dial("tcp4", "8.8.8.8:443", 5*time.Second); err != nil {
		t.Fatal(err)
	}
	l.accepted(l.proxy)
	refusedUDP(t, a, "8.8.8.8:443")
	spoofed := netip.MustParseAddr("10.200.7.77")
	for _, s := range []*sandbox{a, b} {
		l.must(s.inner.AddrAdd(link(t, s.inner, "eth0"), address(spoofed, 32)))
	}
	a.ask("spoofed by a", spoofed)
	// From here every set is full for b.
	b.ask("spoofed by b", spoofed)
	b.ask("over the budget", netip.Addr{})
	if _, err := b.dial("tcp4", "8.8.8.8:443", 300*time.Millisecond); err == nil {
		t.Error("a connection got past a full set")
	}
	a.ask("second", netip.Addr{})
	if text, from := l.asked(); text != "second" {
		t.Errorf("%q of %v got past a full set", text, from)
	}
	if _, err := a.dial("tcp4", "8.8.8.8:443", 5*time.Second); err != nil {
		t.Errorf("the one that has its place: %v", err)
	}
}

func TestBudgetIsPerLink(t *testing.T) {
	t.Parallel()
	l := newLab(t, EdgeOptions{})
	flood, calm := l.sandbox(true), l.sandbox(true)
	c, err := flood.dial("udp4", "8.8.8.8:53", time.Second)
	l.must(err)
	for range 4 * defaultLookups {
		c.Write([]byte("flood")) // beyond the budget the kernel says refused
	}
	calm.ask("calm", netip.Addr{})
	floods := 0
	for {
		text, _ := l.asked()
		if text == "calm" {
			break
		}
		floods++
	}
	if floods < defaultLookups || floods >= 4*defaultLookups {
		t.Errorf("%d of %d queries of the flood went through", floods, 4*defaultLookups)
	}
}

func TestInwardCloseIsNotReset(t *testing.T) {
	t.Parallel()
	l := newLab(t, EdgeOptions{})
	s := l.sandbox(true)
	server := s.listen("tcp4", "0.0.0.0:8080")
	for range 10 {
		var in net.Conn
		l.do(l.ns, func() (err error) {
			in, err = net.DialTimeout("tcp4", s.addr.String()+":8080", 5*time.Second)
			return err
		})
		app := l.accepted(server)
		if _, err := in.Write([]byte("hi")); err != nil {
			t.Fatal(err)
		}
		if n, err := app.Read(make([]byte, 8)); n != 2 || err != nil {
			t.Fatalf("read %d, %v", n, err)
		}
		in.Close()
		if n, err := app.Read(make([]byte, 8)); n != 0 || err == nil {
			t.Fatalf("read %d, %v", n, err)
		}
		// The acknowledgement would wait for the sandbox's own FIN; with it our socket is in FIN_WAIT2.
		raw, err := app.SyscallConn()
		l.must(err)
		l.must(raw.Control(func(fd uintptr) { l.must(unix.SetsockoptInt(int(fd), unix.SOL_TCP, unix.TCP_QUICKACK, 1)) }))
		// With linger, close waits until the late FIN was answered.
		l.must(app.SetLinger(2), app.Close())
	}
	if n := l.counters(); n.Reset.Packets != 0 || n.Proxied.Packets != 0 {
		t.Errorf("late FINs went to the proxy or were reset: %+v", n)
	}
}

func (s *sandbox) listen(network, addr string) *net.TCPListener {
	var nl net.Listener
	s.lab.do(s.ns, func() (err error) {
		nl, err = net.Listen(network, addr)
		return err
	})
	s.lab.t.Cleanup(func() { nl.Close() })
	return nl.(*net.TCPListener)
}

func TestInwardCannotReachTheListeners(t *testing.T) {
	t.Parallel()
	l := newLab(t, EdgeOptions{})
	s := l.sandbox(true)
	s.listen("tcp4", "0.0.0.0:8080")
	dial := func(addr string, wait time.Duration) error {
		return inside(l.ns, func() error {
			c, err := net.DialTimeout("tcp4", addr, wait)
			if err == nil {
				c.Close()
			}
			return err
		})
	}
	for _, addr := range []string{"127.0.0.1:15001", "127.0.0.1:53", s.gw.String() + ":15001", "8.8.8.8:443"} {
		if err := dial(addr, 200*time.Millisecond); err == nil {
			t.Errorf("connected to %s from inside", addr)
		}
	}
	l.nobody()
	if n, ok := l.counters().PerLinks["lo"]; ok { // the guard would have stopped it, but it should not get there
		t.Errorf("packets went to lo: %+v", n)
	}
	if err := dial(s.addr.String()+":8080", 5*time.Second); err != nil {
		t.Errorf("the sandbox: %v", err)
	}
	start := time.Now()
	if err := dial(s.addr.String()+":8081", 5*time.Second); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a closed port of the sandbox: %v", err)
	}
	within(t, "a closed port", start)
}

func TestWithoutRulesNothingIsReached(t *testing.T) {
	t.Parallel()
	l := newLab(t, EdgeOptions{})
	s := l.sandbox(true)
	if _, err := s.dial("tcp4", "8.8.8.8:443", 5*time.Second); err != nil {
		t.Fatalf("with rules: %v", err)
	}
	l.accepted(l.proxy)
	c, err := nftables.New(nftables.WithNetNSFd(l.ns))
	l.must(err)
	c.FlushRuleset()
	l.must(c.Flush())
	for _, addr := range []string{"8.8.8.8:443", "10.200.7.0:15001", "10.200.7.0:53", "127.0.0.1:15001", "169.254.169.254:80"} {
		if _, err := s.dial("tcp4", addr, 150*time.Millisecond); err == nil {
			t.Errorf("connected to %s without rules", addr)
		}
	}
	l.nobody()
	if err := l.bound.Add(context.Background(), s.link, s.addr); err == nil {
		t.Error("bound without a table")
	}
}

func TestNothingIsTracked(t *testing.T) {
	t.Parallel()
	l := newLab(t, EdgeOptions{})
	s := l.sandbox(true)
	for range 20 {
		if _, err := s.dial("tcp4", "8.8.8.8:443", 5*time.Second); err != nil {
			t.Fatal(err)
		}
		s.ask("x", netip.Addr{})
	}
	l.do(l.ns, func() error {
		b, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
		if errors.Is(err, os.ErrNotExist) {
			return nil // a kernel that cannot track
		}
		if n := strings.TrimSpace(string(b)); n != "0" {
			t.Errorf("%s connections are tracked", n)
		}
		return err
	})
	// Counting alone shows little: without notrack nothing would be tracked either. So read the table as well.
	notrack := map[string]bool{}
	for _, ch := range edgeTable(EdgeOptions{}).chains {
		for _, r := range ch.rules {
			for _, e := range r {
				switch e.(type) {
				case *expr.Notrack:
					notrack[ch.name] = true
				case *expr.Ct, *expr.NAT, *expr.Masq, *expr.Redir, *expr.SynProxy:
					t.Errorf("chain %s holds %T", ch.name, e)
				}
			}
		}
	}
	if !notrack["guard"] || !notrack["output"] {
		t.Errorf("notrack only in %v", notrack)
	}
}
