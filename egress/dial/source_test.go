package dial_test

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portreeve.dev/egress/dial"
	"portreeve.dev/policies"
)

// callers is a server that writes down where its callers come from.
type callers struct {
	at   netip.AddrPort
	mu   sync.Mutex
	from []string
}

func newCallers(t *testing.T, addr string) *callers {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &callers{at: l.Addr().(*net.TCPAddr).AddrPort()}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.from = append(s.from, c.RemoteAddr().(*net.TCPAddr).IP.String())
			s.mu.Unlock()
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-ended })
	return s
}

func (s *callers) came() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.from...)
}

func openDialer(t *testing.T, cfg dial.Config) *dial.Dialer {
	d := dialer(t, newNameserver(t), cfg)
	d.JudgeForTest(func(string, netip.Addr, uint16) policies.Verdict { return policies.Verdict{Action: policies.Allow} })
	return d
}

// TestOrgLeavesFromItsOwnAddress, and from no other when that can't be had.
func TestOrgLeavesFromItsOwnAddress(t *testing.T) {
	addr := netip.MustParseAddr
	four, six := newCallers(t, "127.0.0.1:0"), newCallers(t, "[::1]:0")
	d := openDialer(t, dial.Config{})
	d.SetWays(map[string]dial.Way{
		"both":    {Sources: []netip.Addr{addr("127.0.0.7"), addr("::1")}},
		"four":    {Sources: []netip.Addr{addr("127.0.0.8")}},
		"six":     {Sources: []netip.Addr{addr("::1")}},
		"foreign": {Sources: []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")}},
	})
	for _, tt := range []struct {
		org       string
		four, six bool
	}{{"both", true, true}, {"four", true, false}, {"six", false, true}, {"foreign", false, false}, {"other", true, true}} {
		for s, want := range map[*callers]bool{four: tt.four, six: tt.six} {
			_, err := reach(d, dial.Target{Org: tt.org, Addr: s.at.Addr(), Port: s.at.Port()})
			if want && err != nil {
				t.Errorf("%s to %v: %v", tt.org, s.at, err)
			}
			if !want {
				t.Run(tt.org, func(t *testing.T) { wantKind(t, err, dial.SourceMissing) })
			}
		}
	}
	processed(t, "all callers", func() bool { return len(four.came()) >= 3 && len(six.came()) >= 3 })
	if diff := cmp.Diff([]string{"127.0.0.7", "127.0.0.8", "127.0.0.1"}, four.came()); diff != "" {
		t.Errorf("they came from:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"::1", "::1", "::1"}, six.came()); diff != "" {
		t.Errorf("they came from:\n%s", diff)
	}
}

// TestProxyIsReachedFromTheOrgsAddress: the company can tell orgs apart by it.
func TestProxyIsReachedFromTheOrgsAddress(t *testing.T) {
	s := newCallers(t, "127.0.0.1:0") // it ends each connection, as no proxy does
	d := openDialer(t, dial.Config{Upstream: &dial.UpstreamProxy{Scheme: dial.HTTP, Addrs: []netip.AddrPort{s.at}}})
	d.SetWays(map[string]dial.Way{"org_a": {Sources: []netip.Addr{netip.MustParseAddr("127.0.0.9")}}, "org_b": {Sources: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}})
	_, _, err := d.Dial(context.Background(), dial.Target{Org: "org_a", Addr: good, Port: 80})
	wantKind(t, err, dial.ProxyAnswer)
	_, _, err = d.Dial(context.Background(), dial.Target{Org: "org_b", Addr: good, Port: 80})
	wantKind(t, err, dial.SourceMissing)
	processed(t, "one caller", func() bool { return len(s.came()) == 1 })
	if diff := cmp.Diff([]string{"127.0.0.9"}, s.came()); diff != "" {
		t.Errorf("it came from:\n%s", diff)
	}
}
