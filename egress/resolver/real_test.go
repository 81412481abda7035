package resolver_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/egress/egresstest"
	"portreeve.dev/egress/resolver"
	"portreeve.dev/policies"
)

// outside plays the dialer's resolver: it knows some names, and remembers what it was asked.
type outside struct {
	mu    sync.Mutex
	asked []resolver.Question
	addrs map[string][]netip.Addr
	ttl   time.Duration
	fail  map[string]error
	at    []int // how many decisions there were at each question
	lines *recorder
}

func (o *outside) lookup(_ context.Context, q resolver.Question) ([]netip.Addr, time.Duration, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, q)
	if o.lines != nil {
		o.lines.mu.Lock()
		o.at = append(o.at, len(o.lines.all))
		o.lines.mu.Unlock()
	}
	if err := o.fail[q.Host]; err != nil {
		return nil, 0, err
	}
	var out []netip.Addr
	for _, a := range o.addrs[q.Host] {
		if v := q.Address(a); !v.Allowed() {
			return nil, 0, &resolver.RefusedError{Verdict: v, Addr: a}
		}
		out = append(out, a)
	}
	if out == nil {
		return nil, 0, resolver.ErrNoSuchName
	}
	return out, o.ttl, nil
}

// set changes what is outside.
func (o *outside) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

func (o *outside) names() (names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, q := range o.asked {
		names = append(names, q.Host)
	}
	return names
}

const realPolicy = `{"rules":[
	{"id":"real","action":"allow","hosts":["real.test","two.test","gone.test","broken.test","closed.test","shut.test","*.open.test"],"dns":"real"},
	{"id":"plain","action":"allow","hosts":["plain.test","*.wild.test"]},
	{"id":"not","action":"deny","hosts":["not.open.test"]},
	{"id":"net","action":"deny","cidrs":["203.0.113.66/32"]}]}`

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func newRealWorld(t testing.TB, cfg resolver.Config) (*world, *outside) {
	t.Helper()
	o := &outside{ttl: 30 * time.Second, fail: make(map[string]error), addrs: map[string][]netip.Addr{
		"real.test": addrs("203.0.113.1", "203.0.113.2", "2001:db8::1"), "two.test": addrs("203.0.113.1"), "shut.test": addrs("203.0.113.66")}}
	o.fail["broken.test"] = errors.New("no server answers")
	o.fail["closed.test"] = &resolver.RefusedError{Verdict: policies.Verdict{Reason: policies.ReasonFloorSoft, Layer: policies.FloorLayer}, Addr: netip.MustParseAddr("10.0.0.5")}
	cfg.Lookup = o.lookup
	w := newWorld(t, cfg, resolver.NamesConfig{})
	o.set(func() { o.lines = w.recorder })
	w.source.set(egresstest.Compile(t, realPolicy), 7, nil)
	w.serve(t)
	return w, o
}

func answered(r *dns.Msg) (out []netip.Addr) {
	for _, rr := range r.Answer {
		if a, ok := rr.(*dns.A); ok {
			addr, _ := netip.AddrFromSlice(a.A.To4())
			out = append(out, addr)
		}
	}
	return out
}

func TestRealAnswers(t *testing.T) {
	w, o := newRealWorld(t, resolver.Config{})
	for _, tt := range []struct{ lasts, ttl time.Duration }{{30 * time.Second, 30 * time.Second}, {0, 5 * time.Second}, {time.Hour, time.Minute}} {
		o.set(func() { o.ttl = tt.lasts })
		r := w.ask(t, boxA.Addr, question("real.test.", dns.TypeA))
		if got := answered(r); !slices.Equal(got, addrs("203.0.113.1", "203.0.113.2")) || time.Duration(r.Answer[0].Header().Ttl)*time.Second != tt.ttl {
			t.Errorf("lasts %v: %v", tt.lasts, r)
		}
	}
	// Only A is asked for: the rest is empty, as it is for synthetic names.
	before := len(o.names())
	for _, qtype := range []uint16{dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSVCB, dns.TypeTXT, dns.TypeMX, dns.TypeCNAME} {
		wantNegative(t, w.ask(t, boxA.Addr, question("real.test.", qtype)), dns.RcodeSuccess)
	}
	if n := len(o.names()); n != before {
		t.Errorf("%d lookups for other types", n-before)
	}
	if a := address(w.ask(t, boxA.Addr, question("plain.test.", dns.TypeA))); !w.names.Contains(a) {
		t.Errorf("a name without dns: real is at %v", a)
	}
	wantNegative(t, w.ask(t, boxA.Addr, question("gone.test.", dns.TypeA)), dns.RcodeNameError)
	wantCode(t, w.ask(t, boxA.Addr, question("broken.test.", dns.TypeA)), dns.RcodeServerFailure)
	if r := w.ask(t, boxA.Addr, question("2.113.0.203.in-addr.arpa.", dns.TypePTR)); len(r.Answer) != 1 || r.Answer[0].(*dns.PTR).Ptr != "real.test." {
		t.Errorf("back: %v", r)
	}
	// A great many addresses are cut, so that they fit.
	for i := range 40 {
		o.set(func() {
			o.addrs["x.open.test"] = append(o.addrs["x.open.test"], netip.AddrFrom4([4]byte{203, 0, 113, byte(100 + i)}))
		})
	}
	if got := answered(w.ask(t, boxA.Addr, question("x.open.test.", dns.TypeA))); len(got) != 8 {
		t.Errorf("%d addresses", len(got))
	}
}

func TestNothingLeavesForDeniedNames(t *testing.T) {
	w, o := newRealWorld(t, resolver.Config{})
	for _, name := range []string{"evil.test.", "not.open.test.", "open.test.", "secret-data.evil.test.", "12.", "plain.test.", "x.wild.test."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeTXT} {
			w.ask(t, boxA.Addr, question(name, qtype))
		}
	}
	w.recorder.take()
	w.recorder.set(errors.New("disk full"))
	wantCode(t, w.ask(t, boxA.Addr, question("real.test.", dns.TypeA)), dns.RcodeServerFailure)
	w.recorder.set(nil)
	w.source.set(egresstest.Compile(t, realPolicy), 6, nil)
	wantCode(t, w.ask(t, boxA.Addr, question("real.test.", dns.TypeA)), dns.RcodeServerFailure)
	w.source.set(egresstest.Compile(t, realPolicy), 7, nil)
	if names := o.names(); len(names) != 0 {
		t.Fatalf("looked up: %v", names)
	}
	w.recorder.take()
	got := answered(w.ask(t, boxA.Addr, question("real.test.", dns.TypeA)))
	o.set(func() {
		if len(got) != 2 || !slices.Equal(o.at, []int{1}) {
			t.Errorf("the allowed twin: %v, with %v decisions before it left", got, o.at)
		}
	})
}

func TestRealAnswersAreJudged(t *testing.T) {
	w, o := newRealWorld(t, resolver.Config{})
	for name, reason := range map[string]string{"closed.test.": "floor_soft", "shut.test.": "rule_denied"} {
		w.recorder.take()
		wantNegative(t, w.ask(t, boxA.Addr, question(name, dns.TypeA)), dns.RcodeNameError)
		all := w.recorder.take()
		if len(all) != 2 || all[0].Verdict != "allow" || all[1].Verdict != "deny" || all[1].Reason != reason || all[1].Addr == "" {
			t.Errorf("%s: lines %+v", name, all)
		}
	}
	for _, a := range addrs("10.0.0.5", "203.0.113.66") {
		if names := w.names.Pinned("sbx_a", 1, a, time.Now()); len(names) != 0 {
			t.Errorf("%v stands for %v", a, names)
		}
	}
	// The questions that go along know the rules.
	var q resolver.Question
	o.set(func() { q = o.asked[0] })
	if q.Org != "org_a" || !q.Named || q.Alias("not.open.test").Allowed() || !q.Alias("any.other.test").Allowed() {
		t.Errorf("asked %+v", q)
	}
}

func TestPinsAreOfOneSandboxAndEnd(t *testing.T) {
	w, _ := newRealWorld(t, resolver.Config{})
	now := time.Now()
	shared := netip.MustParseAddr("203.0.113.1")
	pinned := func(sandbox string, incarnation uint64, after time.Duration) []string {
		return w.names.Pinned(sandbox, incarnation, shared, now.Add(after))
	}
	if names := pinned("sbx_a", 1, 0); len(names) != 0 {
		t.Fatalf("before it was given: %v", names)
	}
	w.ask(t, boxA.Addr, question("real.test.", dns.TypeA))
	if names := pinned("sbx_a", 1, 0); !slices.Equal(names, []string{"real.test"}) {
		t.Errorf("given for one name: %v", names)
	}
	w.ask(t, boxA.Addr, question("two.test.", dns.TypeA))
	if names := pinned("sbx_a", 1, 0); !slices.Equal(names, []string{"real.test", "two.test"}) {
		t.Errorf("given for two names: %v", names)
	}
	for name, got := range map[string][]string{
		"another sandbox": pinned("sbx_b", 1, 0), "another incarnation": pinned("sbx_a", 2, 0), "after a while": pinned("sbx_a", 1, 10*time.Minute),
		"another address": w.names.Pinned("sbx_a", 1, netip.MustParseAddr("203.0.113.3"), now),
	} {
		if len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
	if names := pinned("sbx_a", 1, 5*time.Minute); len(names) != 2 {
		t.Errorf("a little after its TTL: %v", names)
	}
	w.server.Drop("sbx_a")
	if names := pinned("sbx_a", 1, 0); len(names) != 0 {
		t.Errorf("of a sandbox that is gone: %v", names)
	}
}

// B50: a million names leave a bounded table behind, in which the newest are.
func TestPinsAreBounded(t *testing.T) {
	n := newNames(t, resolver.NamesConfig{})
	now := time.Now()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{203, byte(i >> 16), byte(i >> 8), byte(i)}) }
	for i := range 4200 {
		n.Pin("sbx_a", 1, fmt.Sprint("n", i, ".test"), []netip.Addr{at(i)}, now.Add(time.Duration(i)*time.Millisecond), time.Minute)
	}
	var left int
	for i := range 4200 {
		left += len(n.Pinned("sbx_a", 1, at(i), now))
	}
	if left != 4096 || len(n.Pinned("sbx_a", 1, at(4199), now)) != 1 || len(n.Pinned("sbx_a", 1, at(0), now)) != 0 {
		t.Errorf("%d are left; the newest %v, the oldest %v", left, n.Pinned("sbx_a", 1, at(4199), now), n.Pinned("sbx_a", 1, at(0), now))
	}
}

// B45: names below a wildcard carry data out, to the server of the zone or to whoever is dialled: they end, with one alarm.
func TestWildcardBudget(t *testing.T) {
	for _, zone := range []string{"open.test", "wild.test"} { // looked up, and answered with synthetic addresses
		w, o := newRealWorld(t, resolver.Config{WildcardNames: 20})
		for i := range 40 {
			o.set(func() { o.addrs[fmt.Sprint("n", i, ".", zone)] = addrs("203.0.113.9") })
			r := w.ask(t, boxA.Addr, question(fmt.Sprint("n", i, ".", zone, "."), dns.TypeA))
			if i < 20 && len(answered(r)) != 1 {
				t.Fatalf("within the budget: %v", r)
			}
			if i >= 20 {
				wantNegative(t, r, dns.RcodeNameError)
			}
		}
		if n := len(o.names()); zone == "open.test" && n != 20 || zone == "wild.test" && n != 0 {
			t.Errorf("%s: %d lookups", zone, n)
		}
		alarms := slices.DeleteFunc(w.recorder.take(), func(d decisions.Decision) bool { return d.Reason != "name_budget" })
		if len(alarms) != 1 || alarms[0].Host != "*."+zone || alarms[0].Verdict != "deny" {
			t.Errorf("%s: alarms %+v", zone, alarms)
		}
		w.clock.Store(60)
		wantNegative(t, w.ask(t, boxA.Addr, question("more."+zone+".", dns.TypeA)), dns.RcodeNameError)
		if all := w.recorder.take(); len(all) != 0 {
			t.Errorf("%s: more lines %+v", zone, all)
		}
		if r := w.ask(t, boxA.Addr, question("n3."+zone+".", dns.TypeA)); len(answered(r)) != 1 {
			t.Errorf("%s: a name from before: %v", zone, r)
		}
		if r := w.ask(t, boxA.Addr, question("real.test.", dns.TypeA)); len(answered(r)) != 2 {
			t.Errorf("a name that is no choice of the sandbox's: %v", r)
		}
		if r := w.ask(t, boxB.Addr, question("x."+zone+".", dns.TypeA)); zone == "wild.test" && len(answered(r)) != 1 {
			t.Errorf("another sandbox: %v", r)
		}
	}
	w, o := newRealWorld(t, resolver.Config{WildcardBytes: 200})
	label := strings.Repeat("x", 60)
	for i := range 5 {
		w.ask(t, boxA.Addr, question(fmt.Sprint(i, label, ".open.test."), dns.TypeA))
	}
	if n := len(o.names()); n != 3 {
		t.Errorf("%d lookups of 61 bytes each, within 200", n)
	}
}

// What is reached through a door is looked up too, and out of the same budget.
func TestNamesAtDoorsAreCharged(t *testing.T) {
	w, _ := newRealWorld(t, resolver.Config{WildcardNames: 20})
	for i := range 40 {
		host := fmt.Sprint("n", i, ".wild.test")
		about, ok := w.server.Charge(boxA, host)
		if ok != (i < 20) || ok && about != host || !ok && about != "*.wild.test" {
			t.Errorf("name %d: %q, %v", i, about, ok)
		}
	}
	wantNegative(t, w.ask(t, boxA.Addr, question("more.wild.test.", dns.TypeA)), dns.RcodeNameError)
	if r := w.ask(t, boxA.Addr, question("n3.wild.test.", dns.TypeA)); len(answered(r)) != 1 {
		t.Errorf("a name from before: %v", r)
	}
	if _, ok := w.server.Charge(boxA, "real.test"); !ok {
		t.Error("a name that is no choice of the sandbox's is refused")
	}
	if _, ok := w.server.Charge(boxB, "more.wild.test"); !ok {
		t.Error("another sandbox pays for it")
	}
}

func TestLookupBudget(t *testing.T) {
	w, o := newRealWorld(t, resolver.Config{LookupRate: 1, LookupBurst: 5})
	for range 20 {
		w.ask(t, boxA.Addr, question("real.test.", dns.TypeA))
	}
	if n := len(o.names()); n < 5 || n > 6 {
		t.Errorf("%d lookups", n)
	}
	all := slices.DeleteFunc(w.recorder.take(), func(d decisions.Decision) bool { return d.Reason != "budget" })
	if len(all) != 1 {
		t.Errorf("lines %+v", all)
	}
	if r := w.ask(t, boxA.Addr, question("plain.test.", dns.TypeA)); len(answered(r)) != 1 {
		t.Errorf("a name that needs no lookup: %v", r)
	}
	if r := w.ask(t, boxB.Addr, question("real.test.", dns.TypeA)); len(answered(r)) != 2 {
		t.Errorf("another sandbox: %v", r)
	}
}
