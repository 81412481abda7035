package netns

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	vns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// insideEnv marks the copy of this test program that runs inside "ip netns exec".
const insideEnv = "PORTREEVE_NETNS_TEST_INSIDE"

func TestMain(m *testing.M) {
	if os.Getenv(insideEnv) != "" {
		if err := inside(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func unique(kind string) string {
	return fmt.Sprintf("nnt%s-%s", kind, strings.ToLower(rand.Text())[:10])
}

func newEdge(t *testing.T) *Edge {
	t.Helper()
	e, created, err := OpenEdge(unique("edge"))
	if err != nil {
		t.Fatal(err)
	}
	if !created {
		t.Fatal("a fresh name was found")
	}
	t.Cleanup(func() {
		if err := e.Remove(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func newPair(t *testing.T, e *Edge, addr string) *Pair {
	t.Helper()
	p, err := e.Pair(context.Background(), unique("sbx"), netip.MustParseAddr(addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Remove(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// in runs f in the sandbox's netns.
func in(t *testing.T, name string, f func() error) {
	t.Helper()
	ns, err := open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if err := Do(int(ns.Fd()), f); err != nil {
		t.Fatal(err)
	}
}

// dial connects from inside the namespace; by address only, so that the socket is made on this thread.
func dial(t *testing.T, name, addr string, wait time.Duration) (c net.Conn, err error) {
	t.Helper()
	in(t, name, func() error {
		c, err = net.DialTimeout("tcp4", addr, wait)
		return nil
	})
	if c != nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// listenIn makes a plain listener on all addresses of the namespace.
func listenIn(t *testing.T, ns int, addr string) net.Listener {
	t.Helper()
	var l net.Listener
	if err := Do(ns, func() (err error) {
		l, err = net.Listen("tcp4", addr)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func handle(t *testing.T, name string) *netlink.Handle {
	t.Helper()
	ns, err := open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(vns.NsHandle(ns.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}
