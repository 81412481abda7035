package dial_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	"go.uber.org/goleak"

	"portreeve.dev/egress/dial"
	"portreeve.dev/policies"
)

var (
	good = netip.MustParseAddr("127.0.0.2") // plays a public address
	evil = netip.MustParseAddr("127.0.0.1") // plays what the floor denies
)

// upstream counts connections on both addresses, on one port.
type upstream struct {
	port       uint16
	good, evil atomic.Int64
}

func newUpstream(t testing.TB) *upstream {
	t.Helper()
	u := new(upstream)
	l, e := twoAddresses(t)
	u.port = l.Addr().(*net.TCPAddr).AddrPort().Port()
	for l, n := range map[net.Listener]*atomic.Int64{l: &u.good, e: &u.evil} {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				n.Add(1)
				c.Close()
			}
		}()
		t.Cleanup(func() { l.Close(); <-ended })
	}
	return u
}

func twoAddresses(t testing.TB) (onGood, onEvil net.Listener) {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", good.String()+":0")
		if err != nil {
			t.Fatal(err)
		}
		e, err := net.Listen("tcp", netip.AddrPortFrom(evil, l.Addr().(*net.TCPAddr).AddrPort().Port()).String())
		if err == nil {
			return l, e
		}
		l.Close()
	}
	t.Fatal("no port is free on both addresses")
	return nil, nil
}

// onlyGood is the floor of these tests.
func onlyGood(_ string, a netip.Addr, _ uint16) policies.Verdict {
	if a == good {
		return policies.Verdict{Action: policies.Allow, Reason: policies.ReasonAllowed}
	}
	return policies.Denied(policies.ReasonFloorHard)
}

func dialer(t testing.TB, n *nameserver, cfg dial.Config) *dial.Dialer {
	t.Helper()
	d := floorDialer(t, n, cfg)
	d.JudgeForTest(onlyGood)
	return d
}

// floorDialer has the real floor.
func floorDialer(t testing.TB, n *nameserver, cfg dial.Config) *dial.Dialer {
	t.Helper()
	floor, err := policies.NewFloor(policies.FloorConfig{Exempt: []policies.Exemption{{CIDR: netip.MustParsePrefix("203.0.113.0/24"), Orgs: []string{"org_a"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if n != nil {
		cfg.Servers = append(cfg.Servers, n.addr)
	}
	d, err := dial.New(cfg, floor)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (u *upstream) target(host string) dial.Target {
	return dial.Target{Org: "org_a", Host: host, Port: u.port}
}

// reach dials and closes; it returns the address reached.
func reach(d *dial.Dialer, t dial.Target) (netip.Addr, error) {
	c, res, err := d.Dial(context.Background(), t)
	if err != nil {
		return netip.Addr{}, err
	}
	c.Close()
	return res.Addr, nil
}

func wantRefused(t *testing.T, err error, reason policies.Reason) {
	t.Helper()
	var r *dial.Refused
	if !errors.As(err, &r) || r.Verdict.Allowed() || r.Verdict.Reason != reason {
		t.Errorf("got %v, want refused for %s", err, reason)
	}
}

func wantKind(t *testing.T, err error, kind dial.Kind) {
	t.Helper()
	var e *dial.Error
	if !errors.As(err, &e) || e.Kind != kind {
		t.Errorf("got %v, want kind %s", err, kind)
	}
}

func TestAllowedNameIsReached(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) }) // after the servers ended
	n, u := newNameserver(t), newUpstream(t)
	n.records("good.test", "good.test. 60 IN A 127.0.0.2")
	d := dialer(t, n, dial.Config{})
	c, res, err := d.Dial(context.Background(), u.target("good.test"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.RemoteAddr().(*net.TCPAddr).AddrPort(); got != netip.AddrPortFrom(good, u.port) || res.Addr != good || res.Tries != 1 {
		t.Errorf("connected to %v, result %+v", got, res)
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		if p, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, 38); err != nil || p != syscall.IPPROTO_TCP { // SO_PROTOCOL
			t.Errorf("protocol %d (%v), want plain TCP", p, err)
		}
	})
}

func TestRebindingNeverHits(t *testing.T) {
	n, u := newNameserver(t), newUpstream(t)
	var turn atomic.Int64
	n.zone("rebind.test", func(*dns.Msg) []dns.RR {
		a := good
		if turn.Add(1)%2 == 0 {
			a = evil
		}
		return rrs(dns.TypeA, fmt.Sprintf("rebind.test. 0 IN A %v", a))
	})
	d := dialer(t, n, dial.Config{})
	reached, refused := 0, 0
	for range 1000 {
		if a, err := reach(d, u.target("rebind.test")); err != nil {
			wantRefused(t, err, policies.ReasonFloorHard)
			refused++
		} else if a == good {
			reached++
		}
	}
	if u.evil.Load() != 0 {
		t.Errorf("%d of 1000 connections reached the address that the floor denies", u.evil.Load())
	}
	if reached != 500 || refused != 500 {
		t.Errorf("%d reached, %d refused, of 500 each", reached, refused)
	}
}

func TestPrivateAnswerRefused(t *testing.T) {
	n, u := newNameserver(t), newUpstream(t)
	n.records("private.test", "private.test. 60 IN A 127.0.0.1")
	n.records("mixed.test", "mixed.test. 60 IN A 127.0.0.1", "mixed.test. 60 IN A 127.0.0.2")
	d := dialer(t, n, dial.Config{})
	_, err := reach(d, u.target("private.test"))
	wantRefused(t, err, policies.ReasonFloorHard)
	if a, err := reach(d, u.target("mixed.test")); err != nil || a != good {
		t.Errorf("of two answers %v was used (%v), want the allowed one", a, err)
	}
	_, err = reach(d, dial.Target{Org: "org_a", Addr: evil, Port: u.port})
	wantRefused(t, err, policies.ReasonFloorHard)
	_, err = reach(d, dial.Target{Org: "org_a", Addr: netip.MustParseAddr("::ffff:127.0.0.1"), Port: u.port})
	wantRefused(t, err, policies.ReasonFloorHard)
	if a, err := reach(d, dial.Target{Org: "org_a", Addr: good, Port: u.port}); err != nil || a != good {
		t.Errorf("the allowed address: %v, %v", a, err)
	}
	if u.evil.Load() != 0 {
		t.Errorf("%d connections reached the denied address", u.evil.Load())
	}
}

func TestAliasToPrivateRefused(t *testing.T) {
	n, u := newNameserver(t), newUpstream(t)
	n.records("cname.test", "cname.test. 60 IN CNAME internal.corp.", "internal.corp. 60 IN A 127.0.0.1")
	n.records("fine.test", "fine.test. 60 IN CNAME cdn.other.test.", "cdn.other.test. 60 IN CNAME edge.other.test.", "edge.other.test. 60 IN A 127.0.0.2")
	n.records("meta.test", "meta.test. 60 IN CNAME metadata.google.internal.", "metadata.google.internal. 60 IN A 127.0.0.2")
	d := dialer(t, n, dial.Config{})
	_, err := reach(d, u.target("cname.test"))
	wantRefused(t, err, policies.ReasonFloorHard)
	_, err = reach(d, u.target("meta.test"))
	wantRefused(t, err, policies.ReasonFloorHard)

	target := u.target("fine.test")
	var seen []string
	target.Alias = func(name string) policies.Verdict {
		seen = append(seen, name)
		return policies.Verdict{Action: policies.Allow}
	}
	if _, err := reach(d, target); err != nil {
		t.Errorf("an alias to an allowed address: %v", err)
	}
	if diff := cmp.Diff([]string{"cdn.other.test", "edge.other.test"}, seen); diff != "" {
		t.Errorf("aliases judged:\n%s", diff)
	}
	target.Alias = func(name string) policies.Verdict { return policies.Denied(policies.ReasonRuleDenied) }
	_, err = reach(d, target)
	wantRefused(t, err, policies.ReasonRuleDenied)
	if u.evil.Load() != 0 {
		t.Errorf("%d connections reached the denied address", u.evil.Load())
	}
}

func TestAliasAloneIsFollowed(t *testing.T) {
	n, u := newNameserver(t), newUpstream(t)
	n.records("www.test", "www.test. 60 IN CNAME host.test.")
	n.records("host.test", "host.test. 60 IN A 127.0.0.2")
	n.records("loop.test", "loop.test. 60 IN CNAME pool.test.")
	n.records("pool.test", "pool.test. 60 IN CNAME loop.test.")
	d := dialer(t, n, dial.Config{})
	if _, err := reach(d, u.target("www.test")); err != nil {
		t.Error(err)
	}
	_, err := reach(d, u.target("loop.test"))
	wantKind(t, err, dial.AliasLoop)
	if q := n.queries.Load(); q > 12 {
		t.Errorf("%d queries for an alias and a loop", q)
	}
}

func TestStrayOwnersIgnored(t *testing.T) {
	n, u := newNameserver(t), newUpstream(t)
	n.records("stray.test", "other.test. 60 IN A 127.0.0.2")
	n.records("both.test", "evil.test. 60 IN A 127.0.0.1", "both.test. 60 IN A 127.0.0.2", "x.both.test. 60 IN CNAME evil.test.")
	d := dialer(t, n, dial.Config{})
	_, err := reach(d, u.target("stray.test"))
	wantKind(t, err, dial.NoAddress)
	if a, err := reach(d, u.target("both.test")); err != nil || a != good {
		t.Errorf("the record of the name asked for, beside strays: %v, %v", a, err)
	}
	_, err = reach(d, u.target("other.test"))
	wantKind(t, err, dial.NXDomain) // not remembered from the stray
}

func TestForgedRepliesIgnored(t *testing.T) {
	forge := map[string]func(q, m *dns.Msg){
		"another id":          func(q, m *dns.Msg) { m.Id++ },
		"another question":    func(q, m *dns.Msg) { m.Question[0].Name = "evil.test." },
		"another type":        func(q, m *dns.Msg) { m.Question[0].Qtype = dns.TypeTXT },
		"no question":         func(q, m *dns.Msg) { m.Question = nil },
		"two questions":       func(q, m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) },
		"a query, no reply":   func(q, m *dns.Msg) { m.Response = false },
		"the case not echoed": func(q, m *dns.Msg) { m.Question[0].Name = strings.ToLower(m.Question[0].Name) },
	}
	for name, spoil := range forge {
		t.Run(name, func(t *testing.T) {
			n, u := newNameserver(t), newUpstream(t)
			host := "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.test" // 0x20 leaves it all lower case once in 2^60
			n.records(host, host+". 60 IN A 127.0.0.2")
			n.intercept(func(w dns.ResponseWriter, q *dns.Msg) bool {
				m := new(dns.Msg)
				m.SetReply(q)
				m.Answer = rrs(dns.TypeA, host+". 60 IN A 127.0.0.1")
				spoil(q, m)
				w.WriteMsg(m)
				w.Write([]byte("\x00\x01garbage"))
				return false // the true reply follows
			})
			d := dialer(t, n, dial.Config{MixedCase: true})
			if a, err := reach(d, u.target(host)); err != nil || a != good {
				t.Errorf("a forged reply before the true one: %v, %v", a, err)
			}
		})
	}
}

func TestTruncatedReplyIsAskedOverTCP(t *testing.T) {
	n, u := newNameserver(t), newUpstream(t)
	n.records("big.test", "big.test. 60 IN A 127.0.0.2")
	n.intercept(func(w dns.ResponseWriter, q *dns.Msg) bool {
		if w.LocalAddr().Network() == "tcp" {
			return false
		}
		m := new(dns.Msg)
		m.SetReply(q)
		m.Truncated = true
		w.WriteMsg(m)
		return true
	})
	d := dialer(t, n, dial.Config{})
	if _, err := reach(d, u.target("big.test")); err != nil || n.tcp.Load() != 1 {
		t.Errorf("%v after %d queries over TCP", err, n.tcp.Load())
	}
}

func TestCacheIsPerOrg(t *testing.T) {
	n, u := newNameserver(t), newUpstream(t)
	n.records("good.test", "good.test. 60 IN A 127.0.0.2")
	n.records("zero.test", "zero.test. 0 IN A 127.0.0.2")
	d := dialer(t, n, dial.Config{})
	now := time.Now()
	d.NowForTest(func() time.Time { return now })
	ask := func(org, host string) int64 {
		t.Helper()
		before := n.queries.Load()
		target := u.target(host)
		target.Org = org
		if _, err := reach(d, target); err != nil {
			t.Fatal(err)
		}
		return n.queries.Load() - before
	}
	for _, step := range []struct {
		what, org, host string
		want            int64
		after           time.Duration
	}{
		{"the first of org a", "org_a", "good.test", 1, 0},
		{"the second of org a", "org_a", "good.test", 0, 0},
		{"the first of org b", "org_b", "good.test", 1, 0},
		{"org a within the longest TTL", "org_a", "good.test", 0, 29 * time.Second},
		{"org a after the longest TTL", "org_a", "good.test", 1, 2 * time.Second},
		{"TTL 0", "org_a", "zero.test", 1, 0},
		{"TTL 0 again", "org_a", "zero.test", 1, 0},
	} {
		now = now.Add(step.after)
		if got := ask(step.org, step.host); got != step.want {
			t.Errorf("%s: %d queries, want %d", step.what, got, step.want)
		}
	}
	if _, err := reach(d, dial.Target{Host: "good.test", Port: u.port}); err == nil {
		t.Error("a dial without an org")
	}
}

func TestCachedAnswerIsJudgedAgain(t *testing.T) {
	n, u := newNameserver(t), newUpstream(t)
	n.records("good.test", "good.test. 60 IN A 127.0.0.2")
	d := dialer(t, n, dial.Config{})
	if _, err := reach(d, u.target("good.test")); err != nil {
		t.Fatal(err)
	}
	d.JudgeForTest(func(string, netip.Addr, uint16) policies.Verdict { return policies.Denied(policies.ReasonFloorSoft) })
	_, err := reach(d, u.target("good.test"))
	wantRefused(t, err, policies.ReasonFloorSoft)
}

func TestDeniedHostNotLookedUp(t *testing.T) {
	n := newNameserver(t)
	d := floorDialer(t, n, dial.Config{})
	for host, reason := range map[string]policies.Reason{
		"metadata.google.internal": policies.ReasonFloorHard,
		"127.0.0.1":                policies.ReasonHostInvalid,
		"2130706433":               policies.ReasonHostInvalid,
		"Good.test":                policies.ReasonHostInvalid,
		"good.test.":               policies.ReasonHostInvalid,
		"[::1]":                    policies.ReasonHostInvalid,
	} {
		_, err := reach(d, dial.Target{Org: "org_a", Host: host, Port: 443})
		t.Run(host, func(t *testing.T) { wantRefused(t, err, reason) })
	}
	if q := n.queries.Load(); q != 0 {
		t.Errorf("%d queries left for denied names", q)
	}
	_, err := reach(d, dial.Target{Org: "org_a", Host: "nowhere.test", Port: 443})
	wantKind(t, err, dial.NXDomain)
	if q := n.queries.Load(); q != 1 {
		t.Errorf("%d queries for a name that is not denied", q)
	}
}

func TestRealFloor(t *testing.T) {
	d := floorDialer(t, newNameserver(t), dial.Config{ConnectTimeout: time.Nanosecond})
	dialAt := func(org, addr string, port uint16, named bool) error {
		_, err := reach(d, dial.Target{Org: org, Addr: netip.MustParseAddr(addr), Port: port, Named: named})
		return err
	}
	hard := []string{"127.0.0.1", "0.0.0.0", "169.254.169.254", "100.100.100.200", "168.63.129.16", "224.0.0.1", "255.255.255.255", "198.18.0.1",
		"::1", "::", "fe80::1", "fe80::1%lo", "ff02::1", "fd00:ec2::254", "::ffff:127.0.0.1", "64:ff9b::7f00:1"}
	for _, a := range hard {
		t.Run(a, func(t *testing.T) { wantRefused(t, dialAt("org_a", a, 443, true), policies.ReasonFloorHard) })
	}
	for _, a := range []string{"10.0.0.5", "100.64.0.1", "192.0.2.1", "240.0.0.1", "fd12::1", "198.51.100.1"} {
		t.Run(a, func(t *testing.T) { wantRefused(t, dialAt("org_a", a, 443, true), policies.ReasonFloorSoft) })
	}
	wantRefused(t, dialAt("org_a", "192.0.0.9", 25, true), policies.ReasonFloorSoft)
	wantKind(t, dialAt("org_a", "203.0.113.7", 443, true), dial.DialTimeout) // exempt for org a, and refused by nobody
	wantRefused(t, dialAt("org_a", "203.0.113.7", 443, false), policies.ReasonFloorSoft)
	wantRefused(t, dialAt("org_b", "203.0.113.7", 443, true), policies.ReasonFloorSoft)
	d.SetFloor(nil)
	if err := dialAt("org_a", "203.0.113.7", 443, true); !errors.As(err, new(*dial.Refused)) {
		t.Errorf("without a floor: %v", err)
	}
}

func TestPolicyDeniesRangeUnderEveryName(t *testing.T) {
	n, u := newNameserver(t), newUpstream(t)
	n.records("good.test", "good.test. 60 IN A 127.0.0.2")
	d := dialer(t, n, dial.Config{})
	target := u.target("good.test")
	target.Address = func(a netip.Addr) policies.Verdict { return policies.Denied(policies.ReasonRuleDenied) }
	_, err := reach(d, target)
	wantRefused(t, err, policies.ReasonRuleDenied)
	target.Address = func(a netip.Addr) policies.Verdict { return policies.Verdict{Action: policies.Allow} }
	if _, err := reach(d, target); err != nil {
		t.Error(err)
	}
}

func TestSocketRefusesOtherAddress(t *testing.T) {
	u := newUpstream(t)
	allow := func(netip.AddrPort) error { return nil }
	deny := func(netip.AddrPort) error { return &dial.Refused{} }
	if c, err := dial.ConnectForTest(context.Background(), netip.Addr{}, netip.AddrPortFrom(good, u.port), allow); err != nil {
		t.Errorf("a checked address: %v", err)
	} else {
		c.Close()
	}
	if c, err := dial.ConnectForTest(context.Background(), netip.Addr{}, netip.AddrPortFrom(good, u.port), deny); !errors.As(err, new(*dial.Refused)) {
		t.Errorf("the socket's own check denies, and the error is %v", err)
		if c != nil {
			c.Close()
		}
	}
	// A floor that changes between judging and connecting.
	n := newNameserver(t)
	n.records("good.test", "good.test. 60 IN A 127.0.0.2")
	d := dialer(t, n, dial.Config{})
	calls := 0
	d.JudgeForTest(func(string, netip.Addr, uint16) policies.Verdict {
		if calls++; calls == 1 {
			return policies.Verdict{Action: policies.Allow}
		}
		return policies.Denied(policies.ReasonFloorSoft)
	})
	_, err := reach(d, u.target("good.test"))
	wantRefused(t, err, policies.ReasonFloorSoft)
}

func TestFailureKinds(t *testing.T) {
	n, u := newNameserver(t), newUpstream(t)
	n.records("good.test", "good.test. 60 IN A 127.0.0.2")
	n.records("empty.test")
	n.intercept(func(w dns.ResponseWriter, q *dns.Msg) bool {
		switch q.Question[0].Name {
		case "silent.test.":
			return true
		case "broken.test.":
			m := new(dns.Msg)
			m.SetRcode(q, dns.RcodeServerFailure)
			w.WriteMsg(m)
			return true
		}
		return false
	})
	d := dialer(t, n, dial.Config{})
	for host, kind := range map[string]dial.Kind{"nowhere.test": dial.NXDomain, "empty.test": dial.NoAddress,
		"silent.test": dial.ResolveTimeout, "broken.test": dial.ServFail} {
		d := d
		if kind == dial.ResolveTimeout { // nothing has to happen within it
			d = dialer(t, n, dial.Config{TryTimeout: 50 * time.Millisecond})
		}
		_, err := reach(d, u.target(host))
		t.Run(host, func(t *testing.T) { wantKind(t, err, kind) })
		if !kind.Resolving() {
			t.Errorf("%s isn't a failure to resolve", kind)
		}
	}
	closed := u.target("good.test")
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Port = l.Addr().(*net.TCPAddr).AddrPort().Port()
	l.Close()
	_, err = reach(d, closed)
	wantKind(t, err, dial.ConnRefused)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err = d.Dial(ctx, u.target("fresh.test"))
	wantKind(t, err, dial.Canceled)
	_, _, err = d.Dial(ctx, u.target("good.test")) // from the cache
	wantKind(t, err, dial.Canceled)
}

// An address that refuses does not keep from the next one.
func TestNextAddressIsTried(t *testing.T) {
	n, u := newNameserver(t), newUpstream(t)
	n.records("two.test", "two.test. 60 IN A 127.0.0.9", "two.test. 60 IN A 127.0.0.2")
	d := dialer(t, n, dial.Config{})
	d.JudgeForTest(func(string, netip.Addr, uint16) policies.Verdict { return policies.Verdict{Action: policies.Allow} })
	c, res, err := d.Dial(context.Background(), u.target("two.test"))
	if err != nil || res.Addr != good || res.Tries != 2 {
		t.Fatalf("%+v, %v", res, err)
	}
	c.Close()
}

func TestNextServerIsAsked(t *testing.T) {
	broken, n, u := newNameserver(t), newNameserver(t), newUpstream(t)
	broken.intercept(func(w dns.ResponseWriter, q *dns.Msg) bool {
		m := new(dns.Msg)
		m.SetRcode(q, dns.RcodeRefused)
		w.WriteMsg(m)
		return true
	})
	n.records("good.test", "good.test. 60 IN A 127.0.0.2")
	d := dialer(t, n, dial.Config{Servers: []netip.AddrPort{broken.addr}})
	if _, err := reach(d, u.target("good.test")); err != nil || broken.queries.Load() != 1 {
		t.Errorf("%v after %d queries to the broken server", err, broken.queries.Load())
	}
}

func TestIPv6OnlyWhenEnabled(t *testing.T) {
	n := newNameserver(t)
	n.records("six.test", "six.test. 60 IN AAAA 2001:db8::1")
	n.records("both.test", "both.test. 60 IN AAAA 2001:db8::1", "both.test. 60 IN A 127.0.0.2")
	u := newUpstream(t)
	_, err := reach(dialer(t, n, dial.Config{}), u.target("six.test"))
	wantKind(t, err, dial.NoAddress)
	d := dialer(t, n, dial.Config{IPv6: true})
	_, err = reach(d, u.target("six.test"))
	wantRefused(t, err, policies.ReasonFloorHard) // found, and judged
	if a, err := reach(d, u.target("both.test")); err != nil || a != good {
		t.Errorf("IPv4 first: %v, %v", a, err)
	}
}

func TestProxySettingsIgnored(t *testing.T) {
	for _, k := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(k, "http://127.0.0.1:1")
	}
	t.Setenv("RES_OPTIONS", "nameserver:127.0.0.1")
	n, u := newNameserver(t), newUpstream(t)
	n.records("good.test", "good.test. 60 IN A 127.0.0.2")
	if _, err := reach(dialer(t, n, dial.Config{}), u.target("good.test")); err != nil {
		t.Error(err)
	}
}

func TestAddressesAreBounded(t *testing.T) {
	m := new(dns.Msg)
	for i := range 200 {
		m.Answer = append(m.Answer, rrs(dns.TypeA, fmt.Sprintf("many.test. 60 IN A 203.0.113.%d", i))...)
	}
	_, addrs, kind := dial.ReadForTest(dial.ParseForTest(m, "many.test", dns.TypeA, 8))
	if len(addrs) != 8 || kind != "" {
		t.Errorf("%d addresses, %q", len(addrs), kind)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, cfg := range map[string]dial.Config{
		"no server":        {},
		"a port is needed": {Servers: []netip.AddrPort{netip.AddrPortFrom(good, 0)}},
		"negative timeout": {Servers: []netip.AddrPort{netip.AddrPortFrom(good, 53)}, TryTimeout: -1},
	} {
		if _, err := dial.New(cfg, nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestExemptionEndsAtTheDialer: what has ended since the floor was set opens nothing, neither to a dial nor to a lookup.
func TestExemptionEndsAtTheDialer(t *testing.T) {
	n := newNameserver(t)
	n.records("db.test", "db.test. 60 IN A 203.0.113.7")
	d := floorDialer(t, n, dial.Config{ConnectTimeout: time.Nanosecond})
	target := dial.Target{Org: "org_a", Host: "db.test", Port: 443, Named: true}
	for _, left := range []time.Duration{time.Hour, -time.Second} {
		floor, err := policies.NewFloor(policies.FloorConfig{Exempt: []policies.Exemption{{CIDR: netip.MustParsePrefix("203.0.113.0/24"), Orgs: []string{"org_a"}, ExpiresAt: time.Now().Add(left)}}})
		if err != nil {
			t.Fatal(err)
		}
		d.SetFloor(floor)
		_, dialled := reach(d, target)
		addrs, _, lookedUp := d.Lookup(t.Context(), target)
		if left > 0 {
			wantKind(t, dialled, dial.DialTimeout)
			if lookedUp != nil || len(addrs) != 1 {
				t.Errorf("before its end: %v, %v", addrs, lookedUp)
			}
			continue
		}
		wantRefused(t, dialled, policies.ReasonFloorSoft)
		wantRefused(t, lookedUp, policies.ReasonFloorSoft)
	}
}

func TestErrorNamesItsCause(t *testing.T) {
	for want, err := range map[string]*dial.Error{
		`dialing "good.test": resolve_no_address`:       {Kind: dial.NoAddress, Host: "good.test"},
		`dialing "good.test": dial_failed: no such way`: {Kind: dial.DialFailed, Host: "good.test", Err: errors.New("no such way")},
	} {
		if got := err.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
