package policies

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var testNow = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// A small world, so that rules and requests meet often.
var (
	worldHosts = []string{"a.test", "b.test", "a.a.test", "b.a.test", "a.b.a.test", "test.a", "xa.test", "a.a.a.a.a.test", "dns.google"}
	worldRules = []string{"a.test", "*.a.test", "b.a.test", "*.b.a.test", "*.test", "b.test", "*.a", "*.a.a.a.a.test", "dns.google", "*.google"}
	worldCIDRs = []string{"0.0.0.0/0", "203.0.113.0/24", "203.0.113.7/32", "203.0.112.0/22", "8.8.8.0/24", "::/0", "2606:4700::/32", "64:ff9b::/96", "2001::/32", "203.0.113.128/25", "8.8.8.8/32"}
	worldAddrs = []string{"203.0.113.7", "203.0.113.8", "203.0.112.1", "8.8.8.8", "8.8.9.8", "2606:4700::1", "64:ff9b::203.0.113.7", "::ffff:8.8.8.8", "2002:cb00:7107::1",
		"64:ff9b:1:cb00:0:7107::", "64:ff9b:1::203.0.113.7", "2001:0:cb00:7107::f7f7:f7f7", "::203.0.113.7", "203.0.113.200"}
	worldPorts  = []PortRange{Port(80), Port(443), Port(22), {400, 500}, EveryPort}
	worldPaths  = []string{"/**", "/a", "/a/*", "/a/b", "/a/**", "/a%2Fb", "/*/b", "/a*", "/"}
	worldAsked  = []string{"/", "/a", "/a/", "/a/b", "/a%2Fb", "/a/b/c", "/b", "/a%2Fb/c", "/ab", "/a/*", "/a/%2A"}
	worldMethod = []string{"GET", "POST", "get"}
	worldTimes  = []time.Time{{}, testNow.Add(-time.Microsecond), testNow, testNow.Add(time.Microsecond)}
)

func pick[T any](t *rapid.T, label string, from []T) T { return rapid.SampledFrom(from).Draw(t, label) }

func some[T any](t *rapid.T, label string, from []T, least int) []T {
	return rapid.SliceOfN(rapid.SampledFrom(from), least, 2).Draw(t, label)
}

func opinion[T ~uint8](t *rapid.T, label string, values int) *T {
	n := rapid.IntRange(-1, values-1).Draw(t, label)
	if n < 0 {
		return nil
	}
	v := T(n)
	return &v
}

func drawRule(t *rapid.T, id int) Rule {
	r := Rule{ID: fmt.Sprintf("r%d", id), Shared: true, Action: pick(t, "action", []Action{Deny, Allow, Allow})}
	switch rapid.IntRange(0, 4).Draw(t, "target") {
	case 0:
		r.Any = true
	case 1:
		for _, s := range some(t, "cidrs", worldCIDRs, 1) {
			r.CIDRs = append(r.CIDRs, netip.MustParsePrefix(s))
		}
	default:
		r.Hosts = some(t, "hosts", worldRules, 1)
	}
	r.Ports = some(t, "ports", worldPorts, 0)
	r.Protocols = Protocol(pick(t, "protocols", []Protocol{0, 0, HTTPS, HTTP, HTTPS | HTTP, TLS | TCP, SSH, AllProtocols}))
	r.TLS = pick(t, "tls", []TLSMode{Pass, Inspect})
	r.Methods = some(t, "methods", worldMethod[:2], 0)
	r.Paths = some(t, "paths", worldPaths, 0)
	r.ForeignCredentials = opinion[ForeignCredentials](t, "foreign", 3)
	r.DNS = opinion[DNSMode](t, "dns", 2)
	r.Log = opinion[LogMode](t, "log", 2)
	r.ExpiresAt = pick(t, "expires", worldTimes)
	r.Disabled = rapid.IntRange(0, 5).Draw(t, "disabled") == 0
	return r
}

// drawDocument drops what a rule may not combine, rather than the rule.
func drawDocument(t *rapid.T) *Document {
	d := &Document{DoH: pick(t, "doh", []DoHMode{0, 0, DoHBlock, DoHAllow, DoHAllow}), ObserveUntil: pick(t, "observe", []time.Time{{}, {}, {}, testNow.Add(-time.Microsecond), testNow, testNow.Add(time.Microsecond)})}
	for i := range rapid.IntRange(0, 6).Draw(t, "rules") {
		r := drawRule(t, i)
		for _, drop := range []func(){
			func() {},
			func() { r.ForeignCredentials, r.DNS = nil, nil },
			func() { r.Methods, r.Paths = nil, nil },
			func() { r.TLS = Pass },
			func() { r.Ports = []PortRange{Port(443)} },
		} {
			drop()
			if _, err := (&Document{Rules: []Rule{r}}).Normal(); err == nil {
				d.Rules = append(d.Rules, r)
				break
			}
		}
	}
	normal, err := d.Normal()
	if err != nil {
		t.Fatal(err)
	}
	return normal
}

func drawRequest(t *rapid.T) Request {
	r := Request{
		Stage: pick(t, "stage", []Stage{StageName, StageConnect, StageConnect, StageRequest}),
		Port:  pick(t, "port", []uint16{80, 443, 22, 450, 400, 500, 501, 853}),
		Now:   pick(t, "now", []time.Time{testNow, testNow, {}, testNow.Add(time.Microsecond), testNow.Add(time.Nanosecond), testNow.Add(-time.Microsecond)}),
	}
	if r.Stage == StageName || rapid.IntRange(0, 2).Draw(t, "by") > 0 {
		r.Host = pick(t, "host", worldHosts)
	}
	if r.Host == "" || rapid.Bool().Draw(t, "resolved") {
		r.Addr = netip.MustParseAddr(pick(t, "addr", worldAddrs))
	}
	switch r.Stage {
	case StageConnect:
		r.Protocol = pick(t, "protocol", []Protocol{0, 0, HTTPS, HTTP, TLS, TCP, SSH, Postgres})
	case StageRequest:
		r.Protocol = pick(t, "protocol", []Protocol{HTTPS, HTTP})
		r.Method, r.Path = pick(t, "method", worldMethod), pick(t, "path", worldAsked)
	}
	return r
}

func TestEvaluateEqualsReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var layers []Layer
		for i := range rapid.IntRange(1, 3).Draw(t, "layers") {
			layers = append(layers, Layer{Name: fmt.Sprint("l", i), Version: int64(i), Document: drawDocument(t)})
		}
		s, err := Compile(layers...)
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			r := drawRequest(t)
			got, want := s.Evaluate(&r), reference(layers, r)
			checkNames(t, s, layers, r, got)
			if rule, layer := refNames(layers, r, want); want.Reason != ReasonDoH && (got.Rule != rule || got.Layer != layer) {
				t.Fatalf("request %+v\ngot  %+v\nwant %s of %s", r, got, rule, layer)
			}
			got.Rule, got.Layer, got.Version, got.Message = "", "", 0, ""
			if got.Action == Deny {
				got.Log = 0
			}
			if got != want {
				t.Fatalf("request %+v\ngot  %+v\nwant %+v", r, got, want)
			}
			if x := s.Explain(&r); x.Verdict.Action != got.Action || x.Verdict.Reason != got.Reason {
				t.Fatalf("request %+v: explained as %+v", r, x)
			}
		}
	})
}

// checkNames holds that the rule and layer of a verdict are ones that say so, by the naive look and by Explain.
func checkNames(t *rapid.T, s *Snapshot, layers []Layer, r Request, v Verdict) {
	var at *Layer
	for i := range layers {
		if layers[i].Name == v.Layer {
			at = &layers[i]
		}
	}
	if at == nil && v.Layer == "" && v.Observed {
		t.Fatalf("observed by nobody: %+v", v)
	}
	if v.Rule == "" {
		if v.Reason == ReasonRuleDenied {
			t.Fatalf("denied by no rule: %+v", v)
		}
		return
	}
	if at == nil || at.Version != v.Version {
		t.Fatalf("no layer for %+v", v)
	}
	for i := range at.Document.Rules {
		rule := &at.Document.Rules[i]
		if rule.ID != v.Rule {
			continue
		}
		matched := false
		for j := range protocolNames {
			p := Protocol(1 << j)
			matched = matched || (r.Stage == StageName || r.Protocol == 0 || r.Protocol == p) && refMatch(rule, r, p)
		}
		if !matched || rule.Action != Deny && v.Reason == ReasonRuleDenied || rule.Action != Allow && v.Reason == ReasonAllowed {
			t.Fatalf("the rule %+v does not say %+v", rule, v)
		}
		for _, l := range s.Explain(&r).Layers {
			for _, x := range l.Rules {
				if l.Name == at.Name && x.ID == rule.ID && x.Matched {
					return
				}
			}
		}
		t.Fatalf("Explain does not show %s of %s as matched", v.Rule, v.Layer)
	}
	t.Fatalf("no rule for %+v", v)
}

// The order of the rules in a document means nothing.
func TestOrderMeansNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDocument(t)
		shuffled := *d
		shuffled.Rules = rapid.Permutation(d.Rules).Draw(t, "order")
		a, errA := Compile(Layer{Name: "a", Document: d})
		b, errB := Compile(Layer{Name: "a", Document: &shuffled})
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		r := drawRequest(t)
		if x, y := a.Evaluate(&r), b.Evaluate(&r); x != y {
			t.Fatalf("request %+v\n%+v\n%+v", r, x, y)
		}
	})
}

// Whoever is let through at the end was let through before: what is refused early would have been refused in any case.
func TestStagesOnlyNarrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSnapshot(t)
		r := drawRequest(t)
		if r.Host == "" {
			r.Host = pick(t, "host", worldHosts)
		}
		r.Addr = netip.Addr{}
		r.Stage, r.Protocol = StageRequest, pick(t, "protocol", []Protocol{HTTPS, HTTP})
		r.Method, r.Path = pick(t, "method", worldMethod), pick(t, "path", worldAsked)
		whole := s.Evaluate(&r)
		connected := Request{Stage: StageConnect, Host: r.Host, Port: r.Port, Protocol: r.Protocol, Now: r.Now}
		unknown := connected
		unknown.Protocol = 0
		name := Request{Stage: StageName, Host: r.Host, Now: r.Now}
		for _, earlier := range []Request{connected, unknown, name} {
			if v := s.Evaluate(&earlier); whole.Allowed() && !v.Allowed() {
				t.Fatalf("allowed as %+v: %+v\nbut not as %+v: %+v", r, whole, earlier, v)
			}
		}
		if v := s.Evaluate(&unknown); whole.Allowed() && !v.Protocols.Has(r.Protocol) {
			t.Fatalf("%v is allowed, but not among %v", r.Protocol, v.Protocols)
		}
		r.Addr = netip.MustParseAddr(pick(t, "addr", worldAddrs))
		if v := s.Evaluate(&r); v.Allowed() && !whole.Allowed() {
			t.Fatalf("the address %v opens what the name does not: %+v", r.Addr, v)
		}
	})
}

// One more deny rule, one allow rule less, one more layer, or an earlier end: none of them opens anything.
func TestTighteningNeverOpens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDocument(t)
		d.ObserveUntil = time.Time{}
		before, err := Compile(Layer{Name: "a", Document: d})
		if err != nil {
			t.Fatal(err)
		}
		tight := *d
		tight.Rules = append([]Rule{}, d.Rules...)
		layers := []Layer{{Name: "a", Document: &tight}}
		switch rapid.IntRange(0, 3).Draw(t, "how") {
		case 0:
			more := drawDocument(t)
			for _, r := range more.Rules {
				if r.Action == Deny {
					r.ID = "more-" + r.ID
					tight.Rules = append(tight.Rules, r)
				}
			}
		case 1:
			for i := range tight.Rules {
				if tight.Rules[i].Action == Allow {
					tight.Rules = append(tight.Rules[:i:i], tight.Rules[i+1:]...)
					break
				}
			}
		case 2:
			other := drawDocument(t)
			other.ObserveUntil = time.Time{}
			layers = append(layers, Layer{Name: "b", Document: other})
		default:
			for i := range tight.Rules {
				if tight.Rules[i].Action == Allow {
					tight.Rules[i].ExpiresAt = testNow.Add(-time.Hour)
				}
			}
		}
		after, err := Compile(layers...)
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			r := drawRequest(t)
			if x, y := before.Evaluate(&r), after.Evaluate(&r); y.Allowed() && (!x.Allowed() || y.Protocols&^x.Protocols != 0) {
				t.Fatalf("request %+v\n%+v\n%+v", r, x, y)
			}
		}
	})
}

func drawSnapshot(t *rapid.T) *Snapshot {
	var layers []Layer
	for i := range rapid.IntRange(1, 3).Draw(t, "layers") {
		layers = append(layers, Layer{Name: fmt.Sprint("l", i), Version: int64(i), Document: drawDocument(t)})
	}
	s, err := Compile(layers...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
