package policies

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func compileText(t testing.TB, documents ...string) *Snapshot {
	t.Helper()
	names := []string{"ceiling", "policy:web", "own"}
	var layers []Layer
	for i, text := range documents {
		d, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		layers = append(layers, Layer{Name: names[i], Version: int64(i + 1), Document: d})
	}
	s, err := Compile(layers...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func byName(host string) Request { return Request{Stage: StageName, Host: host, Now: testNow} }

func connect(host string, port uint16, p Protocol) Request {
	return Request{Stage: StageConnect, Host: host, Port: port, Protocol: p, Now: testNow}
}

func connectAddr(a string, port uint16, p Protocol) Request {
	return Request{Stage: StageConnect, Addr: netip.MustParseAddr(a), Port: port, Protocol: p, Now: testNow}
}

func request(host, method, path string) Request {
	return Request{Stage: StageRequest, Host: host, Port: 443, Protocol: HTTPS, Method: method, Path: path, Now: testNow}
}

type verdictTest struct {
	name string
	req  Request
	want Reason
	rule string
}

func check(t *testing.T, s *Snapshot, tests []verdictTest) {
	t.Helper()
	for _, tt := range tests {
		v := s.Evaluate(&tt.req)
		if v.Reason != tt.want || v.Allowed() != (tt.want == ReasonAllowed) || v.Rule != tt.rule {
			t.Errorf("%s: %+v, want %s by %q", tt.name, v, tt.want, tt.rule)
		}
	}
}

func TestZeroVerdictIsDeny(t *testing.T) {
	var v Verdict
	if v.Allowed() || v.Action != Deny || v.Foreign != ForeignBlock || v.Protocols != 0 {
		t.Errorf("%+v", v)
	}
	if v := Denied(ReasonBudget); v.Allowed() || v.Reason != ReasonBudget {
		t.Errorf("%+v", v)
	}
	var r Rule
	if r.Action != Deny {
		t.Error("the zero rule allows")
	}
	if Action(7).String() == "allow" || FailureMode(0) != FailClosed {
		t.Error("an unknown value is a known one")
	}
}

func TestNoPolicyDenies(t *testing.T) {
	r := connect("good.test", 443, HTTPS)
	var none *Snapshot
	empty, err := Compile()
	if err != nil {
		t.Fatal(err)
	}
	allow := Layer{Name: "ceiling", Version: 3, Document: &Document{Rules: []Rule{{ID: "a", Action: Allow, Hosts: []string{"good.test"}}}}}
	missing, err := Compile(allow, Layer{Name: "own", Version: 4})
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*Snapshot{"nil": none, "zero": {}, "no layer": empty, "a layer without a document": missing} {
		if v := s.Evaluate(&r); v.Allowed() || v.Reason != ReasonNoPolicy || v.Requestable {
			t.Errorf("%s: %+v", name, v)
		}
		if x := s.Explain(&r); x.Verdict.Allowed() || x.Verdict.Reason != ReasonNoPolicy {
			t.Errorf("%s: explained as %+v", name, x)
		}
		if mode, d := s.Failure(); mode != FailClosed || d != 0 {
			t.Errorf("%s: %v %v", name, mode, d)
		}
	}
	if v := missing.Evaluate(&r); v.Layer != "own" || v.Version != 4 {
		t.Errorf("%+v", v)
	}
	// The twin with every layer there.
	whole, err := Compile(allow, allow)
	if err != nil {
		t.Fatal(err)
	}
	if v := whole.Evaluate(&r); !v.Allowed() || v.Layer != "ceiling" || v.Version != 3 {
		t.Errorf("%+v", v)
	}
	// An empty list denies, but access may be asked for.
	if v := compileText(t, `{"rules": []}`).Evaluate(&r); v.Allowed() || v.Reason != ReasonNoRule || !v.Requestable || v.Layer != "ceiling" {
		t.Errorf("%+v", v)
	}
}

func TestDenyWins(t *testing.T) {
	s := compileText(t, `
rules:
  - {id: all, action: allow, any: true, protocols: [https, ssh], ports: [443, 22]}
  - {id: closest, action: allow, hosts: [api.evil.test]}
  - {id: no-evil, action: deny, hosts: [evil.test, "*.evil.test"], message: not there}
  - {id: all-addresses, action: allow, cidrs: [0.0.0.0/0, 203.0.113.7/32], ports: [443]}
  - {id: no-range, action: deny, cidrs: [203.0.113.0/24]}
  - {id: no-ssh, action: deny, hosts: [git.test], protocols: [ssh]}
`)
	check(t, s, []verdictTest{
		{"an allowed name", connect("good.test", 443, HTTPS), ReasonAllowed, "all"},
		{"a denied name", connect("evil.test", 443, HTTPS), ReasonRuleDenied, "no-evil"},
		{"a name below", connect("a.evil.test", 443, HTTPS), ReasonRuleDenied, "no-evil"},
		{"beside it", connect("notevil.test", 443, HTTPS), ReasonAllowed, "all"},
		{"though an allow rule is closer", connect("api.evil.test", 443, HTTPS), ReasonRuleDenied, "no-evil"},
		{"at the lookup already", byName("evil.test"), ReasonRuleDenied, "no-evil"},
		{"the lookup of another", byName("good.test"), ReasonAllowed, "all"},
		{"an address, though an allowed range is narrower", connectAddr("203.0.113.7", 443, HTTPS), ReasonRuleDenied, "no-range"},
		{"the address beside the range", connectAddr("203.0.114.7", 443, HTTPS), ReasonAllowed, "all-addresses"},
		{"the address in IPv6", connectAddr("::ffff:203.0.113.7", 443, HTTPS), ReasonRuleDenied, "no-range"},
		{"a denied protocol", connect("git.test", 22, SSH), ReasonRuleDenied, "no-ssh"},
		{"another protocol", connect("git.test", 443, HTTPS), ReasonAllowed, "all"},
		{"the lookup of a name denied in part", byName("git.test"), ReasonAllowed, "all"},
	})
	r := connect("evil.test", 443, HTTPS)
	if v := s.Evaluate(&r); v.Message != "not there" || v.Requestable {
		t.Errorf("%+v", v)
	}
	r = connect("git.test", 22, 0)
	if v := s.Evaluate(&r); v.Protocols != HTTPS {
		t.Errorf("what is left of a name denied in part: %+v", v)
	}
}

func TestDenyLooksAtResolvedAddress(t *testing.T) {
	s := compileText(t, `
rules:
  - {id: all, action: allow, any: true}
  - {id: addresses, action: allow, cidrs: [198.51.100.0/24], ports: [443]}
  - {id: no-range, action: deny, cidrs: [203.0.113.0/24]}
`)
	with := func(a string) Request {
		r := connect("good.test", 443, HTTPS)
		r.Addr = netip.MustParseAddr(a)
		return r
	}
	check(t, s, []verdictTest{
		{"in the range", with("203.0.113.7"), ReasonRuleDenied, "no-range"},
		{"in the range, by NAT64", with("64:ff9b::203.0.113.7"), ReasonRuleDenied, "no-range"},
		{"beside it", with("203.0.114.7"), ReasonAllowed, "all"},
		{"in an allowed range", with("198.51.100.7"), ReasonAllowed, "all"},
	})
	only := compileText(t, `{"rules": [{"id": "addresses", "action": "allow", "cidrs": ["198.51.100.0/24"], "ports": [443]}]}`)
	check(t, only, []verdictTest{
		{"an allowed range opens no name", with("198.51.100.7"), ReasonNoRule, ""},
		{"but the address", connectAddr("198.51.100.7", 443, HTTPS), ReasonAllowed, "addresses"},
		{"and not in disguise", connectAddr("64:ff9b::198.51.100.7", 443, HTTPS), ReasonNoRule, ""},
	})
}

func TestWildcardNeverMatchesApex(t *testing.T) {
	s := compileText(t, `{"rules": [{"id": "w", "action": "allow", "hosts": ["*.wild.test"]}]}`)
	check(t, s, []verdictTest{
		{"one label", connect("a.wild.test", 443, HTTPS), ReasonAllowed, "w"},
		{"two labels", connect("a.b.wild.test", 443, HTTPS), ReasonAllowed, "w"},
		{"the apex", connect("wild.test", 443, HTTPS), ReasonNoRule, ""},
		{"the apex, looked up", byName("wild.test"), ReasonNoRule, ""},
		{"glued to it", connect("evilwild.test", 443, HTTPS), ReasonNoRule, ""},
		{"above", connect("test", 443, HTTPS), ReasonNoRule, ""},
		{"in the middle", connect("wild.test.evil.example", 443, HTTPS), ReasonNoRule, ""},
		{"no label", connect(".wild.test", 443, HTTPS), ReasonHostInvalid, ""},
		{"an empty label", connect("a..wild.test", 443, HTTPS), ReasonHostInvalid, ""},
	})
}

func TestHostNotInNormalFormDenies(t *testing.T) {
	s := compileText(t, `{"rules": [{"id": "all", "action": "allow", "any": true}, {"id": "no", "action": "deny", "hosts": ["evil.test"]}]}`)
	for _, host := range []string{"EVIL.test", "evil.test.", "evil.test\x00.good.test", "ⓔvil.test", "evil.test:443", "a@evil.test", ".", "..", "a..b", strings.Repeat("a", 254)} {
		r := connect(host, 443, HTTPS)
		if v := s.Evaluate(&r); v.Allowed() || v.Reason != ReasonHostInvalid {
			t.Errorf("%q: %+v", host, v)
		}
	}
	r := connect("good.test", 443, HTTPS)
	if v := s.Evaluate(&r); !v.Allowed() {
		t.Errorf("%+v", v)
	}
}

func TestEveryLayerHasToAllow(t *testing.T) {
	s := compileText(t,
		`{"rules": [{"id": "c", "action": "allow", "hosts": ["*.test"], "shared": true, "ports": [443, 8443]}, {"id": "no", "action": "deny", "hosts": ["x.test"]}]}`,
		`{"rules": [{"id": "p", "action": "allow", "hosts": ["a.test", "b.test", "x.test", "other.example"]}]}`,
		`{"rules": [{"id": "o", "action": "allow", "any": true}, {"id": "not-b", "action": "deny", "hosts": ["b.test"]}]}`)
	tests := []struct {
		req   Request
		want  Reason
		layer string
	}{
		{connect("a.test", 443, HTTPS), ReasonAllowed, "own"},
		{connect("c.test", 443, HTTPS), ReasonNoRule, "policy:web"},
		{connect("a.test", 8443, HTTPS), ReasonNoRule, "policy:web"},
		{connect("other.example", 443, HTTPS), ReasonNoRule, "ceiling"},
		{connect("b.test", 443, HTTPS), ReasonRuleDenied, "own"},
		{connect("x.test", 443, HTTPS), ReasonRuleDenied, "ceiling"},
	}
	for _, tt := range tests {
		v := s.Evaluate(&tt.req)
		if v.Reason != tt.want || v.Layer != tt.layer || v.Requestable != (tt.want == ReasonNoRule) {
			t.Errorf("%s:%d: %+v, want %s by %s", tt.req.Host, tt.req.Port, v, tt.want, tt.layer)
		}
	}
}

func TestStages(t *testing.T) {
	s := compileText(t, `
rules:
  - {id: read, action: allow, hosts: [api.test], tls: inspect, methods: [GET], paths: [/v1/**]}
  - {id: no-admin, action: deny, hosts: [api.test], tls: inspect, paths: [/v1/admin/**]}
`)
	clear := request("api.test", "GET", "/v1/x")
	clear.Protocol = HTTP
	check(t, s, []verdictTest{
		{"name", byName("api.test"), ReasonAllowed, "read"},
		{"connect", connect("api.test", 443, HTTPS), ReasonAllowed, "read"},
		{"connect, protocol unknown", connect("api.test", 443, 0), ReasonAllowed, "read"},
		{"connect to another port", connect("api.test", 8443, HTTPS), ReasonNoRule, ""},
		{"connect by another protocol", connect("api.test", 443, SSH), ReasonNoRule, ""},
		{"request", request("api.test", "GET", "/v1/x"), ReasonAllowed, "read"},
		{"another method", request("api.test", "POST", "/v1/x"), ReasonNoRule, ""},
		{"the method in small letters", request("api.test", "get", "/v1/x"), ReasonNoRule, ""},
		{"another path", request("api.test", "GET", "/v2/x"), ReasonNoRule, ""},
		{"a denied path", request("api.test", "GET", "/v1/admin/x"), ReasonRuleDenied, "no-admin"},
		{"a denied path by an encoded slash", request("api.test", "GET", "/v1/admin%2Fx"), ReasonRuleDenied, "no-admin"},
		{"in the clear", clear, ReasonNoRule, ""},
	})
}

func TestDenyIgnoresMethodCase(t *testing.T) {
	s := compileText(t, `
rules:
  - {id: all, action: allow, hosts: [api.test], tls: inspect}
  - {id: no-delete, action: deny, hosts: [api.test], tls: inspect, methods: [DELETE]}
`)
	check(t, s, []verdictTest{
		{"allowed", request("api.test", "GET", "/"), ReasonAllowed, "all"},
		{"denied", request("api.test", "DELETE", "/"), ReasonRuleDenied, "no-delete"},
		{"denied in small letters", request("api.test", "delete", "/"), ReasonRuleDenied, "no-delete"},
	})
}

func TestMalformedRequestDenies(t *testing.T) {
	s := compileText(t, `{"rules": [{"id": "all", "action": "allow", "any": true, "protocols": ["https", "ssh"], "ports": ["1-65535"]}, {"id": "a", "action": "allow", "cidrs": ["0.0.0.0/0"], "ports": ["1-65535"]}]}`)
	good := request("good.test", "GET", "/")
	for name, change := range map[string]func(r *Request){
		"no host":           func(r *Request) { r.Host = "" },
		"no port":           func(r *Request) { r.Port = 0 },
		"two protocols":     func(r *Request) { r.Protocol = HTTPS | HTTP },
		"unknown protocol":  func(r *Request) { r.Protocol = 1 << 7 },
		"no protocol":       func(r *Request) { r.Protocol = 0 },
		"another protocol":  func(r *Request) { r.Protocol = SSH },
		"no method":         func(r *Request) { r.Method = "" },
		"no path":           func(r *Request) { r.Path = "" },
		"path without root": func(r *Request) { r.Path = "x" },
		"unknown stage":     func(r *Request) { r.Stage = 9 },
		"address by name":   func(r *Request) { r.Stage, r.Host, r.Addr = StageName, "", addr("203.0.113.7") },
	} {
		r := good
		change(&r)
		if v := s.Evaluate(&r); v.Allowed() || v.Reason != ReasonParse && v.Reason != ReasonHostInvalid {
			t.Errorf("%s: %+v", name, v)
		}
		s.Explain(&r)
	}
	if v := s.Evaluate(nil); v.Allowed() {
		t.Errorf("no request: %+v", v)
	}
	if v := s.Evaluate(&good); !v.Allowed() {
		t.Errorf("good: %+v", v)
	}
}

func TestExpiry(t *testing.T) {
	s := compileText(t, `
rules:
  - {id: until-noon, action: allow, hosts: [a.test], expires_at: 2026-01-31T12:00:00Z}
  - {id: always, action: allow, hosts: [b.test]}
  - {id: no-b, action: deny, hosts: [b.test], expires_at: 2026-01-31T12:00:00Z}
  - {id: off, action: allow, hosts: [c.test], enabled: false}
  - {id: off-too, action: deny, hosts: [d.test], enabled: false}
  - {id: d, action: allow, hosts: [d.test]}
`)
	at := func(host string, now time.Time) Request {
		r := connect(host, 443, HTTPS)
		r.Now = now
		return r
	}
	before := testNow.Add(-time.Microsecond)
	check(t, s, []verdictTest{
		{"allow, before its end", at("a.test", before), ReasonAllowed, "until-noon"},
		{"allow, at its end", at("a.test", testNow), ReasonNoRule, ""},
		{"allow, without a clock", at("a.test", time.Time{}), ReasonNoRule, ""},
		{"deny, before its end", at("b.test", before), ReasonRuleDenied, "no-b"},
		{"deny, at its end", at("b.test", testNow), ReasonAllowed, "always"},
		{"deny, without a clock", at("b.test", time.Time{}), ReasonRuleDenied, "no-b"},
		{"allow, not enabled", at("c.test", before), ReasonNoRule, ""},
		{"deny, not enabled", at("d.test", before), ReasonAllowed, "d"},
	})
}

func TestObserveLetsRulesWatchOnly(t *testing.T) {
	policy := `{"rules": [{"id": "a", "action": "allow", "hosts": ["a.test"]}, {"id": "no", "action": "deny", "hosts": ["evil.test"], "message": "no"}], "observe_until": "2026-01-31T12:00:01Z"}`
	s := compileText(t, policy)
	tests := []struct {
		name     string
		req      Request
		want     Reason
		rule     string
		observed bool
	}{
		{"allowed anyway", connect("a.test", 443, HTTPS), ReasonAllowed, "a", false},
		{"no rule", connect("b.test", 443, HTTPS), ReasonNoRule, "", true},
		{"no rule, looked up", byName("b.test"), ReasonNoRule, "", true},
		{"denied", connect("evil.test", 443, HTTPS), ReasonRuleDenied, "no", true},
		{"no rule for the protocol", connect("a.test", 443, SSH), ReasonNoRule, "", true},
		{"no rule for the address", connectAddr("203.0.113.7", 443, HTTPS), ReasonNoRule, "", true},
	}
	for _, tt := range tests {
		v := s.Evaluate(&tt.req)
		if !v.Allowed() || v.Reason != tt.want || v.Rule != tt.rule || v.Observed != tt.observed || v.Requestable || v.Observed && v.Named {
			t.Errorf("%s: %+v", tt.name, v)
		}
		tt.req.Now = testNow.Add(time.Second)
		if v := s.Evaluate(&tt.req); v.Allowed() == tt.observed || v.Observed {
			t.Errorf("%s, after the end: %+v", tt.name, v)
		}
		tt.req.Now = time.Time{}
		if v := s.Evaluate(&tt.req); v.Allowed() == tt.observed || v.Observed {
			t.Errorf("%s, without a clock: %+v", tt.name, v)
		}
	}
	r := connect("a.test", 443, 0)
	if v := s.Evaluate(&r); v.Protocols != AllProtocols || v.Observed {
		t.Errorf("while the protocol is unknown, all pass and the next question tells: %+v", v)
	}
	r = connect("a..test", 443, HTTPS)
	if v := s.Evaluate(&r); v.Allowed() {
		t.Errorf("a name that is none passes: %+v", v)
	}
	// A watching layer lifts nothing of the others.
	strict := compileText(t, `{"rules": [{"id": "c", "action": "allow", "hosts": ["c.test"]}]}`, policy)
	r = connect("b.test", 443, HTTPS)
	if v := strict.Evaluate(&r); v.Allowed() || v.Layer != "ceiling" || v.Observed {
		t.Errorf("%+v", v)
	}
	r = connect("c.test", 443, HTTPS)
	if v := strict.Evaluate(&r); !v.Allowed() || !v.Observed || v.Layer != "policy:web" || v.Reason != ReasonNoRule {
		t.Errorf("%+v", v)
	}
}

func TestStrictestOpinionHolds(t *testing.T) {
	rule := func(more string) string {
		return `{"rules": [{"id": "a", "action": "allow", "hosts": ["a.test"]` + more + `}]}`
	}
	tests := []struct {
		name      string
		documents []string
		want      Verdict
	}{
		{"nothing said", []string{rule(``), rule(``)}, Verdict{}},
		{"one opens", []string{rule(``), rule(`, "tls": "inspect"`)}, Verdict{TLS: Inspect}},
		{"the ceiling opens", []string{rule(`, "tls": "inspect"`), rule(`, "tls": "pass"`)}, Verdict{TLS: Inspect}},
		{"one has an opinion", []string{rule(``), rule(`, "tls": "inspect", "foreign_credentials": "allow", "dns": "real", "log": "count"`)},
			Verdict{TLS: Inspect, Foreign: ForeignAllow, DNS: DNSReal, Log: LogCount}},
		{"two opinions", []string{rule(`, "tls": "inspect", "foreign_credentials": "strip", "dns": "synthetic", "log": "full"`), rule(`, "foreign_credentials": "allow", "dns": "real", "log": "count"`)},
			Verdict{TLS: Inspect, Foreign: ForeignStrip}},
	}
	for _, tt := range tests {
		r := connect("a.test", 443, HTTPS)
		v := compileText(t, tt.documents...).Evaluate(&r)
		if !v.Allowed() || v.TLS != tt.want.TLS || v.Foreign != tt.want.Foreign || v.DNS != tt.want.DNS || v.Log != tt.want.Log {
			t.Errorf("%s: %+v, want %+v", tt.name, v, tt.want)
		}
	}
}

func TestClosestRuleSpeaksForItsLayer(t *testing.T) {
	s := compileText(t, `
rules:
  - {id: z-pinned, action: allow, hosts: [pinned.api.test], tls: pass}
  - {id: b-open, action: allow, hosts: ["*.api.test"], tls: inspect}
  - {id: a-wide, action: allow, hosts: ["*.test"], tls: pass, shared: true}
  - {id: twice-pass, action: allow, hosts: [twice.test], tls: pass}
  - {id: twice-open, action: allow, hosts: [twice.test], tls: inspect, methods: [GET]}
  - {id: again-a, action: allow, hosts: [again.test], tls: pass}
  - {id: again-b, action: allow, hosts: [again.test], tls: inspect}
  - {id: no-delete, action: deny, hosts: [passed.test], tls: inspect, methods: [DELETE]}
`)
	for host, want := range map[string]struct {
		rule string
		tls  TLSMode
	}{
		"pinned.api.test": {"z-pinned", Pass}, "x.api.test": {"b-open", Inspect}, "api.test": {"a-wide", Pass},
		"twice.test":  {"twice-open", Inspect}, // as close: the stricter
		"again.test":  {"again-b", Inspect},    // in whichever order
		"passed.test": {"a-wide", Inspect},     // a deny rule has to see the method
	} {
		r := connect(host, 443, HTTPS)
		if v := s.Evaluate(&r); v.Rule != want.rule || v.TLS != want.tls || !v.Allowed() {
			t.Errorf("%s: %+v, want %+v", host, v, want)
		}
	}
}

func TestNamedIsNotEverything(t *testing.T) {
	all := `{"mode": "allow_all"}`
	some := `{"rules": [{"id": "a", "action": "allow", "hosts": ["a.test", "*.b.test"]}, {"id": "c", "action": "allow", "cidrs": ["10.0.0.0/8"], "ports": [443]}]}`
	for _, tt := range []struct {
		name      string
		documents []string
		req       Request
		want      bool
	}{
		{"named", []string{some}, connect("a.test", 443, HTTPS), true},
		{"named by a wildcard", []string{some}, connect("x.b.test", 443, HTTPS), true},
		{"named by a range", []string{some}, connectAddr("10.1.2.3", 443, HTTPS), true},
		{"everything", []string{all}, connect("a.test", 443, HTTPS), false},
		{"every address", []string{all}, connectAddr("10.1.2.3", 443, HTTPS), false},
		{"named in one of two", []string{all, some}, connect("a.test", 443, HTTPS), false},
		{"named in two", []string{some, some}, connect("a.test", 443, HTTPS), true},
	} {
		v := compileText(t, tt.documents...).Evaluate(&tt.req)
		if !v.Allowed() || v.Named != tt.want {
			t.Errorf("%s: %+v", tt.name, v)
		}
	}
}

func TestFailureIsTheStrictest(t *testing.T) {
	closed, short, long := `{"rules": []}`, `{"rules": [], "failure_mode": "last_known", "max_stale": "1m"}`, `{"rules": [], "failure_mode": "last_known", "max_stale": "15m"}`
	for _, tt := range []struct {
		documents []string
		mode      FailureMode
		stale     time.Duration
	}{
		{[]string{closed}, FailClosed, 0}, {[]string{long, closed}, FailClosed, 0}, {[]string{long}, FailLastKnown, 15 * time.Minute}, {[]string{long, short}, FailLastKnown, time.Minute},
	} {
		if mode, stale := compileText(t, tt.documents...).Failure(); mode != tt.mode || stale != tt.stale {
			t.Errorf("%v: %v %v", tt.documents, mode, stale)
		}
	}
}

func TestTooManyLayers(t *testing.T) {
	layers := make([]Layer, MaxLayers+1)
	if _, err := Compile(layers[:MaxLayers]...); err != nil {
		t.Error(err)
	}
	if _, err := Compile(layers...); err == nil {
		t.Error("accepted")
	}
}

func TestSnapshotDoesNotFollowItsDocument(t *testing.T) {
	d := &Document{Rules: []Rule{{ID: "a", Action: Allow, Hosts: []string{"a.test"}}}}
	s, err := Compile(Layer{Name: "x", Document: d})
	if err != nil {
		t.Fatal(err)
	}
	d.Rules[0].Hosts[0], d.Rules[0].ID = "b.test", "b"
	a, b := connect("a.test", 443, HTTPS), connect("b.test", 443, HTTPS)
	if v := s.Evaluate(&a); !v.Allowed() || v.Rule != "a" {
		t.Errorf("%+v", v)
	}
	if v := s.Evaluate(&b); v.Allowed() {
		t.Errorf("%+v", v)
	}
	if got := s.Layers(); len(got) != 1 || got[0].Document.Rules[0].Hosts[0] != "a.test" {
		t.Errorf("%+v", got)
	}
}
