package flows_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/egresstest"
	"portreeve.dev/egress/flows"
	"portreeve.dev/policies"
)

func allowing(t testing.TB, hosts ...string) *policies.Snapshot {
	rules := ""
	for i, h := range hosts {
		rules += fmt.Sprintf(`,{"id":"r%d","action":"allow","hosts":[%q]}`, i, h)
	}
	return egresstest.Compile(t, `{"rules":[`+rules[min(1, len(rules)):]+`]}`)
}

type source struct {
	mu       sync.Mutex
	byBox    map[string]*policies.Snapshot // overrides
	snapshot *policies.Snapshot
	revision uint64
	err      error
}

func (s *source) Snapshot(b egress.Binding) (*policies.Snapshot, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own, ok := s.byBox[b.Sandbox]; ok {
		return own, s.revision, s.err
	}
	return s.snapshot, s.revision, s.err
}

// counting counts how often it is asked.
type counting struct {
	*source
	asked *int
}

func (c counting) Snapshot(b egress.Binding) (*policies.Snapshot, uint64, error) {
	*c.asked++
	return c.source.Snapshot(b)
}

type world struct {
	*flows.Table
	source   *source
	bindings *egress.Bindings
	floor    *policies.Floor
	killed   map[string]policies.Reason
	mu       sync.Mutex
}

func newWorld(t testing.TB, cfg flows.Config) *world {
	t.Helper()
	w := &world{source: &source{snapshot: allowing(t, "a.test", "b.test"), revision: 3, byBox: map[string]*policies.Snapshot{}},
		bindings: egress.NewBindings(nil), killed: make(map[string]policies.Reason)}
	w.floor = floor(t, "203.0.113.0/24")
	cfg.Policies, cfg.Bindings, cfg.Floor = w.source, w.bindings, func() *policies.Floor { return w.floor }
	var err error
	if w.Table, err = flows.New(cfg); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if err := w.bindings.Bind(binding(i)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func floor(t testing.TB, exempt string) *policies.Floor {
	t.Helper()
	f, err := policies.NewFloor(policies.FloorConfig{Exempt: []policies.Exemption{{CIDR: netip.MustParsePrefix(exempt), Orgs: []string{"*"}}}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// binding: sandboxes 0 and 1 are of one org, 2 and 3 of another.
func binding(i int) egress.Binding {
	return egress.Binding{Sandbox: fmt.Sprintf("sbx_%d", i), Org: fmt.Sprintf("org_%d", i/2), Incarnation: 1, Generation: 1,
		Addr: netip.AddrFrom4([4]byte{10, 200, 0, byte(2*i + 1)}), MinRevision: 3}
}

func (w *world) flow(id string, box int, host string) flows.Flow {
	return flows.Flow{ID: id, Binding: binding(box), Remote: netip.MustParseAddrPort("203.0.113.7:443"),
		Request: policies.Request{Stage: policies.StageConnect, Host: host, Port: 443, Protocol: policies.HTTPS},
		Kill: func(r policies.Reason) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if old, ok := w.killed[id]; ok {
				panic(fmt.Sprintf("%s killed twice: %s, %s", id, old, r))
			}
			w.killed[id] = r
		}}
}

func (w *world) add(t testing.TB, f flows.Flow) func() {
	t.Helper()
	remove, err := w.Add(f)
	if err != nil {
		t.Fatal(err)
	}
	return remove
}

// want compares who was killed since the last call, and why.
func (w *world) want(t testing.TB, want map[string]policies.Reason) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if fmt.Sprint(w.killed) != fmt.Sprint(want) {
		t.Errorf("killed %v, want %v", w.killed, want)
	}
	clear(w.killed)
}

func TestTightenedPolicyEndsFlow(t *testing.T) {
	w := newWorld(t, flows.Config{})
	w.add(t, w.flow("a0", 0, "a.test"))
	removeB := w.add(t, w.flow("b0", 0, "b.test"))
	w.add(t, w.flow("a2", 2, "a.test"))
	if n := w.Rejudge(); n != 0 {
		t.Errorf("%d ended under an unchanged policy", n)
	}
	w.want(t, nil)
	w.source.byBox["sbx_0"] = allowing(t, "b.test")
	if n := w.Rejudge(); n != 1 {
		t.Errorf("%d ended", n)
	}
	w.want(t, map[string]policies.Reason{"a0": policies.ReasonRevoked})
	w.source.snapshot = allowing(t)
	removeB()
	w.Rejudge()
	w.want(t, map[string]policies.Reason{"a2": policies.ReasonRevoked})
	w.Rejudge() // nobody is killed twice
	w.want(t, nil)
}

func TestUnjudgedFlowIsSeen(t *testing.T) {
	w := newWorld(t, flows.Config{})
	w.add(t, w.flow("a0", 0, "a.test"))
	unjudged := w.flow("c0", 0, "c.test") // its verdict is still to come: its owner will refuse it
	unjudged.Remote = netip.AddrPort{}
	w.add(t, unjudged)
	w.Rejudge()
	w.want(t, nil)
	w.source.snapshot = allowing(t, "a.test", "c.test")
	w.Rejudge() // from here on its owner may have seen an allow
	w.source.snapshot = allowing(t, "a.test")
	w.Rejudge()
	w.want(t, map[string]policies.Reason{"c0": policies.ReasonRevoked})
}

func TestDialledFlowIsJudgedAtOnce(t *testing.T) {
	w := newWorld(t, flows.Config{})
	w.source.snapshot = allowing(t, "b.test") // since a.test was dialled
	w.add(t, w.flow("a0", 0, "a.test"))
	w.add(t, w.flow("b0", 0, "b.test"))
	w.Rejudge()
	w.want(t, map[string]policies.Reason{"a0": policies.ReasonRevoked})
}

func TestLocalFlowIsNotJudged(t *testing.T) {
	w := newWorld(t, flows.Config{Limits: flows.Limits{PerSandbox: 1}})
	f := w.flow("l0", 0, "")
	f.Local, f.Request, f.Remote = true, policies.Request{}, netip.AddrPort{}
	w.add(t, f)
	w.source.err = errors.New("stale")
	w.Rejudge()
	w.want(t, nil)
	if _, err := w.Add(w.flow("a0", 0, "a.test")); !errors.Is(err, flows.ErrSandboxFull) {
		t.Errorf("a local flow doesn't count: %v", err)
	}
	w.bindings.Unbind("sbx_0", binding(0).Addr)
	w.Rejudge()
	w.want(t, map[string]policies.Reason{"l0": policies.ReasonUnbound})
}

func TestPartEndsAlone(t *testing.T) {
	w := newWorld(t, flows.Config{Limits: flows.Limits{PerSandbox: 1}})
	w.add(t, w.flow("a0", 0, "a.test"))
	part := w.flow("part", 0, "b.test")
	part.Within = "a0"
	remove := w.add(t, part)
	w.source.snapshot = allowing(t, "a.test")
	w.Rejudge()
	w.want(t, map[string]policies.Reason{"part": policies.ReasonRevoked})
	remove()
	if _, err := w.Add(w.flow("a1", 0, "a.test")); !errors.Is(err, flows.ErrSandboxFull) {
		t.Errorf("a part that ended made room for a connection: %v", err)
	}
}

func TestStalePolicyEndsFlows(t *testing.T) {
	for name, spoil := range map[string]struct {
		how    func(*source)
		reason policies.Reason
	}{
		"the source fails":       {func(s *source) { s.err = errors.New("stale") }, policies.ReasonStalePolicy},
		"no snapshot":            {func(s *source) { s.snapshot = nil }, policies.ReasonNoPolicy},
		"below the lowest":       {func(s *source) { s.revision = 2 }, policies.ReasonStalePolicy},
		"the same, at the limit": {func(s *source) { s.revision = 3 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, flows.Config{})
			w.add(t, w.flow("a0", 0, "a.test"))
			spoil.how(w.source)
			w.Rejudge()
			if spoil.reason == "" {
				w.want(t, nil)
			} else {
				w.want(t, map[string]policies.Reason{"a0": spoil.reason})
			}
		})
	}
}

func TestFloorEndsFlow(t *testing.T) {
	w := newWorld(t, flows.Config{})
	w.add(t, w.flow("a0", 0, "a.test"))
	public := w.flow("p0", 0, "a.test")
	public.Remote = netip.MustParseAddrPort("93.184.216.34:443")
	w.add(t, public)
	removeU := w.add(t, w.flow("u1", 1, "a.test"))
	w.source.byBox["sbx_1"] = egresstest.Compile(t, `{"rules":[{"id":"r0","action":"allow","any":true}]}`) // no rule names the exempted target any more
	w.Rejudge()
	w.want(t, map[string]policies.Reason{"u1": policies.ReasonFloorSoft})
	removeU()
	public.ID, public.Binding = "p1", binding(1)
	w.add(t, public)()
	w.floor = floor(t, "198.51.100.0/24")
	w.Rejudge()
	w.want(t, map[string]policies.Reason{"a0": policies.ReasonFloorSoft})
	w.floor = nil
	w.Rejudge()
	w.want(t, map[string]policies.Reason{"p0": policies.ReasonFloorHard})
}

func TestDeniedRangeEndsFlow(t *testing.T) {
	w := newWorld(t, flows.Config{})
	w.add(t, w.flow("a0", 0, "a.test"))
	w.source.snapshot = egresstest.Compile(t, `{"rules":[{"id":"r0","action":"allow","hosts":["a.test"]},{"id":"r1","action":"deny","cidrs":["203.0.113.8/32"]}]}`)
	w.Rejudge()
	w.want(t, nil)
	w.source.snapshot = egresstest.Compile(t, `{"rules":[{"id":"r0","action":"allow","hosts":["a.test"]},{"id":"r1","action":"deny","cidrs":["203.0.113.0/24"]}]}`)
	w.Rejudge()
	w.want(t, map[string]policies.Reason{"a0": policies.ReasonRevoked})
}

func TestOpaqueFlowEndsWhenItMustBeSeen(t *testing.T) {
	granted := ""
	w := newWorld(t, flows.Config{MustSee: func(_ egress.Binding, host string) bool { return host == granted }})
	for _, host := range []string{"a.test", "b.test"} {
		f := w.flow("opaque "+host, 0, host)
		f.Opaque = true
		w.add(t, f)
		w.add(t, w.flow("seen "+host, 0, host))
	}
	w.Rejudge()
	w.want(t, nil)
	granted = "b.test"
	w.Rejudge()
	w.want(t, map[string]policies.Reason{"opaque b.test": policies.ReasonRevoked})
	w.source.snapshot = egresstest.Compile(t, `{"rules":[{"id":"r0","action":"allow","hosts":["a.test","b.test"],"tls":"inspect"}]}`)
	w.Rejudge()
	w.want(t, map[string]policies.Reason{"opaque a.test": policies.ReasonRevoked})
}

// The server name of a flow by address is only a claim, but one that ends it when a rule denies it or a secret is granted to it.
func TestClaimEndsFlow(t *testing.T) {
	granted := ""
	w := newWorld(t, flows.Config{MustSee: func(_ egress.Binding, host string) bool { return host == granted }})
	const net = `{"id":"r0","action":"allow","cidrs":["203.0.113.7/32"],"ports":[443]}`
	w.source.snapshot = egresstest.Compile(t, `{"rules":[`+net+`]}`)
	for i, claim := range []string{"", "a.test", "b.test"} {
		f := w.flow("claims "+claim, 0, "")
		f.Claim, f.Opaque, f.Request.Addr = claim, i == 2, f.Remote.Addr()
		w.add(t, f)
	}
	w.Rejudge()
	w.want(t, nil)
	w.source.snapshot = egresstest.Compile(t, `{"rules":[`+net+`,{"id":"r1","action":"deny","hosts":["a.test"]}]}`)
	w.Rejudge()
	w.want(t, map[string]policies.Reason{"claims a.test": policies.ReasonRevoked})
	granted = "b.test"
	w.Rejudge()
	w.want(t, map[string]policies.Reason{"claims b.test": policies.ReasonRevoked})
}

func TestUnboundSandboxEndsFlows(t *testing.T) {
	w := newWorld(t, flows.Config{})
	w.add(t, w.flow("a0", 0, "a.test"))
	w.add(t, w.flow("a1", 1, "a.test"))
	resumed := binding(0)
	resumed.Generation++
	if err := w.bindings.Bind(resumed); err != nil {
		t.Fatal(err)
	}
	w.Rejudge()
	w.want(t, nil) // a resume keeps its connections
	w.bindings.Unbind("sbx_0", resumed.Addr)
	w.Rejudge()
	w.want(t, map[string]policies.Reason{"a0": policies.ReasonUnbound})
	w.bindings.Unbind("sbx_1", binding(1).Addr)
	anew := binding(1)
	anew.Incarnation++
	if err := w.bindings.Bind(anew); err != nil {
		t.Fatal(err)
	}
	w.Rejudge()
	w.want(t, map[string]policies.Reason{"a1": policies.ReasonUnbound})
}

func TestFlowCaps(t *testing.T) {
	w := newWorld(t, flows.Config{Limits: flows.Limits{PerSandbox: 2, PerOrg: 3}})
	remove := w.add(t, w.flow("1", 0, "a.test"))
	w.add(t, w.flow("2", 0, "a.test"))
	if _, err := w.Add(w.flow("3", 0, "a.test")); !errors.Is(err, flows.ErrSandboxFull) {
		t.Errorf("a third of a sandbox: %v", err)
	}
	w.add(t, w.flow("4", 1, "a.test"))
	if _, err := w.Add(w.flow("5", 1, "a.test")); !errors.Is(err, flows.ErrOrgFull) {
		t.Errorf("a fourth of an org: %v", err)
	}
	w.add(t, w.flow("6", 2, "a.test"))
	remove()
	remove()
	w.add(t, w.flow("7", 0, "a.test"))
	if _, err := w.Add(w.flow("8", 0, "a.test")); err == nil {
		t.Error("a flow removed twice made room for two")
	}
	if n := len(w.List("org_0", "")); n != 3 {
		t.Errorf("%d flows of the org", n)
	}
	if n := len(w.List("", "sbx_0")); n != 2 {
		t.Errorf("%d flows of the sandbox", n)
	}
	if n := w.KillSandbox("sbx_0", policies.ReasonUnbound); n != 2 || w.Len() != 4 {
		t.Errorf("%d killed, %d live: they count until they are removed", n, w.Len())
	}
	w.want(t, map[string]policies.Reason{"2": policies.ReasonUnbound, "7": policies.ReasonUnbound})
}

func TestRunEndsExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, flows.Config{})
		end := time.Now().Add(time.Minute)
		w.source.snapshot = egresstest.Compile(t, fmt.Sprintf(`{"rules":[{"id":"r0","action":"allow","hosts":["a.test"],"expires_at":%q},{"id":"r1","action":"allow","hosts":["b.test"]}]}`, end.UTC().Format(time.RFC3339)))
		w.add(t, w.flow("a0", 0, "a.test"))
		w.add(t, w.flow("b0", 0, "b.test"))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		time.Sleep(58 * time.Second) // of the test's own clock
		synctest.Wait()
		w.want(t, nil)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		w.want(t, map[string]policies.Reason{"a0": policies.ReasonRevoked})
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestConcurrentUse(t *testing.T) {
	w := newWorld(t, flows.Config{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				if remove, err := w.Add(w.flow(fmt.Sprintf("f%d-%d", i, j), i%4, "a.test")); err == nil {
					w.List("", "")
					remove()
				}
			}
		})
	}
	for range 20 {
		w.Rejudge()
	}
	wg.Wait()
	if w.Len() != 0 {
		t.Errorf("%d flows are left", w.Len())
	}
}

// However many flows there are, what they are judged by is asked for once a sandbox: a question reads the kernel's clock, which for
// thousands of flows would cost more than the judging.
func TestRejudgeAsksOnceForAll(t *testing.T) {
	var snapshots, floors, grants, holds int
	count := func(n *int) bool { *n++; return true }
	w := newWorld(t, flows.Config{})
	sure := floor(t, "203.0.113.0/24")
	table, err := flows.New(flows.Config{
		Bindings: w.bindings, Policies: counting{w.source, &snapshots}, Floor: func() *policies.Floor { floors++; return sure },
		MustSee: func(egress.Binding, string) bool { return !count(&grants) },
		Holds:   func(egress.Binding, string, uint16, flows.Carried) bool { return count(&holds) },
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		f := w.flow(fmt.Sprint(i), i%2, "a.test")
		f.Opaque, f.Carries = true, []flows.Carried{{Secret: "sec_1", Version: 1}}
		if _, err := table.Add(f); err != nil {
			t.Fatal(err)
		}
	}
	snapshots, floors, grants, holds = 0, 0, 0, 0
	if n := table.Rejudge(); n != 0 {
		t.Fatalf("%d ended", n)
	}
	if snapshots != 2 || floors != 1 || grants != 2 || holds != 2 {
		t.Errorf("for 100 flows of 2 sandboxes: %d snapshots, %d floors, %d grants, %d secrets were asked for", snapshots, floors, grants, holds)
	}
}

// BenchmarkRejudge watches how long a changed policy takes to be applied to 10,000 connections; at most 50 ms.
func BenchmarkRejudge(b *testing.B) {
	w := newWorld(b, plenty)
	for i := range 10000 {
		w.add(b, w.flow(fmt.Sprint(i), i%4, "a.test"))
	}
	b.ReportAllocs()
	for b.Loop() {
		if n := w.Rejudge(); n != 0 {
			b.Fatalf("%d ended", n)
		}
	}
}

// What carries a secret ends with the secret's grant; a new version of it changes nothing, nor does what others carry.
func TestFlowEndsWithTheGrantItCarries(t *testing.T) {
	granted := map[string]bool{"sec_1": true, "sec_2": true}
	w := newWorld(t, flows.Config{Holds: func(b egress.Binding, host string, port uint16, c flows.Carried) bool {
		return b.Sandbox == "sbx_0" && host == "a.test" && port == 443 && granted[c.Secret]
	}})
	add := func(id string, carries ...flows.Carried) {
		t.Helper()
		f := w.flow(id, 0, "a.test")
		f.Upstream, f.Carries = true, carries
		if _, err := w.Add(f); err != nil {
			t.Fatal(err)
		}
	}
	add("flo_1", flows.Carried{Secret: "sec_1", Version: 1})
	add("flo_2", flows.Carried{Secret: "sec_2", Version: 1})
	add("flo_both", flows.Carried{Secret: "sec_2", Version: 1}, flows.Carried{Secret: "sec_1", Version: 2})
	add("flo_none")
	if n := w.Rejudge(); n != 0 {
		t.Fatalf("%d ended while all is granted: %v", n, w.killed)
	}
	granted["sec_1"] = false
	if n := w.Rejudge(); n != 2 || w.killed["flo_1"] != policies.ReasonRevoked || w.killed["flo_both"] != policies.ReasonRevoked {
		t.Errorf("%d ended: %v", n, w.killed)
	}
}

// Where nobody can say what is granted, nothing that carries a secret goes on.
func TestNothingIsCarriedWithoutAWord(t *testing.T) {
	w := newWorld(t, flows.Config{})
	f := w.flow("flo_1", 0, "a.test")
	f.Carries = []flows.Carried{{Secret: "sec_1"}}
	if _, err := w.Add(f); err != nil {
		t.Fatal(err)
	}
	if n := w.Rejudge(); n != 1 {
		t.Errorf("%d ended", n)
	}
}

// plenty is room for a benchmark.
var plenty = flows.Config{Limits: flows.Limits{PerSandbox: 1 << 20, PerOrg: 1 << 20, PerDestination: 1 << 20, NewPerSecond: 1 << 20}}
