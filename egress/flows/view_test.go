package flows_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/flows"
	"portreeve.dev/policies"
)

// lively gives a flow something to tell.
func lively(f flows.Flow, decision string, in, out int64) flows.Flow {
	f.Live = &egress.Live{Since: time.Unix(1000, 0)}
	f.Live.Judge(egress.Judged{Decision: decision, Level: "sni", Rule: "r0", RuleLayer: "ceiling", Version: 4, Protocol: "https"})
	f.Live.In.Store(in)
	f.Live.Out.Store(out)
	f.Live.Moved()
	f.Live.Reach(netip.MustParseAddrPort("203.0.113.7:443"))
	return f
}

func TestPageTellsOfConnections(t *testing.T) {
	w := newWorld(t, flows.Config{})
	relay := lively(w.flow("flo_1", 0, "a.test"), "dec_1", 10, 20)
	w.add(t, relay)
	whole := w.flow("flo_2", 0, "a.test")
	whole.Within, whole.Opaque, whole.Live = "flo_1", true, relay.Live
	w.add(t, whole)
	w.add(t, lively(w.flow("flo_3", 0, "b.test"), "dec_3", 0, 0))
	for i := range 3 {
		part := lively(w.flow(fmt.Sprint("flo_4", i), 0, "b.test"), fmt.Sprint("dec_4", i), 1, 2)
		part.Within, part.Request.Stage, part.Request.Method = "flo_3", policies.StageRequest, "GET"
		w.add(t, part)
	}
	p := w.Page(flows.Query{Org: "org_0", Limit: 10})
	if len(p.Flows) != 2 || p.More {
		t.Fatalf("%+v", p)
	}
	v := p.Flows[0]
	if v.ID != "flo_1" || v.Sandbox != "sbx_0" || v.Decision != "dec_1" || v.Host != "a.test" || v.Address != "203.0.113.7" || v.Port != 443 || v.Protocol != "https" ||
		v.Stage != "connect" || v.Level != "sni" || v.Rule != "r0" || v.RuleLayer != "ceiling" || v.Version != 4 || !v.Since.Equal(time.Unix(1000, 0)) ||
		v.BytesIn != 10 || v.BytesOut != 20 || v.LastByte == nil || time.Since(*v.LastByte).Abs() > time.Hour || !v.Opaque || len(v.Parts) != 0 {
		t.Errorf("the relay is told as %+v", v)
	}
	v = p.Flows[1]
	if v.Opaque || v.LastByte != nil || v.Stage != "request" || v.PartsTotal != 3 || len(v.Parts) != 3 || v.Parts[0].ID != "flo_40" || v.Parts[0].Method != "GET" ||
		v.Parts[2].Decision != "dec_42" || v.Parts[2].BytesOut != 2 {
		t.Errorf("the connection with requests is told as %+v", v)
	}
	if p := w.Page(flows.Query{Org: "org_0", Flow: "flo_41", Limit: 1}); len(p.Flows) != 1 || p.Flows[0].ID != "flo_3" {
		t.Errorf("a part is found as %+v", p)
	}
	if p := w.Page(flows.Query{Org: "org_0", Host: "a.test", Rule: "r0"}); len(p.Flows) != 1 || p.Flows[0].ID != "flo_1" {
		t.Errorf("by host: %+v", p)
	}
	if p := w.Page(flows.Query{Org: "org_0", Rule: "r1"}); len(p.Flows) != 0 {
		t.Errorf("by another rule: %+v", p)
	}
}

func TestPagesFollowEachOther(t *testing.T) {
	w := newWorld(t, flows.Config{})
	for i := range 7 {
		w.add(t, w.flow(fmt.Sprintf("flo_%d", i), 0, "a.test"))
	}
	var seen []string
	q := flows.Query{Org: "org_0", Limit: 3}
	for {
		p := w.Page(q)
		for _, v := range p.Flows {
			seen = append(seen, v.ID)
		}
		if !p.More {
			break
		}
		q.After = p.Flows[len(p.Flows)-1].ID
	}
	if fmt.Sprint(seen) != "[flo_0 flo_1 flo_2 flo_3 flo_4 flo_5 flo_6]" {
		t.Errorf("%v", seen)
	}
}

func TestFlowsOfAnotherOrgAreNotThere(t *testing.T) {
	w := newWorld(t, flows.Config{})
	w.add(t, w.flow("flo_0", 0, "a.test"))
	w.add(t, w.flow("flo_2", 2, "a.test"))
	if p := w.Page(flows.Query{Org: "org_1", Limit: 10}); len(p.Flows) != 1 || p.Flows[0].ID != "flo_2" {
		t.Errorf("%+v", p)
	}
	if p := w.Page(flows.Query{Org: "org_1", Sandbox: "sbx_0", Limit: 10}); len(p.Flows) != 0 {
		t.Errorf("by the sandbox of another: %+v", p)
	}
	for _, sandbox := range []string{"", "sbx_0", "sbx_2"} {
		if _, ok := w.KillFlow("org_1", sandbox, "flo_0", policies.ReasonKilled); ok {
			t.Errorf("killed over sandbox %q of another org", sandbox)
		}
	}
	w.want(t, nil)
	if v, ok := w.KillFlow("org_1", "sbx_2", "flo_2", policies.ReasonKilled); !ok || v.Host != "a.test" {
		t.Errorf("its own: %+v, %v", v, ok)
	}
	w.want(t, map[string]policies.Reason{"flo_2": policies.ReasonKilled})
}

func TestKilledFlowEndsAlone(t *testing.T) {
	w := newWorld(t, flows.Config{})
	for i := range 3 {
		w.add(t, w.flow(fmt.Sprintf("flo_%d", i), 0, "a.test"))
	}
	if _, ok := w.KillFlow("org_0", "sbx_1", "flo_1", policies.ReasonKilled); ok {
		t.Error("killed as another sandbox's")
	}
	if _, ok := w.KillFlow("org_0", "sbx_0", "flo_1", policies.ReasonKilled); !ok {
		t.Error("not killed")
	}
	w.want(t, map[string]policies.Reason{"flo_1": policies.ReasonKilled})
	if _, ok := w.KillFlow("org_0", "sbx_0", "flo_1", policies.ReasonKilled); ok {
		t.Error("killed twice")
	}
}

// BenchmarkPage watches what listing costs beside 10,000 live connections: each copies the table's entries of one org.
func BenchmarkPage(b *testing.B) {
	w := newWorld(b, plenty)
	for i := range 10000 {
		w.add(b, lively(w.flow(fmt.Sprintf("flo_%05d", i), i%4, "a.test"), "dec", 1, 1))
	}
	b.ReportAllocs()
	for b.Loop() {
		if p := w.Page(flows.Query{Org: "org_0", Limit: 500}); len(p.Flows) != 500 {
			b.Fatal(len(p.Flows))
		}
	}
}
