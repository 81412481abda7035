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
		{Test{Addr: netip.MustParseAddr("169.254.169.254"), Expect: Allow}, `expected allow, got deny: floor_hard`},
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
