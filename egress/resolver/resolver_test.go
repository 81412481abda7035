package resolver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"portreeve.dev/egress"
	"portreeve.dev/egress/decisions"
	"portreeve.dev/egress/egresstest"
	"portreeve.dev/egress/resolver"
	"portreeve.dev/policies"
)

// A recorder keeps decisions in memory, and fails on demand.
type recorder struct {
	mu   sync.Mutex
	all  []decisions.Decision
	fail error
}

func (r *recorder) Record(_ context.Context, d *decisions.Decision) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	r.all = append(r.all, *d)
	return nil
}

func (r *recorder) set(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

func (r *recorder) take() []decisions.Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

// A source gives one snapshot to all.
type source struct {
	mu       sync.Mutex
	snapshot *policies.Snapshot
	revision uint64
	err      error
}

func (s *source) Snapshot(egress.Binding) (*policies.Snapshot, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot, s.revision, s.err
}

func (s *source) set(snapshot *policies.Snapshot, revision uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshot, s.revision, s.err = snapshot, revision, err
}

const policy = `{"rules":[
	{"id":"r1","action":"allow","hosts":["good.test","fine.test","metadata.google.internal"]},
	{"id":"r2","action":"allow","hosts":["*.wild.test"]},
	{"id":"r3","action":"deny","hosts":["bad.wild.test"],"message":"not that one"}]}`

// A world is a server with two sandboxes, boxA and boxB, known by their addresses on loopback.
type world struct {
	server   *resolver.Server
	names    *resolver.Names
	source   *source
	recorder *recorder
	bindings *egress.Bindings
	port     int
	clock    atomic.Int64 // seconds added to the wall clock
}

var (
	boxA   = egress.Binding{Sandbox: "sbx_a", Org: "org_a", Incarnation: 1, Generation: 1, Addr: netip.MustParseAddr("127.0.1.1"), MinRevision: 7}
	boxB   = egress.Binding{Sandbox: "sbx_b", Org: "org_b", Incarnation: 1, Generation: 1, Addr: netip.MustParseAddr("127.0.1.3"), MinRevision: 7}
	nobody = netip.MustParseAddr("127.0.1.9")
)

func newWorld(t testing.TB, cfg resolver.Config, names resolver.NamesConfig) *world {
	t.Helper()
	w := &world{source: &source{snapshot: egresstest.Compile(t, policy), revision: 7}, recorder: new(recorder), bindings: egress.NewBindings(nil)}
	for _, b := range []egress.Binding{boxA, boxB} {
		if err := w.bindings.Bind(b); err != nil {
			t.Fatal(err)
		}
	}
	floor, err := policies.NewFloor(policies.FloorConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if w.names, err = resolver.NewNames(names); err != nil {
		t.Fatal(err)
	}
	cfg.Bindings, cfg.Policies, cfg.Names = w.bindings, w.source, w.names
	if cfg.Recorder == nil {
		cfg.Recorder = w.recorder
	}
	if cfg.Floor == nil {
		cfg.Floor = func() *policies.Floor { return floor }
	}
	cfg.Now = func() time.Time { return time.Now().Add(time.Duration(w.clock.Load()) * time.Second) }
	if w.server, err = resolver.New(cfg); err != nil {
		t.Fatal(err)
	}
	return w
}

// serve starts the server on real sockets.
func (w *world) serve(t testing.TB) {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_PKTINFO, 1) })
		return errors.Join(err, cerr)
	}}
	u, l := onePort(t, &lc)
	w.port = u.LocalAddr().(*net.UDPAddr).Port
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.server.Serve(ctx, u.(*net.UDPConn), l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serving: %v", err)
		}
		goleak.VerifyNone(t, leaks)
	})
}

// onePort listens on one port over both protocols; a port that is free for one may be taken for the other.
func onePort(t testing.TB, lc *net.ListenConfig) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp4", "0.0.0.0:0")
		if err != nil {
			t.Fatal(err)
		}
		u, err := lc.ListenPacket(context.Background(), "udp4", l.Addr().String())
		if err == nil {
			return u, l
		}
		l.Close()
	}
	t.Fatal("no port is free for both")
	return nil, nil
}

// dial opens a socket of the sandbox at from, to any server at all.
func (w *world) dial(t testing.TB, network string, from netip.Addr) net.Conn {
	t.Helper()
	var local net.Addr = &net.UDPAddr{IP: from.AsSlice()}
	if network == "tcp" {
		local = &net.TCPAddr{IP: from.AsSlice()}
	}
	c, err := (&net.Dialer{LocalAddr: local}).Dial(network, fmt.Sprintf("127.0.0.9:%d", w.port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(5 * time.Second))
	return c
}

func question(name string, qtype uint16) *dns.Msg {
	q := new(dns.Msg)
	q.SetQuestion(name, qtype)
	return q
}

// ask sends q as the sandbox at from.
func (w *world) ask(t testing.TB, from netip.Addr, q *dns.Msg) *dns.Msg {
	t.Helper()
	c := &dns.Conn{Conn: w.dial(t, "udp", from), UDPSize: 4096}
	if err := c.WriteMsg(q); err != nil {
		t.Fatal(err)
	}
	r, err := c.ReadMsg()
	if err != nil {
		t.Fatal(err)
	}
	if r.Id != q.Id || !r.Response {
		t.Errorf("answer's head: %v", r.MsgHdr)
	}
	return r
}

func address(r *dns.Msg) (addr netip.Addr) {
	if len(r.Answer) == 1 {
		if a, ok := r.Answer[0].(*dns.A); ok {
			addr, _ = netip.AddrFromSlice(a.A.To4())
		}
	}
	return addr
}

func wantCode(t testing.TB, r *dns.Msg, code int) {
	t.Helper()
	if r.Rcode != code || len(r.Answer) != 0 {
		t.Errorf("%v, want %s without an answer", r, dns.RcodeToString[code])
	}
}

// wantNegative also wants the SOA record that lets a client keep the answer for 5 s.
func wantNegative(t testing.TB, r *dns.Msg, code int) {
	t.Helper()
	wantCode(t, r, code)
	if len(r.Ns) != 1 || r.Ns[0].Header().Rrtype != dns.TypeSOA || r.Ns[0].Header().Ttl != 5 || r.Ns[0].(*dns.SOA).Minttl != 5 {
		t.Errorf("no SOA for 5 s in %v", r)
	}
}

func ede(r *dns.Msg) *dns.EDNS0_EDE {
	if o := r.IsEdns0(); o != nil && len(o.Option) == 1 {
		e, _ := o.Option[0].(*dns.EDNS0_EDE)
		return e
	}
	return nil
}

func TestAllowedNameHasAddress(t *testing.T) {
	w := newWorld(t, resolver.Config{}, resolver.NamesConfig{})
	w.serve(t)
	r := w.ask(t, boxA.Addr, question("GoOd.test.", dns.TypeA))
	addr := address(r)
	if r.Rcode != dns.RcodeSuccess || !w.names.Contains(addr) || r.Answer[0].Header().Ttl != 60 || r.Answer[0].Header().Name != "GoOd.test." {
		t.Fatalf("answer %v", r)
	}
	if name, ok := w.names.Name("sbx_a", 1, addr); !ok || name != "good.test" {
		t.Errorf("%v stands for %q, %v", addr, name, ok)
	}
	if again := address(w.ask(t, boxA.Addr, question("good.test.", dns.TypeA))); again != addr {
		t.Errorf("asked again: %v, before: %v", again, addr)
	}
	all := w.recorder.take()
	if len(all) != 1 {
		t.Fatalf("%d lines for one name: %+v", len(all), all)
	}
	d := all[0]
	if d.Verdict != "allow" || d.Reason != "allowed" || d.Rule != "r1" || d.RuleLayer != "ceiling" || d.Revision != 7 || d.Host != "good.test" ||
		d.Layer != "dns" || d.Protocol != "dns" || d.Sandbox != "sbx_a" || d.Org != "org_a" || d.ID == "" {
		t.Errorf("line %+v", d)
	}
	w.clock.Store(11)
	w.ask(t, boxA.Addr, question("good.test.", dns.TypeA))
	if n := len(w.recorder.take()); n != 1 {
		t.Errorf("%d lines after the window", n)
	}
}

func TestDeniedNameHasNoAddress(t *testing.T) {
	w := newWorld(t, resolver.Config{}, resolver.NamesConfig{})
	w.serve(t)
	for name, reason := range map[string]string{"evil.test.": "no_rule", "bad.wild.test.": "rule_denied", "wild.test.": "no_rule", "x.good.test.": "no_rule",
		"12.": "host_invalid", "a\\.b.wild.test.": "host_invalid", ".": "host_invalid"} {
		w.clock.Add(11) // so that no line is spared as a repetition
		t.Run(name, func(t *testing.T) {
			for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS} {
				r := w.ask(t, boxA.Addr, question(name, qtype))
				wantNegative(t, r, dns.RcodeNameError)
				if r.IsEdns0() != nil {
					t.Error("an OPT record to a client that sent none")
				}
			}
			q := question(name, dns.TypeA)
			q.SetEdns0(4096, false)
			r := w.ask(t, boxA.Addr, q)
			wantNegative(t, r, dns.RcodeNameError)
			all := w.recorder.take()
			if len(all) != 1 || all[0].Verdict != "deny" || all[0].Reason != reason {
				t.Fatalf("lines %+v", all)
			}
			if e := ede(r); e == nil || e.InfoCode != dns.ExtendedErrorCodeBlocked || e.ExtraText != reason+" "+all[0].ID {
				t.Errorf("extended error %v, want %s %s", e, reason, all[0].ID)
			}
			if reason == "rule_denied" && all[0].Guidance != "not that one" {
				t.Errorf("guidance %q", all[0].Guidance)
			}
		})
	}
	if len(w.names.Export()) != 0 {
		t.Errorf("denied names have addresses: %v", w.names.Export())
	}
	if a := address(w.ask(t, boxA.Addr, question("x.wild.test.", dns.TypeA))); !a.IsValid() {
		t.Error("an allowed name has no address")
	}
}

func TestNoFreshPolicyNoAddress(t *testing.T) {
	w := newWorld(t, resolver.Config{}, resolver.NamesConfig{})
	w.serve(t)
	fresh := egresstest.Compile(t, policy)
	for name, set := range map[string]func(){
		"the source fails":             func() { w.source.set(fresh, 7, errors.New("stale")) },
		"no snapshot":                  func() { w.source.set(nil, 7, nil) },
		"a revision below the lowest":  func() { w.source.set(fresh, 6, nil) },
		"none, and the revision is up": func() { w.source.set(nil, 8, nil) },
	} {
		set()
		r := w.ask(t, boxA.Addr, question("good.test.", dns.TypeA))
		t.Run(name, func(t *testing.T) { wantCode(t, r, dns.RcodeServerFailure) })
	}
	if r := w.ask(t, boxA.Addr, question("portreeve.internal.", dns.TypeA)); address(r) != w.names.Self() {
		t.Errorf("our own name without a policy: %v", r)
	}
	w.source.set(fresh, 7, nil)
	if r := w.ask(t, boxA.Addr, question("good.test.", dns.TypeA)); !address(r).IsValid() {
		t.Errorf("under a fresh policy: %v", r)
	}
	w.source.set(egresstest.Compile(t, `{"rules":[]}`), 8, nil)
	wantNegative(t, w.ask(t, boxA.Addr, question("good.test.", dns.TypeA)), dns.RcodeNameError)
}

func TestUnrecordedIsNotAnswered(t *testing.T) {
	w := newWorld(t, resolver.Config{}, resolver.NamesConfig{})
	w.serve(t)
	w.recorder.set(errors.New("disk full"))
	wantCode(t, w.ask(t, boxA.Addr, question("good.test.", dns.TypeA)), dns.RcodeServerFailure)
	wantCode(t, w.ask(t, boxA.Addr, question("evil.test.", dns.TypeA)), dns.RcodeServerFailure)
	w.recorder.set(nil)
	if r := w.ask(t, boxA.Addr, question("good.test.", dns.TypeA)); !address(r).IsValid() {
		t.Errorf("recorded again: %v", r)
	}
	if w.server.Stats().Unrecorded != 2 {
		t.Errorf("stats %+v", w.server.Stats())
	}
}

func TestFloorNameDenied(t *testing.T) {
	w := newWorld(t, resolver.Config{}, resolver.NamesConfig{})
	w.serve(t)
	wantNegative(t, w.ask(t, boxA.Addr, question("metadata.google.internal.", dns.TypeA)), dns.RcodeNameError)
	if all := w.recorder.take(); len(all) != 1 || all[0].Reason != "floor_hard" || all[0].RuleLayer != "floor" {
		t.Errorf("lines %+v", all)
	}
	none := newWorld(t, resolver.Config{Floor: func() *policies.Floor { return nil }}, resolver.NamesConfig{})
	none.serve(t)
	wantCode(t, none.ask(t, boxA.Addr, question("good.test.", dns.TypeA)), dns.RcodeServerFailure)
	if all := none.recorder.take(); len(all) != 1 || all[0].Reason != "stale_policy" {
		t.Errorf("without a floor: %+v", all)
	}
}

func TestTablesAreApart(t *testing.T) {
	w := newWorld(t, resolver.Config{}, resolver.NamesConfig{})
	w.serve(t)
	a := address(w.ask(t, boxA.Addr, question("good.test.", dns.TypeA)))
	b := address(w.ask(t, boxB.Addr, question("fine.test.", dns.TypeA)))
	if name, _ := w.names.Name("sbx_b", 1, b); name != "fine.test" {
		t.Errorf("b's address stands for %q", name)
	}
	if name, _ := w.names.Name("sbx_a", 1, b); name == "fine.test" {
		t.Error("b's name is in a's table")
	}
	if _, ok := w.names.Name("sbx_a", 2, a); ok {
		t.Error("an address outlived its incarnation")
	}
	arpa, err := dns.ReverseAddr(a.String())
	if err != nil {
		t.Fatal(err)
	}
	if r := w.ask(t, boxA.Addr, question(arpa, dns.TypePTR)); len(r.Answer) != 1 || r.Answer[0].(*dns.PTR).Ptr != "good.test." {
		t.Errorf("reverse lookup of a's own address: %v", r)
	}
	if r := w.ask(t, boxB.Addr, question(arpa, dns.TypePTR)); len(r.Answer) == 1 && r.Answer[0].(*dns.PTR).Ptr == "good.test." {
		t.Errorf("b looked up a's address: %v", r)
	}
	for _, name := range []string{"1.0.0.127.in-addr.arpa.", "8.8.8.8.in-addr.arpa.", "x.in-addr.arpa.", "1.0.in-addr.arpa.", "1.0.0.0.ip6.arpa."} {
		wantNegative(t, w.ask(t, boxA.Addr, question(name, dns.TypePTR)), dns.RcodeNameError)
	}
	w.server.Drop("sbx_a")
	if _, ok := w.names.Name("sbx_a", 1, a); ok {
		t.Error("a dropped sandbox has a name")
	}
}

func TestUnknownSourceIsIgnored(t *testing.T) {
	w := newWorld(t, resolver.Config{}, resolver.NamesConfig{})
	w.serve(t)
	for i, network := range []string{"udp", "tcp"} {
		c := &dns.Conn{Conn: w.dial(t, network, nobody)}
		c.WriteMsg(question("good.test.", dns.TypeA))
		for w.server.Stats().Unknown < uint64(i+1) { // it is past the socket
			runtime.Gosched()
		}
		c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if r, err := c.ReadMsg(); err == nil {
			t.Errorf("over %s nobody was answered %v", network, r)
		}
	}
	if s := w.server.Stats(); s.Unknown != 2 || s.Queries != 0 || len(w.recorder.take()) != 0 {
		t.Errorf("stats %+v", s)
	}
	w.ask(t, boxA.Addr, question("good.test.", dns.TypeA))
}

func TestOtherTypesAreEmpty(t *testing.T) {
	w := newWorld(t, resolver.Config{}, resolver.NamesConfig{})
	w.serve(t)
	for _, name := range []string{"good.test.", "portreeve.internal."} {
		for _, qtype := range []uint16{dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSVCB, dns.TypeTXT, dns.TypeMX, dns.TypeNS, dns.TypeSOA, dns.TypeSRV, dns.TypeCNAME, dns.TypePTR, dns.TypeNAPTR, dns.TypeDS, 65000} {
			r := w.ask(t, boxA.Addr, question(name, qtype))
			t.Run(name+dns.Type(qtype).String(), func(t *testing.T) { wantNegative(t, r, dns.RcodeSuccess) })
		}
	}
	if all := w.recorder.take(); len(all) != 1 {
		t.Errorf("%d lines for one name", len(all))
	}
	arpa, _ := dns.ReverseAddr(w.names.Self().String())
	if r := w.ask(t, boxA.Addr, question(arpa, dns.TypePTR)); len(r.Answer) != 1 || r.Answer[0].(*dns.PTR).Ptr != "portreeve.internal." {
		t.Errorf("reverse lookup of our own address: %v", r)
	}
	wantNegative(t, w.ask(t, boxA.Addr, question(arpa, dns.TypeTXT)), dns.RcodeSuccess)
}

func TestOddQueriesRefused(t *testing.T) {
	w := newWorld(t, resolver.Config{}, resolver.NamesConfig{})
	w.serve(t)
	for name, c := range map[string]struct {
		code  int
		spoil func(q *dns.Msg)
	}{
		"everything":          {dns.RcodeRefused, func(q *dns.Msg) { q.Question[0].Qtype = dns.TypeANY }},
		"a zone transfer":     {dns.RcodeRefused, func(q *dns.Msg) { q.Question[0].Qtype = dns.TypeAXFR }},
		"a part of a zone":    {dns.RcodeRefused, func(q *dns.Msg) { q.Question[0].Qtype = dns.TypeIXFR }},
		"class chaos":         {dns.RcodeRefused, func(q *dns.Msg) { q.Question[0].Qclass = dns.ClassCHAOS }},
		"any class":           {dns.RcodeRefused, func(q *dns.Msg) { q.Question[0].Qclass = dns.ClassANY }},
		"type OPT":            {dns.RcodeRefused, func(q *dns.Msg) { q.Question[0].Qtype = dns.TypeOPT }},
		"notify":              {dns.RcodeRefused, func(q *dns.Msg) { q.Opcode = dns.OpcodeNotify }},
		"update":              {dns.RcodeRefused, func(q *dns.Msg) { q.Opcode = dns.OpcodeUpdate }},
		"two questions":       {dns.RcodeFormatError, func(q *dns.Msg) { q.Question = append(q.Question, q.Question[0]) }},
		"no question":         {dns.RcodeFormatError, func(q *dns.Msg) { q.Question = nil }},
		"an answer within":    {dns.RcodeFormatError, func(q *dns.Msg) { q.Answer = []dns.RR{record("good.test. 1 IN A 127.0.0.1")} }},
		"an authority within": {dns.RcodeFormatError, func(q *dns.Msg) { q.Ns = []dns.RR{record("good.test. 1 IN A 127.0.0.1")} }},
		"something beside":    {dns.RcodeFormatError, func(q *dns.Msg) { q.Extra = []dns.RR{record("good.test. 1 IN A 127.0.0.1")} }},
		"two OPT records":     {dns.RcodeFormatError, func(q *dns.Msg) { q.SetEdns0(1232, false); q.Extra = append(q.Extra, q.Extra[0]) }},
	} {
		t.Run(name, func(t *testing.T) {
			q := question("good.test.", dns.TypeA)
			c.spoil(q)
			wantCode(t, w.ask(t, boxA.Addr, q), c.code)
		})
	}
	q := question("good.test.", dns.TypeA)
	q.SetEdns0(1232, false)
	q.IsEdns0().SetVersion(1)
	if r := w.ask(t, boxA.Addr, q); r.Rcode != dns.RcodeBadVers || len(r.Answer) != 0 {
		t.Errorf("another version of EDNS: %v", r)
	}
	all := w.recorder.take()
	if len(all) != 2 { // dns_type and parse_error
		t.Errorf("%d lines: %+v", len(all), all)
	}
	// What is no query gets no answer; the next query on the same socket does.
	c := &dns.Conn{Conn: w.dial(t, "udp", boxA.Addr)}
	c.Conn.Write([]byte("short"))
	noise := question("good.test.", dns.TypeA)
	noise.Response = true
	c.WriteMsg(noise)
	q = question("good.test.", dns.TypeA)
	c.WriteMsg(q)
	if r, err := c.ReadMsg(); err != nil || r.Id != q.Id || !address(r).IsValid() {
		t.Errorf("after noise: %v, %v", r, err)
	}
	// Too long to be a question.
	long := make([]byte, 2000)
	wire, _ := question("good.test.", dns.TypeA).Pack()
	copy(long, wire)
	c.Conn.Write(long)
	if r, err := c.ReadMsg(); err != nil || r.Rcode != dns.RcodeFormatError {
		t.Errorf("a query of 2000 bytes: %v, %v", r, err)
	}
}

func record(line string) dns.RR {
	rr, err := dns.NewRR(line)
	if err != nil {
		panic(err)
	}
	return rr
}

func TestQueryBudget(t *testing.T) {
	w := newWorld(t, resolver.Config{Rate: 1, Burst: 5}, resolver.NamesConfig{})
	w.serve(t)
	for range 5 {
		if r := w.ask(t, boxA.Addr, question("good.test.", dns.TypeA)); !address(r).IsValid() {
			t.Fatal("within the budget:", r)
		}
	}
	for range 5 {
		wantCode(t, w.ask(t, boxA.Addr, question("good.test.", dns.TypeA)), dns.RcodeRefused)
	}
	if r := w.ask(t, boxB.Addr, question("good.test.", dns.TypeA)); !address(r).IsValid() {
		t.Error("the neighbour:", r)
	}
	var lines []string
	for _, d := range w.recorder.take() {
		lines = append(lines, d.Sandbox+" "+d.Reason)
	}
	if fmt.Sprint(lines) != "[sbx_a allowed sbx_a budget sbx_b allowed]" {
		t.Errorf("lines %v", lines)
	}
	w.clock.Store(3)
	if r := w.ask(t, boxA.Addr, question("good.test.", dns.TypeA)); !address(r).IsValid() {
		t.Error("later:", r)
	}
}

func TestNameBudget(t *testing.T) {
	w := newWorld(t, resolver.Config{DistinctNames: 10}, resolver.NamesConfig{})
	w.serve(t)
	for i := range 20 {
		r := w.ask(t, boxA.Addr, question(fmt.Sprintf("n%d.wild.test.", i), dns.TypeA))
		if i < 10 && !address(r).IsValid() {
			t.Fatal("within the budget:", r)
		}
		if i >= 10 {
			wantCode(t, r, dns.RcodeServerFailure)
		}
	}
	if r := w.ask(t, boxA.Addr, question("n3.wild.test.", dns.TypeA)); !address(r).IsValid() {
		t.Error("a known name after the budget is spent:", r)
	}
	if all := w.recorder.take(); len(all) != 11 || all[10].Reason != "budget" {
		t.Errorf("%d lines, the last %+v", len(all), all[len(all)-1])
	}
	small := newWorld(t, resolver.Config{NameBytes: 30}, resolver.NamesConfig{})
	small.serve(t)
	if r := small.ask(t, boxA.Addr, question("aaaaaaaaaa.wild.test.", dns.TypeA)); !address(r).IsValid() {
		t.Error("20 of 30 bytes:", r)
	}
	wantCode(t, small.ask(t, boxA.Addr, question("bbbbbbbbbb.wild.test.", dns.TypeA)), dns.RcodeServerFailure)
	if r := small.ask(t, boxA.Addr, question("good.test.", dns.TypeA)); !address(r).IsValid() {
		t.Error("29 of 30 bytes:", r)
	}
}

func TestAnswerComesFromAskedAddress(t *testing.T) {
	w := newWorld(t, resolver.Config{}, resolver.NamesConfig{})
	w.serve(t)
	u, err := net.ListenUDP("udp4", &net.UDPAddr{IP: boxA.Addr.AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	u.SetDeadline(time.Now().Add(5 * time.Second))
	wire, _ := question("good.test.", dns.TypeA).Pack()
	for _, asked := range []string{"127.0.0.9", "127.77.8.8", "127.0.0.1"} {
		to := netip.AddrPortFrom(netip.MustParseAddr(asked), uint16(w.port))
		if _, err := u.WriteToUDPAddrPort(wire, to); err != nil {
			t.Fatal(err)
		}
		_, from, err := u.ReadFromUDPAddrPort(make([]byte, 512))
		if err != nil || from != to {
			t.Errorf("asked %v, answered by %v (%v)", to, from, err)
		}
	}
}

func TestParallelQueriesLeaveOneLine(t *testing.T) {
	slow := &slowRecorder{gate: make(chan struct{})}
	w := newWorld(t, resolver.Config{Recorder: slow}, resolver.NamesConfig{})
	w.serve(t)
	a, aaaa := &dns.Conn{Conn: w.dial(t, "udp", boxA.Addr)}, &dns.Conn{Conn: w.dial(t, "udp", boxA.Addr)}
	a.WriteMsg(question("good.test.", dns.TypeA))
	aaaa.WriteMsg(question("good.test.", dns.TypeAAAA))
	for w.server.Stats().Queries < 2 { // both are past the socket
		runtime.Gosched()
	}
	if slow.count.Load() > 1 {
		t.Error("the second was recorded while the first was")
	}
	close(slow.gate)
	if r, err := a.ReadMsg(); err != nil || !address(r).IsValid() {
		t.Errorf("%v, %v", r, err)
	}
	if r, err := aaaa.ReadMsg(); err != nil || r.Rcode != dns.RcodeSuccess {
		t.Errorf("%v, %v", r, err)
	}
	if slow.count.Load() != 1 {
		t.Errorf("%d lines for one name asked twice at once", slow.count.Load())
	}
}

type slowRecorder struct {
	gate  chan struct{}
	count atomic.Int64
}

func (r *slowRecorder) Record(ctx context.Context, _ *decisions.Decision) error {
	r.count.Add(1)
	select {
	case <-r.gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestExplanationFitsSmallAnswers(t *testing.T) {
	w := newWorld(t, resolver.Config{}, resolver.NamesConfig{})
	label := "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" // 63
	q := question(label+"."+label+"."+label+"."+label[:58]+".t.", dns.TypeA)
	q.SetEdns0(100, false)
	r := new(dns.Msg)
	if err := r.Unpack(w.server.MessageForTest(boxA, pack(t, q), true)); err != nil {
		t.Fatal(err)
	}
	wantNegative(t, r, dns.RcodeNameError)
}

func pack(t testing.TB, q *dns.Msg) []byte {
	t.Helper()
	wire, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

func TestConfigIsChecked(t *testing.T) {
	if _, err := resolver.New(resolver.Config{}); err == nil {
		t.Error("a server without any of its parts")
	}
}
