package policies

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestExplainSaysWhy(t *testing.T) {
	s := compileText(t, `
rules:
  - {id: matched, action: allow, hosts: [a.test], tls: inspect, methods: [GET]}
  - {id: method, action: allow, hosts: [a.test], tls: inspect, methods: [POST]}
  - {id: path, action: allow, hosts: [a.test], tls: inspect, paths: [/v2/**]}
  - {id: port, action: allow, hosts: [a.test], ports: [8443]}
  - {id: protocol, action: allow, hosts: [a.test], ports: [443], protocols: [ssh]}
  - {id: expired, action: allow, any: true, expires_at: 2026-01-01T00:00:00Z}
  - {id: disabled, action: allow, any: true, enabled: false}
  - {id: apex, action: allow, hosts: ["*.a.test"]}
  - {id: elsewhere, action: allow, hosts: [b.test]}
  - {id: range, action: deny, cidrs: [203.0.113.0/24]}
`, `{"rules": [{"id": "parent", "action": "allow", "hosts": ["test.example"]}]}`)
	r := request("a.test", "GET", "/v1")
	x := s.Explain(&r)
	want := map[string]Why{"matched": WhyMatched, "method": WhyMethod, "path": WhyPath, "port": WhyPort, "protocol": WhyProtocol, "expired": WhyExpired, "disabled": WhyDisabled, "apex": WhyHost}
	if len(x.Layers) != 2 || len(x.Layers[0].Rules) != len(want) {
		t.Fatalf("%+v", x)
	}
	if first, last := x.Layers[0].Rules[0], x.Layers[0].Rules[len(want)-1]; !first.Matched || last.ID != "apex" {
		t.Errorf("the order is %+v", x.Layers[0].Rules)
	}
	for _, one := range x.Layers[0].Rules {
		if one.Why != want[one.ID] || one.Detail == "" || one.Matched != (one.Why == WhyMatched) {
			t.Errorf("%+v, want %s", one, want[one.ID])
		}
	}
	ceiling, policy := x.Layers[0], x.Layers[1]
	if ceiling.Action != Allow || ceiling.Rule != "matched" || policy.Action != Deny || policy.Reason != ReasonNoRule || len(policy.Rules) != 0 {
		t.Errorf("%+v", x)
	}
	if x.Verdict.Layer != "policy:web" || x.Guidance != ReasonNoRule.Guidance() {
		t.Errorf("%+v", x)
	}
	text, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"stage":"request"`, `"action":"deny"`, `"reason":"no_rule"`, `"requestable":true`, `"id":"apex","action":"allow","matched":false,"why":"host"`, `"protocols":[]`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("%s is not in %s", part, text)
		}
	}
}

func TestExplainStageAndNeighbours(t *testing.T) {
	s := compileText(t, `
rules:
  - {id: all, action: allow, any: true}
  - {id: no-admin, action: deny, hosts: [a.test], tls: inspect, paths: [/admin/**]}
  - {id: exact, action: allow, hosts: [test.a]}
  - {id: range, action: deny, cidrs: [203.0.113.0/24]}
`)
	find := func(r Request, id string) RuleExplanation {
		for _, one := range s.Explain(&r).Layers[0].Rules {
			if one.ID == id {
				return one
			}
		}
		return RuleExplanation{}
	}
	if x := find(connect("a.test", 443, HTTPS), "no-admin"); x.Why != WhyStage {
		t.Errorf("%+v", x)
	}
	if x := find(connect("x.test.a", 443, HTTPS), "exact"); x.Why != WhyHost {
		t.Errorf("%+v", x)
	}
	r := connect("a.test", 443, HTTPS)
	r.Addr = addr("64:ff9b::203.0.113.7")
	if x := find(r, "range"); x.Why != WhyMatched || !strings.Contains(x.Detail, "203.0.113.0/24") {
		t.Errorf("%+v", x)
	}
}

func TestExplainListsNotEverything(t *testing.T) {
	d := &Document{}
	for i := range 2 * maxExplained {
		d.Rules = append(d.Rules, Rule{ID: fmt.Sprintf("r%03d", i), Action: Allow, Any: true, Ports: []PortRange{Port(8443)}})
	}
	d.Rules = append(d.Rules, Rule{ID: "z", Action: Allow, Any: true})
	s, err := Compile(Layer{Name: "x", Document: d})
	if err != nil {
		t.Fatal(err)
	}
	r := connect("a.test", 443, HTTPS)
	x := s.Explain(&r).Layers[0]
	if len(x.Rules) != maxExplained || x.Omitted != maxExplained+1 || x.Rules[0].ID != "z" {
		t.Errorf("%d rules, %d omitted, first %+v", len(x.Rules), x.Omitted, x.Rules[0])
	}
}

// TestExplainKnowsTheFloor: it is the first layer, as it is asked first; the verdict is the edge's; and the first layer that denies is the one that
// decided.
func TestExplainKnowsTheFloor(t *testing.T) {
	f := newFloor(t, FloorConfig{Exempt: []Exemption{{CIDR: cidr("10.1.0.0/16"), Orgs: []string{"org_1"}}}})
	named := compileText(t, `rules: [{id: net, action: allow, cidrs: [10.0.0.0/8, 11.0.0.0/8], ports: [443]}, {id: good, action: allow, hosts: [good.test]}]`)
	everywhere := compileText(t, `rules: [{id: everywhere, action: allow, cidrs: [0.0.0.0/0], ports: [443]}]`)
	for _, c := range []struct {
		name   string
		f      *Floor
		org    string
		s      *Snapshot
		r      Request
		by     string // the layer that denies; empty: none
		detail string
	}{
		{"closed", f, "org_1", named, connectAddr("10.2.0.1", 443, HTTPS), FloorLayer, "closed"},
		{"closed to every setting", f, "org_1", named, connectAddr("169.254.169.254", 443, HTTPS), FloorLayer, "closed"},
		{"a name that is closed", f, "org_1", named, connect("a.localhost", 443, HTTPS), FloorLayer, "closed"},
		{"exempt", f, "org_1", named, connectAddr("10.1.0.1", 443, HTTPS), "", "an exemption opens it, to"},
		{"exempt to others", f, "org_2", named, connectAddr("10.1.0.1", 443, HTTPS), FloorLayer, "closed"},
		{"exempt, and not named", f, "org_1", everywhere, connectAddr("10.1.0.1", 443, HTTPS), FloorLayer, "an exemption opens it, but only"},
		{"exempt, and no rule", f, "org_1", named, connectAddr("10.1.0.1", 22, SSH), "ceiling", "an exemption"},
		{"open", f, "org_1", named, connectAddr("11.0.0.1", 443, HTTPS), "", "the address is open"},
		{"a name", f, "org_1", named, connect("good.test", 443, HTTPS), "", "the name is open"},
		{"a name and no rule", f, "org_1", named, connect("bad.test", 443, HTTPS), "ceiling", "the name is open"},
		{"malformed", f, "org_1", named, Request{Port: 443}, FloorLayer, ""},
		{"no floor", nil, "org_1", named, connect("good.test", 443, HTTPS), FloorLayer, "closed"},
	} {
		x := c.f.Explain(c.org, c.s, &c.r)
		if x.Verdict != c.f.Evaluate(c.org, c.s, &c.r) || x.Guidance != x.Verdict.Reason.Guidance() {
			t.Errorf("%s: explained is %+v", c.name, x.Verdict)
		}
		by := ""
		for _, l := range x.Layers {
			if l.Action == Deny && by == "" {
				by = l.Name
			}
		}
		if by != c.by || len(x.Layers) != 2 || x.Layers[0].Name != FloorLayer || !strings.HasPrefix(x.Layers[0].Detail, c.detail) {
			t.Errorf("%s: denied by %q in %+v", c.name, by, x.Layers)
		}
	}
	if x := f.Explain("org_1", named, nil); x.Verdict.Allowed() || x.Layers[0].Reason != ReasonParse {
		t.Errorf("nothing: %+v", x)
	}
}
