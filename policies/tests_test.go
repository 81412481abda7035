package policies

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const testedDocument = `
rules:
  - {id: api, action: allow, hosts: [api.test], tls: inspect, methods: [GET], paths: [/v1/**]}
  - {id: web, action: allow, hosts: ["*.web.test"]}
  - {id: net, action: allow, cidrs: [203.0.113.0/24], ports: [22], protocols: [ssh]}
  - {id: bad, action: deny, hosts: [bad.web.test]}
  - {id: brief, action: allow, hosts: [brief.test], expires_at: 2026-01-31T12:00:00Z}
`

func TestRunTests(t *testing.T) {
	s := compileText(t, testedDocument)
	for _, tt := range []struct {
		test    Test
		message string // empty: passes
	}{
		{Test{Host: "api.test", Path: "/v1/x", Expect: Allow}, ""},
		{Test{Host: "API.test.", Method: "get", Path: "/v1/%78", Expect: Allow, Rule: "api"}, ""},
		{Test{Host: "api.test", Method: "POST", Path: "/v1/x", Expect: Deny}, ""},
		{Test{Host: "api.test", Method: "POST", Path: "/v1/x", Expect: Allow}, `expected allow, got deny: no rule of ceiling allows it`},
		{Test{Host: "api.test", Expect: Allow}, ""}, // the connection
		{Test{Host: "a.web.test", Expect: Allow, Rule: "web"}, ""},
		{Test{Host: "a.web.test", Expect: Allow, Rule: "api"}, `allow as expected, but not by rule "api": rule "web" of ceiling`},
		{Test{Host: "bad.web.test", Expect: Deny, Rule: "bad"}, ""},
		{Test{Host: "bad.web.test", Expect: Deny, Rule: "web"}, `deny as expected, but not by rule "web": rule "bad" of ceiling`},
		{Test{Host: "bad.web.test", Expect: Allow}, `expected allow, got deny: rule "bad" of ceiling`},
		{Test{Host: "none.test", Expect: Deny}, ""},
		{Test{Host: "none.test", Expect: Deny, Rule: "bad"}, `deny as expected, but not by rule "bad": no rule of ceiling allows it`},
		{Test{Addr: netip.MustParseAddr("203.0.113.7"), Protocol: SSH, Expect: Allow, Rule: "net"}, ""},
		{Test{Addr: netip.MustParseAddr("203.0.114.7"), Protocol: SSH, Expect: Deny}, ""},
		{Test{Host: "brief.test", Expect: Deny}, ""},
		{Test{Host: "localhost", Expect: Deny}, ""},
		{Test{Addr: netip.MustParseAddr("169.254.169.254"), Expect: Allow}, `expected allow, got deny: the floor closes it (floor_hard)`},
		{Test{Expect: Allow}, "not a test: the test has no destination"},
		{Test{Host: "api.test", Protocol: TCP, Expect: Allow}, "not a test: port: tcp has no port"},
		{Test{Host: "api.test", Path: "/v1?x", Expect: Allow}, "not a test: path: "},
	} {
		tt.test.Name = "t"
		got := s.RunTests([]Test{tt.test}, testNow)[0]
		if got.Passed != (tt.message == "") || !strings.HasPrefix(got.Message, tt.message) {
			t.Errorf("%+v\n%+v, want %q", tt.test, got, tt.message)
		}
	}
	if got := s.RunTests([]Test{{Name: "before its end", Host: "brief.test", Expect: Allow}}, testNow.Add(-time.Second)); !got[0].Passed {
		t.Errorf("%+v", got)
	}
	if got := (*Snapshot)(nil).RunTests([]Test{{Name: "a", Host: "a.test", Expect: Deny}, {Name: "b", Host: "a.test", Expect: Deny, Rule: "b"}}, testNow); !got[0].Passed || got[1].Passed {
		t.Errorf("%+v", got)
	}
}

// A test is asked as the wire would answer it for that org; without a floor to ask, what the platform may have opened is either.
func TestTestsStandOnTheFloor(t *testing.T) {
	f := newFloor(t, FloorConfig{Hard: []netip.Prefix{cidr("10.200.0.0/16")}, Exempt: []Exemption{{CIDR: cidr("10.1.0.0/16"), Orgs: []string{"org_1"}, ExpiresAt: testNow.Add(time.Hour)}}})
	named := compileText(t, `rules: [{id: net, action: allow, cidrs: [10.0.0.0/8, 11.0.0.0/8], ports: [443]}, {id: bad, action: deny, cidrs: [10.3.0.0/16]}]`)
	everywhere := compileText(t, `rules: [{id: net, action: allow, cidrs: [0.0.0.0/0], ports: [443]}]`)
	open, closed, hard, public, denied := addr("10.1.0.1"), addr("10.2.0.1"), addr("10.200.0.1"), addr("11.0.0.1"), addr("10.3.0.1")
	for _, c := range []struct {
		name   string
		s      *Snapshot
		test   Test
		passes [3]bool // for the org with the exemption, for another, and alone
		says   string  // to the other
	}{
		{"what an exemption opens", named, Test{Addr: open, Expect: Allow}, [3]bool{true, false, true}, "expected allow, got deny: the floor closes it (floor_soft)"},
		{"what it opens, to be shut", named, Test{Addr: open, Expect: Deny}, [3]bool{false, true, true}, ""},
		{"what it opens to rules that name it", everywhere, Test{Addr: open, Expect: Allow}, [3]bool{false, false, true}, "expected allow, got deny: the floor closes it (floor_soft)"},
		{"what nothing opens", named, Test{Addr: closed, Expect: Allow}, [3]bool{false, false, true}, "expected allow, got deny: the floor closes it (floor_soft)"},
		{"what nothing opens, to be shut", named, Test{Addr: closed, Expect: Deny}, [3]bool{true, true, true}, ""},
		{"what the installation closes", named, Test{Addr: hard, Expect: Allow}, [3]bool{false, false, true}, "expected allow, got deny: the floor closes it (floor_hard)"},
		{"what is closed everywhere", everywhere, Test{Addr: addr("169.254.169.254"), Expect: Allow}, [3]bool{}, "expected allow, got deny: the floor closes it (floor_hard)"},
		{"what no rule allows either", named, Test{Addr: closed, Port: 22, Expect: Allow}, [3]bool{}, "expected allow, got deny: the floor closes it (floor_soft)"},
		{"what a rule denies too, by that rule", named, Test{Addr: denied, Expect: Deny, Rule: "bad"}, [3]bool{true, true, true}, ""},
		{"what a rule denies too, by another", named, Test{Addr: denied, Expect: Deny, Rule: "net"}, [3]bool{}, `deny as expected, but not by rule "net": the floor closes it (floor_soft)`},
		{"a public address", named, Test{Addr: public, Expect: Allow}, [3]bool{true, true, true}, ""},
		{"a public address, to be shut", named, Test{Addr: public, Expect: Deny}, [3]bool{}, `expected deny, got allow: rule "net" of ceiling`},
		{"a name of this machine", named, Test{Host: "localhost", Expect: Deny}, [3]bool{true, true, true}, ""},
	} {
		c.test.Name = "t"
		tests := []Test{c.test}
		theirs := f.RunTests("org_2", c.s, tests, testNow)[0]
		if got := [3]bool{f.RunTests("org_1", c.s, tests, testNow)[0].Passed, theirs.Passed, c.s.RunTests(tests, testNow)[0].Passed}; got != c.passes || theirs.Message != c.says {
			t.Errorf("%s: %v, want %v; %q", c.name, got, c.passes, theirs.Message)
		}
	}
	tests := []Test{{Name: "t", Addr: open, Expect: Allow}}
	if got := f.RunTests("org_1", named, tests, testNow.Add(time.Hour))[0]; got.Passed {
		t.Errorf("after the exemption's end: %+v", got)
	}
	if got := (*Floor)(nil).RunTests("org_1", named, []Test{{Name: "t", Addr: public, Expect: Allow}}, testNow)[0]; got.Passed {
		t.Errorf("without a floor: %+v", got)
	}
}

// Several layers: the rule of any layer may be the one that decides.
func TestRunTestsInLayers(t *testing.T) {
	s := compileText(t, `{"rules": [{"id": "up", "action": "allow", "hosts": ["*.a.test"]}]}`, `{"rules": [{"id": "down", "action": "allow", "hosts": ["x.a.test"]}]}`)
	for rule, passes := range map[string]bool{"up": true, "down": true, "other": false} {
		if got := s.RunTests([]Test{{Name: "t", Host: "x.a.test", Expect: Allow, Rule: rule}}, testNow)[0]; got.Passed != passes {
			t.Errorf("%s: %+v", rule, got)
		}
	}
}

// While a document watches, its tests hold for the rules as they will be.
func TestRunTestsWhileWatching(t *testing.T) {
	s := compileText(t, `{"observe_until": "2026-02-01T00:00:00Z", "rules": []}`)
	if got := s.RunTests([]Test{{Name: "t", Host: "a.test", Expect: Deny}}, testNow)[0]; !got.Passed || !got.Got.Allowed() || !got.Got.Observed {
		t.Errorf("%+v", got)
	}
}

// What tests say changes no verdict.
func TestTestsOnlyTell(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plain := drawDocument(t)
		tested := *plain
		for i, host := range worldHosts {
			tested.Tests = append(tested.Tests, Test{Name: host, Host: host, Expect: Allow, Rule: plain.ruleID(i)})
		}
		a, errA := Compile(Layer{Name: "a", Document: plain})
		b, errB := Compile(Layer{Name: "a", Document: &tested})
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		b.RunTests(tested.Tests, testNow)
		for range 8 {
			r := drawRequest(t)
			if x, y := a.Evaluate(&r), b.Evaluate(&r); x != y {
				t.Fatalf("request %+v\n%+v\n%+v", r, x, y)
			}
		}
	})
}

func (d *Document) ruleID(i int) string {
	if i < len(d.Rules) {
		return d.Rules[i].ID
	}
	return ""
}

// Where downloads have addresses that the upstream signs.
var signedPlaces = map[string]bool{"package-registries.go-storage": true, "package-registries.gradle-assets": true, "git-hosting.releases": true}

// Presets and git say what they stand for: the document that they make has plain rules only, and reads back as itself.
func TestSugarIsWrittenOut(t *testing.T) {
	d, err := Parse([]byte(`
presets: [package-registries, git-hosting, ai-apis]
rules:
  - {id: app, action: allow, git: github.com/acme/*, access: write-lfs}
`))
	if err != nil {
		t.Fatal(err)
	}
	checkRoundTrip(t, d)
	ids := map[string]bool{}
	for i := range d.Rules {
		ids[d.Rules[i].ID] = true
	}
	for _, p := range Presets() {
		if p.Description == "" {
			t.Errorf("%s is not described", p.Name)
		}
		for _, r := range p.Rules {
			if !ids[r.ID] || !strings.HasPrefix(r.ID, p.Name+".") {
				t.Errorf("%s of %s is not in the document, or has another's name", r.ID, p.Name)
			}
			foreign := ForeignBlock
			if reading := signedPlaces[r.ID]; reading {
				if foreign = ForeignAllow; !slices.Equal(r.Methods, []string{"GET", "HEAD"}) || len(r.Paths) == 0 {
					t.Errorf("%s lets more through than downloads: %+v", r.ID, r)
				}
			}
			if r.Action != Allow || r.TLS != Inspect || r.ForeignCredentials == nil || *r.ForeignCredentials != foreign || len(r.Hosts) == 0 || !r.needsInside() {
				t.Errorf("%s lets through more than it may: %+v", r.ID, r)
			}
			for _, host := range r.Hosts {
				if strings.Contains(host, "*") {
					t.Errorf("%s has the wildcard %s", r.ID, host)
				}
			}
		}
	}
	for _, id := range []string{"app.refs", "app.fetch", "app.push", "app.lfs", "app.lfs-fetch", "app.lfs-push", "app.lfs-locks"} {
		if !ids[id] {
			t.Errorf("%s is missing", id)
		}
	}
	if !reflect.DeepEqual(Presets(), Presets()) {
		t.Error("presets are not stable")
	}
}
