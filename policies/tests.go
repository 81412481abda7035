package policies

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"portreeve.dev/policies/hostname"
	"portreeve.dev/policies/netaddr"
	"portreeve.dev/policies/pathmatch"
)

// Limits of a document's tests.
const (
	MaxTests    = 1000
	MaxTestName = 100 // bytes
)

// A Test is a question to which the author of a document knows the answer. Tests only tell: no verdict looks at them.
type Test struct {
	Name string // unique in its document
	// Exactly one of Host and Addr.
	Host     string
	Addr     netip.Addr
	Port     uint16   // default: the protocol's
	Protocol Protocol // one; default https
	// Method and Path make it one HTTP request, GET / by default; without both the connection alone is asked about.
	Method, Path string
	Expect       Action
	Rule         string // id of the rule that has to decide; empty: whichever
}

// A TestResult is what became of one test.
type TestResult struct {
	Name    string  `json:"name"`
	Passed  bool    `json:"passed"`
	Got     Verdict `json:"got"`
	Message string  `json:"message,omitempty"` // of a failed one: what was expected, and what came
}

// RunTests asks each question as it would be asked on the wire for that org, at that time: the floor, then the snapshot. A test holds for the rules as
// they are written: what is let through only because its layer still watches (observe_until) counts as denied.
func (f *Floor) RunTests(org string, s *Snapshot, tests []Test, now time.Time) []TestResult {
	f = f.At(now)
	results := make([]TestResult, len(tests))
	for i, t := range tests {
		results[i] = s.runTest(t, now, func(r *Request) Verdict { return f.Evaluate(org, s, r) })
	}
	return results
}

// RunTests asks the snapshot, and the part of the floor that is the same everywhere. What the platform opened of the other part is not known here,
// so a test about that holds if it does open or closed.
func (s *Snapshot) RunTests(tests []Test, now time.Time) []TestResult {
	results := (&Floor{}).RunTests("", s, tests, now)
	for i, closed := range results {
		if !closed.Passed && closed.Got.Layer == FloorLayer && closed.Got.Reason != ReasonFloorHard {
			results[i] = s.runTest(tests[i], now, s.Evaluate)
		}
	}
	return results
}

func (s *Snapshot) runTest(t Test, now time.Time, evaluate func(*Request) Verdict) TestResult {
	res := TestResult{Name: t.Name}
	var errs Errors
	if normalTest(&t, func(field string) string { return strings.TrimPrefix(field, ".") }, &errs); errs != nil {
		res.Message = "not a test: " + errs.Error()
		return res
	}
	r := t.request(now)
	res.Got = evaluate(&r)
	got := Deny
	if res.Got.Allowed() && !res.Got.Observed {
		got = Allow
	}
	switch {
	case got != t.Expect:
		res.Message = fmt.Sprintf("expected %v, got %v: %s", t.Expect, got, res.Got.because())
	case t.Rule != "" && !s.decides(&r, got, t.Rule):
		res.Message = fmt.Sprintf("%v as expected, but not by rule %q: %s", got, t.Rule, res.Got.because())
	default:
		res.Passed = true
	}
	return res
}

// because says in a few words who decided.
func (v Verdict) because() string {
	switch {
	case v.Rule != "":
		return fmt.Sprintf("rule %q of %s", v.Rule, v.Layer)
	case v.Reason == ReasonNoRule:
		return "no rule of " + v.Layer + " allows it"
	case v.Layer == FloorLayer:
		return fmt.Sprintf("the floor closes it (%s)", v.Reason)
	}
	return v.Reason.String()
}

// decides reports whether the rule of that id is the one that speaks for some layer, and the layer says so.
func (s *Snapshot) decides(r *Request, action Action, id string) bool {
	if s == nil || s.denyAll >= 0 {
		return false
	}
	e := evaluation{s: s, r: r}
	if e.run() != "" {
		return false
	}
	for i := range s.layers {
		if a, _, rule := e.alone(i); a == action && rule == id {
			return true
		}
	}
	return false
}

// request is the question, of a test in normal form.
func (t *Test) request(now time.Time) Request {
	r := Request{Stage: StageConnect, Host: t.Host, Addr: t.Addr, Port: t.Port, Protocol: t.Protocol, Now: now}
	if t.Method != "" {
		r.Stage, r.Method, r.Path = StageRequest, t.Method, t.Path
	}
	return r
}

func normalTests(tests []Test, errs *Errors) []Test {
	if len(tests) > MaxTests {
		errs.add("tests", "", "%d tests are more than %d", len(tests), MaxTests)
		return nil
	}
	if len(tests) == 0 {
		return nil
	}
	out := make([]Test, len(tests))
	seen := make(map[string]int, len(tests))
	for i := range tests {
		path := func(field string) string { return at("tests", i) + field }
		out[i] = tests[i]
		normalTest(&out[i], path, errs)
		if first, twice := seen[out[i].Name]; twice {
			errs.add(path(".name"), "", "%q is the name of tests[%d] too", out[i].Name, first)
		}
		seen[out[i].Name] = i
	}
	return out
}

func normalTest(t *Test, path pathFunc, errs *Errors) {
	if t.Name == "" || len(t.Name) > MaxTestName || !utf8.ValidString(t.Name) || strings.ContainsFunc(t.Name, unicode.IsControl) {
		errs.add(path(".name"), "say in a few words what has to hold", "is not one line of 1 to %d bytes", MaxTestName)
	}
	normalTestTarget(t, path, errs)
	if t.Protocol == 0 {
		t.Protocol = HTTPS
	}
	if !t.Protocol.One() {
		errs.add(path(".protocol"), "use one of "+strings.Join(protocolNames, ", "), "is not one protocol")
		return
	}
	if t.Port == 0 {
		if t.Port = t.Protocol.Port(); t.Port == 0 {
			errs.add(path(".port"), "", "%v has no port of its own, name it", t.Protocol)
		}
	}
	normalTestInside(t, path, errs)
	if t.Expect > Allow {
		errs.add(path(".expect"), "", "%v", t.Expect)
	}
	if t.Rule != "" && !validID(t.Rule) {
		errs.add(path(".rule"), "name the id of a rule", "%q is not an id", t.Rule)
	}
}

func normalTestTarget(t *Test, path pathFunc, errs *Errors) {
	switch {
	case t.Host != "" && t.Addr.IsValid():
		errs.add(path(""), "write one test for each", "host and address exclude each other")
	case t.Host != "":
		name, err := hostname.Normalize(t.Host)
		if err != nil {
			errs.add(path(".host"), "a test asks about one host name; an address stands under address", "%v", err)
		}
		t.Host = name
	case t.Addr.IsValid():
		t.Addr = netaddr.Canonical(t.Addr)
	default:
		errs.add(path(""), "give host or address", "the test has no destination")
	}
}

func normalTestInside(t *Test, path pathFunc, errs *Errors) {
	if t.Method == "" && t.Path == "" {
		return
	}
	if t.Protocol&(HTTPS|HTTP) == 0 {
		field := ".method"
		if t.Method == "" {
			field = ".path"
		}
		errs.add(path(field), "use the protocol https or http", "can't be seen in %v", t.Protocol)
	}
	if t.Method == "" {
		t.Method = "GET"
	}
	if t.Path == "" {
		t.Path = "/"
	}
	if t.Method = strings.ToUpper(t.Method); !validMethod(t.Method) {
		errs.add(path(".method"), "", "%q is not a method that we let through", t.Method)
	}
	canonical, err := pathmatch.Canonical(t.Path)
	if err != nil {
		errs.add(path(".path"), "write the path alone, without a query", "%v", err)
	}
	t.Path = canonical
}

var testKeys = []string{"name", "host", "address", "port", "protocol", "method", "path", "expect", "rule"}

func (r *reader) tests(n *node) []Test {
	if n.kind == kindList && len(n.values) == 0 {
		return nil
	}
	var all []Test
	for i, one := range r.list(n, "tests", MaxTests) {
		all = append(all, r.test(one, at("tests", i)))
	}
	return all
}

func (r *reader) test(n *node, path string) (t Test) {
	fields := r.object(n, path, testKeys)
	if fields == nil {
		return t
	}
	for _, needed := range []string{"name", "expect"} {
		if fields[needed] == nil {
			r.errs.add(join(path, needed), "", "is missing")
		}
	}
	for _, key := range n.keys {
		v, here := fields[key], join(path, key)
		if v == nil {
			continue
		}
		switch key {
		case "name":
			t.Name = r.string(v, here)
		case "host":
			if t.Host = r.string(v, here); t.Host == "" {
				r.errs.add(here, "", "is empty")
			}
		case "address":
			a, err := netip.ParseAddr(r.string(v, here))
			if err != nil || a.Zone() != "" {
				r.errs.add(here, "write a plain IPv4 or IPv6 address", "%q is not an address", v.text)
			}
			t.Addr = a
		case "port":
			p, ok := port(v.text)
			if !ok || v.kind != kindNumber {
				r.errs.add(here, "write a number from 1 to 65535", "%q is not a port", v.text)
			}
			t.Port = p
		case "protocol":
			t.Protocol = 1 << r.choice(v, here, protocolNames)
		case "method":
			t.Method = r.string(v, here)
		case "path":
			t.Path = r.string(v, here)
		case "expect":
			t.Expect = Action(r.choice(v, here, actionNames))
		case "rule":
			t.Rule = r.string(v, here)
		}
	}
	return t
}

type wireTest struct {
	Name     string `json:"name" yaml:"name"`
	Host     string `json:"host,omitempty" yaml:"host,omitempty"`
	Address  string `json:"address,omitempty" yaml:"address,omitempty"`
	Port     uint16 `json:"port" yaml:"port"`
	Protocol string `json:"protocol" yaml:"protocol"`
	Method   string `json:"method,omitempty" yaml:"method,omitempty"`
	Path     string `json:"path,omitempty" yaml:"path,omitempty"`
	Expect   string `json:"expect" yaml:"expect"`
	Rule     string `json:"rule,omitempty" yaml:"rule,omitempty"`
}

func wireTests(tests []Test) []wireTest {
	var out []wireTest
	for _, t := range tests {
		w := wireTest{Name: t.Name, Host: t.Host, Port: t.Port, Protocol: t.Protocol.String(), Method: t.Method, Path: t.Path, Expect: t.Expect.String(), Rule: t.Rule}
		if t.Addr.IsValid() {
			w.Address = t.Addr.String()
		}
		out = append(out, w)
	}
	return out
}
