package policies

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// manyRules is a ceiling of 10,000 rules of every kind, with a named policy and a list of the sandbox's own beside it.
func manyRules(t testing.TB) []Layer {
	t.Helper()
	d := &Document{}
	for i := range MaxRules {
		r := Rule{ID: fmt.Sprintf("r%05d", i), Action: Allow}
		switch i % 5 {
		case 0:
			r.CIDRs, r.Ports = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i), 0}), 24)}, []PortRange{Port(443)}
		case 1:
			r.Hosts = []string{fmt.Sprintf("*.w%d.example.com", i)}
		case 2:
			r.Hosts, r.TLS, r.Methods, r.Paths = []string{fmt.Sprintf("h%d.example.com", i)}, Inspect, []string{"GET", "POST"}, []string{"/v1/*/items/**"}
		case 3:
			r.Hosts, r.Action = []string{fmt.Sprintf("h%d.evil.example", i)}, Deny
		default:
			r.Hosts = []string{fmt.Sprintf("h%d.example.com", i)}
		}
		d.Rules = append(d.Rules, r)
	}
	policy := &Document{Rules: []Rule{{ID: "p", Action: Allow, Hosts: []string{"*.example.com"}, TLS: Inspect}, {ID: "q", Action: Allow, CIDRs: []netip.Prefix{netip.MustParsePrefix("11.0.0.0/8")}, Ports: []PortRange{Port(443)}}}}
	own := &Document{Rules: []Rule{{ID: "o", Action: Allow, Any: true}, {ID: "oa", Action: Allow, CIDRs: everywhere, Ports: []PortRange{Port(443)}}}}
	return []Layer{{Name: "ceiling", Document: d}, {Name: "policy:web", Document: policy}, {Name: "own", Document: own}}
}

func benchRequests() map[string]Request {
	return map[string]Request{
		"exact":    connect("h4999.example.com", 443, HTTPS),
		"wildcard": connect("a.b.w5001.example.com", 443, 0),
		"request":  request("h5002.example.com", "POST", "/v1/users/items/7"),
		"denied":   connect("h5003.evil.example", 443, HTTPS),
		"no_rule":  connect("nobody.example.org", 443, HTTPS),
		"address":  connectAddr("11.19.136.9", 443, HTTPS), // rule r05000
		"labels":   connect(strings.Repeat("a.", 123)+"a.com", 443, HTTPS),
	}
}

func TestEvaluateAllocatesNothing(t *testing.T) {
	s, err := Compile(manyRules(t)...)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Reason{"denied": ReasonRuleDenied, "no_rule": ReasonNoRule, "labels": ReasonNoRule}
	for name, r := range benchRequests() {
		if n := testing.AllocsPerRun(100, func() { s.Evaluate(&r) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		reason := want[name]
		if reason == "" {
			reason = ReasonAllowed
		}
		if v := s.Evaluate(&r); v.Reason != reason {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// Every lookup, connection and request asks once. The cost must not grow with the number of rules.
func BenchmarkEvaluate(b *testing.B) {
	s, err := Compile(manyRules(b)...)
	if err != nil {
		b.Fatal(err)
	}
	for name, r := range benchRequests() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Evaluate(&r)
			}
		})
	}
	// Each time another rule, so that the rules do not stay in the nearest cache.
	b.Run("mixed", func(b *testing.B) {
		requests := make([]Request, 2000)
		for i := range requests {
			requests[i] = connect(fmt.Sprintf("h%d.example.com", i*5%MaxRules+4), 443, HTTPS)
		}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			s.Evaluate(&requests[i%len(requests)])
			i += 7
		}
	})
}

// Each change of a policy compiles it again, on every node that holds it.
func BenchmarkCompile(b *testing.B) {
	layers := manyRules(b)
	for b.Loop() {
		if _, err := Compile(layers...); err != nil {
			b.Fatal(err)
		}
	}
}

// Each save and each snapshot that a node receives is parsed.
func BenchmarkParse(b *testing.B) {
	text, err := manyRules(b)[0].Document.MarshalJSON()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}

// Whoever saves a document waits for what lint says.
func BenchmarkLint(b *testing.B) {
	layers := manyRules(b)
	o := LintOptions{Now: testNow, Ceiling: layers[0].Document, Granted: []string{"h2.example.com"}}
	for b.Loop() {
		Lint(layers[0].Document, o)
	}
}

// Restore and allow edit texts while somebody waits.
func BenchmarkEditYAML(b *testing.B) {
	d := &Document{Rules: manyRules(b)[0].Document.Rules[:1000]}
	text, err := FormatYAML(d)
	if err != nil {
		b.Fatal(err)
	}
	to := &Document{Rules: append(d.Rules[1:1000:1000], Rule{ID: "new", Action: Allow, Hosts: []string{"new.test"}})}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := EditYAML(text, to); err != nil {
			b.Fatal(err)
		}
	}
}
