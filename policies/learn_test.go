package policies

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func get(host, path string) Request { return request(host, "GET", path) }

func TestLearn(t *testing.T) {
	observed := []Observation{
		seen("a", 1, false, ReasonNoRule, byName("api.test")),
		seen("a", 2, true, ReasonNoRule, get("api.test", "/v1/x")),
		seen("b", 9, true, ReasonNoRule, get("api.test", "/v1/*")),
		seen("b", 5, true, ReasonAllowed, request("api.test", "POST", "/v1/y")),
		seen("a", 3, false, ReasonNoRule, connect("tls.test", 443, HTTPS)),
		seen("a", 4, true, ReasonNoRule, get("mixed.test", "/a")),
		seen("a", 4, true, ReasonNoRule, connect("mixed.test", 443, HTTPS)),
		seen("a", 4, false, ReasonNoRule, connect("db.test", 5432, 0)),
		seen("a", 4, false, ReasonNoRule, connect("odd.test", 9999, 0)),
		seen("a", 4, false, ReasonNoRule, byName("looked.test")),
		seen("a", 4, false, ReasonNoRule, connectAddr("203.0.113.7", 22, SSH)),
		seen("a", 4, false, ReasonRuleDenied, connect("bad.test", 443, HTTPS)),
		seen("a", 4, true, ReasonRuleDenied, connect("watched.test", 443, HTTPS)),
		seen("a", 4, false, ReasonNoRule, connect("co.uk", 443, HTTPS)),
		seen("a", 4, false, ReasonNoRule, connectAddr("127.0.0.1", 22, SSH)),
		seen("a", 4, false, ReasonFloorSoft, connectAddr("10.0.0.1", 22, SSH)),
		seen("a", 4, false, ReasonDialFailed, connect("down.test", 443, HTTPS)),
	}
	d, evidence := Learn(observed, LearnOptions{Floor: labFloor, Org: "org_1"})
	var got []string
	for _, r := range d.Rules {
		got = append(got, fmt.Sprint(r.ID, " ", r.Hosts, r.CIDRs, r.Ports, r.Protocols, " ", r.TLS, r.Methods, r.Paths))
	}
	want := []string{
		"learnt.203.0.113.7.22.ssh [] [203.0.113.7/32] [22] ssh pass [] []",
		"learnt.api.test.443.https.get [api.test] [] [443] https inspect [GET] [/v1/%2A /v1/x]",
		"learnt.api.test.443.https.post [api.test] [] [443] https inspect [POST] [/v1/y]",
		"learnt.db.test.5432.postgres [db.test] [] [5432] postgres pass [] []",
		"learnt.mixed.test.443.https [mixed.test] [] [443] https inspect [] []",
		"learnt.tls.test.443.https [tls.test] [] [443] https pass [] []",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	left := map[string]string{}
	for _, e := range evidence {
		if e.Rule == "" {
			left[e.Host+e.Address] = e.LeftOut
		}
	}
	for host, why := range map[string]string{
		"odd.test": LeftOutNoProtocol, "looked.test": LeftOutNameOnly, "bad.test": LeftOutDenied, "watched.test": LeftOutDenied,
		"co.uk": LeftOutRefused, "127.0.0.1": LeftOutRefused, "10.0.0.1": LeftOutRefused, "down.test": "", "api.test": "",
	} {
		if left[host] != why {
			t.Errorf("%s: %q, want %q", host, left[host], why)
		}
	}
	e := evidence[slices.IndexFunc(evidence, func(e Evidence) bool { return e.Rule == "learnt.api.test.443.https.get" })]
	if e.Times != 2 || e.Sandboxes != 2 || e.Denied != 0 || !e.FirstSeen.Equal(observed[1].Time) || !e.LastSeen.Equal(observed[2].Time) || e.Method != "GET" {
		t.Errorf("%+v", e)
	}

	// With the names, and beside what is in force.
	beside := compileText(t, `{"rules": [{"id": "a", "action": "allow", "hosts": ["tls.test"]}]}`)
	d, _ = Learn(observed, LearnOptions{Floor: labFloor, Org: "org_1", Names: true, Beside: beside})
	has := func(id string) bool {
		return slices.ContainsFunc(d.Rules, func(r Rule) bool { return r.ID == id })
	}
	if !has("learnt.looked.test.443.https") || has("learnt.tls.test.443.https") || !has("learnt.db.test.5432.postgres") {
		t.Errorf("%+v", d.Rules)
	}
}

// A row that stands for several is as many.
func TestLearnAddsUp(t *testing.T) {
	once := seen("a", 3, false, ReasonNoRule, connect("tls.test", 443, HTTPS))
	often := once
	often.Times = 7
	_, evidence := Learn([]Observation{once, often}, LearnOptions{Floor: labFloor, Org: "org_1"})
	if len(evidence) != 1 || evidence[0].Times != 8 || evidence[0].Denied != 8 {
		t.Errorf("%+v", evidence)
	}
}

// TestLearnKnowsTheFloor: what the floor closes is drafted by no means, and listed with the floor's reason; what an exemption opens to the org
// is drafted like any other.
func TestLearnKnowsTheFloor(t *testing.T) {
	f := newFloor(t, FloorConfig{Hard: []netip.Prefix{cidr("10.231.0.0/16")}, Exempt: []Exemption{{CIDR: cidr("10.1.0.0/16"), Ports: []uint16{5432}, Orgs: []string{"org_1"}}}})
	observed := []Observation{
		seen("a", 1, false, ReasonNoRule, connectAddr("10.231.0.9", 22, SSH)),
		seen("a", 2, false, ReasonFloorHard, connectAddr("10.231.0.9", 22, SSH)),
		seen("a", 3, false, ReasonNoRule, connectAddr("10.0.0.1", 443, HTTPS)),
		seen("a", 4, true, ReasonNoRule, connectAddr("240.0.0.9", 443, HTTPS)), // under a policy that watches
		seen("a", 5, false, ReasonNoRule, connectAddr("11.0.0.1", 25, TCP)),
		seen("a", 6, false, ReasonNoRule, connect("metadata.google.internal", 80, HTTP)),
		seen("a", 7, false, ReasonFloorSoft, connectAddr("10.1.0.1", 5432, Postgres)),
		seen("a", 8, false, ReasonNoRule, connectAddr("11.0.0.1", 443, HTTPS)),
	}
	drafted := func(o LearnOptions) (ids []string, refused map[string]Reason) {
		d, evidence := Learn(observed, o)
		for _, r := range d.Rules {
			ids = append(ids, r.ID)
		}
		refused = map[string]Reason{}
		for _, e := range evidence {
			if e.LeftOut == LeftOutRefused {
				refused[fmt.Sprint(e.Host, e.Address, ":", e.Port, " ", e.Times)] = e.Reason
			}
		}
		return ids, refused
	}
	want := map[string]Reason{"10.231.0.9:22 2": ReasonFloorHard, "10.0.0.1:443 1": ReasonFloorSoft, "240.0.0.9:443 1": ReasonFloorSoft, "11.0.0.1:25 1": ReasonPort25,
		"metadata.google.internal:80 1": ReasonFloorHard}
	ids, refused := drafted(LearnOptions{Floor: f, Org: "org_1"})
	if !slices.Equal(ids, []string{"learnt.10.1.0.1.5432.postgres", "learnt.11.0.0.1.443.https"}) || !maps.Equal(refused, want) {
		t.Errorf("drafted %v, refused %v", ids, refused)
	}
	// In force already, as far as the policy goes: the floor closes it all the same.
	beside := compileText(t, `rules: [{id: net, action: allow, cidrs: [10.0.0.0/8, 11.0.0.0/8], ports: [22, 443, 5432], protocols: [https, ssh, postgres]}]`)
	if ids, refused := drafted(LearnOptions{Floor: f, Org: "org_1", Beside: beside}); len(ids) != 0 || refused["10.231.0.9:22 2"] != ReasonFloorHard {
		t.Errorf("beside it: drafted %v, refused %v", ids, refused)
	}
	if ids, _ := drafted(LearnOptions{Floor: f, Org: "org_2"}); !slices.Equal(ids, []string{"learnt.11.0.0.1.443.https"}) {
		t.Errorf("for another org: drafted %v", ids)
	}
	if ids, _ := drafted(LearnOptions{Org: "org_1"}); len(ids) != 0 {
		t.Errorf("without a floor: drafted %v", ids)
	}
}

// What was refused before its first byte is taken for what its port is for.
func TestLearnByPort(t *testing.T) {
	for port, want := range map[uint16]Protocol{443: HTTPS, 80: HTTP, 22: SSH, 5432: Postgres, 444: 0, 8080: 0} {
		d, evidence := Learn([]Observation{seen("a", 1, false, ReasonNoRule, connect("a.test", port, 0))}, LearnOptions{Floor: labFloor, Org: "org_1"})
		if want == 0 {
			if len(d.Rules) != 0 || evidence[0].LeftOut != LeftOutNoProtocol {
				t.Errorf("%d: %+v, %+v", port, d.Rules, evidence)
			}
			continue
		}
		if len(d.Rules) != 1 || d.Rules[0].Protocols != want || d.Rules[0].Ports[0] != Port(port) {
			t.Errorf("%d: %+v", port, d.Rules)
		}
	}
}

func TestLearnLimits(t *testing.T) {
	var observed []Observation
	for i := range 10 {
		for box := range i + 1 {
			observed = append(observed, seen(fmt.Sprint("box", box), i, true, "", connect(fmt.Sprintf("h%d.test", i), 443, HTTPS)))
		}
	}
	for i := range learnPaths + 1 {
		observed = append(observed, seen("box0", i, true, "", get("many.test", fmt.Sprintf("/%d", i))))
	}
	for i := range 2*MaxPaths + 1 {
		observed = append(observed, seen("box0", i, true, "", get("some.test", fmt.Sprintf("/%d", i))))
	}
	d, evidence := Learn(observed, LearnOptions{Floor: labFloor, Org: "org_1", Hosts: 3})
	if len(d.Rules) != 3 || d.Rules[0].Hosts[0] != "h7.test" || len(evidence) != 12 || evidence[3].LeftOut != LeftOutLimit {
		t.Errorf("%d rules, %d in evidence: %+v", len(d.Rules), len(evidence), d.Rules)
	}
	d, evidence = Learn(observed, LearnOptions{Floor: labFloor, Org: "org_1"})
	for _, e := range evidence {
		if e.AllPaths != (e.Host == "many.test") {
			t.Errorf("%+v", e)
		}
	}
	paths := 0
	for _, r := range d.Rules {
		if r.Hosts[0] == "many.test" && (len(r.Paths) != 0 || r.Methods[0] != "GET") {
			t.Errorf("%+v", r)
		}
		if r.Hosts[0] == "some.test" {
			paths += len(r.Paths)
		}
	}
	if paths != 2*MaxPaths+1 {
		t.Errorf("%d paths", paths)
	}
	// A host to which every method was tried gets rules for some, and no rule for all.
	observed = nil
	for i := range MaxMethods + 5 {
		observed = append(observed, seen("a", i, true, "", request("odd.test", fmt.Sprintf("M%d", i), "/"+strings.Repeat("x", 8*i))))
	}
	observed = append(observed, seen("a", 1, true, "", request("long.test", "GET", "/"+strings.Repeat("x", 2000))), seen("a", 1, true, "", request("case.test", "get", "/")), seen("a", 1, true, "", request("case.test", "GET", "/")))
	d, evidence = Learn(observed, LearnOptions{Floor: labFloor, Org: "org_1"})
	left := map[string]int{}
	for _, e := range evidence {
		if e.Rule == "" {
			left[e.Host+" "+e.LeftOut] += e.Times
		}
	}
	if len(d.Rules) != MaxMethods+2 || left["odd.test "+LeftOutLimit] != 5 || left["long.test "+LeftOutPath] != 1 || len(left) != 2 {
		t.Errorf("%d rules, left out %v", len(d.Rules), left)
	}
	for _, r := range d.Rules {
		if len(r.Methods) != 1 || len(r.Paths) != 1 {
			t.Errorf("%+v", r)
		}
	}
	long := strings.Repeat("a.", 100) + "test"
	d, _ = Learn([]Observation{seen("a", 1, true, "", connect(long, 443, HTTPS)), seen("a", 1, true, "", connect("b."+long, 443, HTTPS))}, LearnOptions{Floor: labFloor, Org: "org_1"})
	if len(d.Rules) != 2 || len(d.Rules[0].ID) != 63 || d.Rules[0].ID == d.Rules[1].ID {
		t.Errorf("%+v", d.Rules)
	}
}

// Whatever was observed, what is learnt names single hosts, addresses, ports, protocols, and whole paths; and it allows nothing
// but what was seen.
func TestLearnIsNarrow(t *testing.T) {
	hosts := append([]string{"com", "x.github.io"}, worldHosts...)
	paths := []string{"/", "/a", "/*", "/**", "/a/**", "/a%2Fb", "/%2A", "/a/"}
	draw := func(t *rapid.T) Request {
		r := drawRequest(t)
		if r.Host != "" {
			r.Host = pick(t, "host", hosts)
		}
		if r.Stage == StageRequest {
			r.Path = pick(t, "path", paths)
		}
		r.Now = testNow
		return r
	}
	rapid.Check(t, func(t *rapid.T) {
		var observed []Observation
		for range rapid.IntRange(1, 12).Draw(t, "observed") {
			reason := pick(t, "reason", []Reason{"", ReasonAllowed, ReasonNoRule, ReasonRuleDenied, ReasonFloorHard})
			observed = append(observed, Observation{Time: testNow, Sandbox: pick(t, "box", []string{"a", "b"}), Allowed: rapid.Bool().Draw(t, "allowed"), Reason: reason, Request: draw(t), Partial: rapid.IntRange(0, 4).Draw(t, "partial") == 0})
		}
		d, evidence := Learn(observed, LearnOptions{Floor: labFloor, Org: "org_1", Names: rapid.Bool().Draw(t, "names")})
		for _, r := range d.Rules {
			for _, host := range r.Hosts {
				if strings.Contains(host, "*") {
					t.Fatalf("a wildcard: %+v", r)
				}
			}
			for _, p := range r.CIDRs {
				if !p.IsSingleIP() {
					t.Fatalf("a range: %+v", r)
				}
			}
			for _, p := range r.Paths {
				if strings.Contains(p, "*") {
					t.Fatalf("a pattern: %+v", r)
				}
			}
			if r.Any || r.Action != Allow || len(r.Hosts)+len(r.CIDRs) != 1 || len(r.Ports) != 1 || r.Ports[0].First != r.Ports[0].Last || !r.Protocols.One() {
				t.Fatalf("wide: %+v", r)
			}
			if !slices.ContainsFunc(evidence, func(e Evidence) bool { return e.Rule == r.ID && e.Times > 0 && e.Sandboxes > 0 }) {
				t.Fatalf("no evidence for %+v", r)
			}
		}
		s, err := Compile(Layer{Name: "a", Document: d})
		if err != nil {
			t.Fatal(err)
		}
		asked := draw(t)
		if asked.Stage != StageName && asked.Protocol != 0 && s.Evaluate(&asked).Allowed() && !slices.ContainsFunc(observed, func(o Observation) bool { return shows(o, asked) }) {
			t.Fatalf("allowed, but never seen: %+v\n%+v", asked, d.Rules)
		}
	})
}

// shows reports whether the observation is of what is asked, as far as it was seen.
func shows(o Observation, asked Request) bool {
	r := o.Request
	same := r.Host == asked.Host && (r.Host != "" || r.Addr.Unmap() == asked.Addr.Unmap())
	if !o.judged() || o.Reason == ReasonRuleDenied || !same {
		return false
	}
	if r.Stage == StageName {
		return asked.Port == 443 && asked.Protocol == HTTPS
	}
	place := placeOf(&o)
	if place.port != asked.Port || place.protocol != asked.Protocol {
		return false
	}
	trim := func(p string) string { return strings.TrimSuffix(p, "/") }
	return asked.Stage == StageConnect || r.Stage == StageConnect || o.Partial || strings.EqualFold(r.Method, asked.Method) && trim(r.Path) == trim(asked.Path)
}

func TestLearnerIsBounded(t *testing.T) {
	l := NewLearner(LearnOptions{Floor: labFloor, Org: "org_1"})
	for i := range learnKept + 10 {
		l.Add(Observation{Time: testNow.Add(time.Duration(i)), Sandbox: "a", Request: Request{Stage: StageConnect, Addr: netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)}), Port: 443, Protocol: HTTPS}})
	}
	d, evidence := l.Draft()
	last := evidence[len(evidence)-1]
	if len(l.places) != learnKept || len(d.Rules) != learnHosts || last.LeftOut != LeftOutOverflow || last.Times != 10 {
		t.Errorf("%d places, %d rules, %+v", len(l.places), len(d.Rules), last)
	}
}
