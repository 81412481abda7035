package kernel

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	vns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// A lab is an edge netns with the table, listeners as the node makes them, and sandboxes that are plain processes.
// Its namespaces have no name: they end with the test.
type lab struct {
	t     *testing.T
	ns    int
	nl    *netlink.Handle
	bound *Bound
	next  byte
	proxy *net.TCPListener
	dns   *net.TCPListener
	query *net.UDPConn
}

type sandbox struct {
	lab   *lab
	ns    int
	link  string
	gw    netip.Addr
	addr  netip.Addr
	inner *netlink.Handle
}

func newLab(t *testing.T, o EdgeOptions) *lab {
	t.Helper()
	l := &lab{t: t, ns: newNamespace(t)}
	l.bound = NewBound(l.ns)
	l.nl = handleAt(t, l.ns)
	l.do(l.ns, func() error {
		return errors.Join(sysctl("ipv4/ip_forward", "0"), sysctl("ipv4/conf/all/arp_ignore", "1"),
			sysctl("ipv4/icmp_ratemask", "0")) // else the kernel counts refusals over all netns, and keeps some back
	})
	lo := link(t, l.nl, "lo")
	rule := netlink.NewRule()
	rule.Family, rule.Mark, rule.Table = unix.AF_INET, 1, 100
	_, everywhere, _ := net.ParseCIDR("0.0.0.0/0")
	route := &netlink.Route{LinkIndex: lo.Attrs().Index, Table: 100, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST, Dst: everywhere}
	l.must(l.nl.LinkSetUp(lo), l.nl.RuleAdd(rule), l.nl.RouteAdd(route))
	l.must(WriteEdgeTable(l.ns, o))
	l.listen()
	return l
}

func (l *lab) listen() {
	l.t.Helper()
	lc := net.ListenConfig{Control: func(network, _ string, c syscall.RawConn) (err error) {
		ctl := c.Control(func(fd uintptr) {
			err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)) // the flood is read late
		})
		return errors.Join(ctl, err)
	}}
	lc.SetMultipathTCP(false)
	ctx := context.Background()
	l.do(l.ns, func() error {
		p, err1 := lc.Listen(ctx, "tcp4", "127.0.0.1:15001")
		d, err2 := lc.Listen(ctx, "tcp4", "127.0.0.1:53")
		q, err3 := lc.ListenPacket(ctx, "udp4", "127.0.0.1:53")
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
		l.proxy, l.dns, l.query = p.(*net.TCPListener), d.(*net.TCPListener), q.(*net.UDPConn)
		return nil
	})
	l.t.Cleanup(l.silence)
}

// silence closes the listeners, as when the edge process died and nobody holds a copy.
func (l *lab) silence() {
	l.proxy.Close()
	l.dns.Close()
	l.query.Close()
}

// sandbox adds one; it may send only once it is bound.
func (l *lab) sandbox(bind bool) *sandbox {
	l.t.Helper()
	s := &sandbox{lab: l, ns: newNamespace(l.t), link: fmt.Sprintf("kt%s", strings.ToLower(rand.Text())[:10])}
	s.gw, s.addr = netip.AddrFrom4([4]byte{10, 200, 7, l.next}), netip.AddrFrom4([4]byte{10, 200, 7, l.next + 1})
	l.next += 2
	l.do(s.ns, func() error { // the kernel's own IPv6 packets would be counted as dropped
		return errors.Join(sysctl("ipv6/conf/all/disable_ipv6", "1"), sysctl("ipv6/conf/default/disable_ipv6", "1"))
	})
	attrs := netlink.NewLinkAttrs()
	attrs.Name = s.link
	l.must(l.nl.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(s.ns)}))
	s.inner = handleAt(l.t, s.ns)
	outer, inner, lo := link(l.t, l.nl, s.link), link(l.t, s.inner, "eth0"), link(l.t, s.inner, "lo")
	l.must(l.nl.AddrAdd(outer, address(s.gw, 31)), l.nl.LinkSetUp(outer), s.inner.LinkSetUp(lo))
	l.must(s.inner.AddrAdd(inner, address(s.addr, 31)), s.inner.LinkSetUp(inner))
	_, everywhere, _ := net.ParseCIDR("0.0.0.0/0")
	l.must(s.inner.RouteAdd(&netlink.Route{LinkIndex: inner.Attrs().Index, Dst: everywhere, Gw: s.gw.AsSlice()}))
	awaitUp(l.t, l.nl, s.link)
	awaitUp(l.t, s.inner, "eth0")
	if bind {
		l.must(l.bound.Add(context.Background(), s.link, s.addr))
	}
	return s
}

// awaitUp returns once the kernel has given the link a queue: before, it drops what is sent.
func awaitUp(t *testing.T, h *netlink.Handle, name string) {
	t.Helper()
	look, limit := time.NewTicker(time.Millisecond), time.After(10*time.Second)
	defer look.Stop()
	for link(t, h, name).Attrs().OperState != netlink.OperUp {
		select {
		case <-limit:
			t.Fatal("the link does not come up")
		case <-look.C:
		}
	}
}

// dial connects from inside the sandbox.
func (s *sandbox) dial(network, addr string, wait time.Duration) (c net.Conn, err error) {
	s.lab.t.Helper()
	s.lab.do(s.ns, func() error {
		c, err = (&net.Dialer{Timeout: wait}).Dial(network, addr)
		return nil
	})
	if c != nil {
		s.lab.t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(10 * time.Second))
	}
	return c, err
}

// ask sends a datagram to port 53 of some server, from the source address if it is valid.
func (s *sandbox) ask(text string, from netip.Addr) {
	s.lab.t.Helper()
	s.lab.do(s.ns, func() error {
		d := net.Dialer{}
		if from.IsValid() {
			d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		}
		c, err := d.Dial("udp4", "8.8.8.8:53")
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte(text))
		return err
	})
}

// asked returns the next query that reached the resolver's socket, cut to 16 bytes.
func (l *lab) asked() (string, netip.AddrPort) {
	l.t.Helper()
	b := make([]byte, 4096)
	l.query.SetReadDeadline(time.Now().Add(5 * time.Second))
	n, from, err := l.query.ReadFromUDPAddrPort(b)
	if err != nil {
		l.t.Fatalf("no query arrived: %v", err)
	}
	return string(b[:min(n, 16)]), from
}

// accepted returns the next connection at a listener.
func (l *lab) accepted(at *net.TCPListener) *net.TCPConn {
	l.t.Helper()
	at.SetDeadline(time.Now().Add(5 * time.Second))
	c, err := at.AcceptTCP()
	if err != nil {
		l.t.Fatalf("nothing arrived: %v", err)
	}
	l.t.Cleanup(func() { c.Close() })
	return c
}

// nobody asserts that nothing is waiting at the listeners.
func (l *lab) nobody() {
	l.t.Helper()
	for _, at := range []*net.TCPListener{l.proxy, l.dns} {
		at.SetDeadline(time.Now().Add(50 * time.Millisecond))
		if c, err := at.AcceptTCP(); err == nil {
			l.t.Errorf("%v reached the listener %v as %v", c.RemoteAddr(), at.Addr(), c.LocalAddr())
			c.Close()
		}
	}
}

func (l *lab) counters() *Counters {
	l.t.Helper()
	c, err := ReadCounters(l.ns)
	l.must(err)
	return c
}

func (l *lab) must(errs ...error) {
	l.t.Helper()
	if err := errors.Join(errs...); err != nil {
		l.t.Fatal(err)
	}
}

// do runs f inside the namespace on a thread that is thrown away.
func (l *lab) do(ns int, f func() error) { l.t.Helper(); l.must(inside(ns, f)) }

func inside(ns int, f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

func newNamespace(t testing.TB) int {
	t.Helper()
	fd := -1
	err := onThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func handleAt(t *testing.T, ns int) *netlink.Handle {
	t.Helper()
	h, err := netlink.NewHandleAt(vns.NsHandle(ns), unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func link(t *testing.T, h *netlink.Handle, name string) netlink.Link {
	t.Helper()
	l, err := h.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func address(a netip.Addr, bits int) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, a.BitLen())}}
}

func sysctl(file, value string) error {
	return os.WriteFile("/proc/sys/net/"+file, []byte(value), 0)
}

// within fails the test when the answer took as long as a time-out would.
func within(t *testing.T, what string, start time.Time) {
	t.Helper()
	if d := time.Since(start); d > time.Second {
		t.Errorf("%s took %v: it was not refused, it timed out", what, d)
	}
}
