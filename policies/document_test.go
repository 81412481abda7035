package policies

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "rewrite what stands below the line in testdata/documents")

const line = "----\n"

// Each file of testdata/documents is a document above the line, and below it what becomes of it:
// the normal form, or what is wrong.
func TestDocuments(t *testing.T) {
	for _, kind := range []string{"accepted", "refused"} {
		files, err := filepath.Glob(filepath.Join("testdata", "documents", kind, "*.txt"))
		if err != nil || len(files) < 10 {
			t.Fatal("documents are missing", err)
		}
		for _, file := range files {
			t.Run(kind+"/"+strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
				content, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				input, want, _ := strings.Cut(string(content), line)
				now := time.Time{}
				if strings.Contains(file, "with_clock") {
					now = testNow
				}
				d, err := ParseAt([]byte(input), now)
				if (err == nil) != (kind == "accepted") {
					t.Fatalf("%v, %v", d, err)
				}
				got := ""
				if err != nil {
					for _, one := range err.(Errors) {
						got += one.Error() + "\n"
					}
				} else {
					got = indent(t, d)
					checkRoundTrip(t, d)
				}
				if *update {
					if err := os.WriteFile(file, []byte(input+line+got), 0o644); err != nil {
						t.Fatal(err)
					}
				} else if got != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
			})
		}
	}
}

func indent(t *testing.T, d *Document) string {
	t.Helper()
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		t.Fatal(err)
	}
	return out.String() + "\n"
}

// checkRoundTrip holds that the normal form, as JSON and as YAML, reads back as the same document.
func checkRoundTrip(t interface {
	Helper()
	Fatalf(string, ...any)
}, d *Document) {
	t.Helper()
	asJSON, err := json.Marshal(d)
	if err != nil {
		t.Fatalf("marshalling: %v", err)
	}
	asYAML, err := yaml.Marshal(d)
	if err != nil {
		t.Fatalf("marshalling: %v", err)
	}
	for _, text := range [][]byte{asJSON, asYAML} {
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("%s\nreads as %v", text, err)
		}
		if !reflect.DeepEqual(d, again) {
			t.Fatalf("%s\nreads as\n%+v, not\n%+v", text, again, d)
		}
	}
}

func TestUnreadableRuleRefusesTheDocument(t *testing.T) {
	const good = `{"id": "good", "action": "allow", "hosts": ["good.test"]}`
	if d, err := Parse([]byte(`{"rules": [` + good + `]}`)); err != nil || len(d.Rules) != 1 {
		t.Fatal(d, err)
	}
	for _, bad := range []string{`{"id": "x"}`, `{"id": "x", "action": "deny", "hosts": ["evil.test"], "prots": [1]}`, `{"id": "x", "action": "deny", "hosts": ["evil..test"]}`, `null`} {
		d, err := Parse([]byte(`{"rules": [` + good + `,` + bad + `]}`))
		var field *FieldError
		if d != nil || !errors.As(err, &field) || !strings.HasPrefix(field.Path, "rules[1]") {
			t.Errorf("%s: %v, %v", bad, d, err)
		}
	}
}

func TestErrorNamesFieldAndHint(t *testing.T) {
	_, err := Parse([]byte(`{"rules": [{"id": "a", "action": "allow", "hosts": ["a.test"], "methds": ["GET"]}]}`))
	var field *FieldError
	if !errors.As(err, &field) || field.Path != "rules[0].methds" || !strings.Contains(field.Hint, `"methods"`) {
		t.Errorf("%+v", err)
	}
	_, err = Parse([]byte(`{"rules": [{"id": "a", "action": "allow", "hosts": ["a.test", "1.2.3.4"]}]}`))
	if !errors.As(err, &field) || field.Path != "rules[0].hosts[1]" || !strings.Contains(field.Hint, "cidrs") {
		t.Errorf("%+v", err)
	}
}

func TestLimits(t *testing.T) {
	rules := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,{"id":"r%d","action":"deny","hosts":["h%d.test"]}`, i, i)
		}
		return `{"rules":[` + b.String()[1:] + `]}`
	}
	list := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ","+format, i)
		}
		return b.String()[1:]
	}
	one := func(fields string) string {
		return `{"rules":[{"id":"a","action":"allow","tls":"inspect",` + fields + `}]}`
	}
	tests := []struct{ name, at, over string }{
		{"rules", rules(MaxRules), rules(MaxRules + 1)},
		{"hosts", one(`"hosts":[` + list(MaxTargets, `"h%d.test"`) + `]`), one(`"hosts":[` + list(MaxTargets+1, `"h%d.test"`) + `]`)},
		{"cidrs", one(`"ports":[443],"cidrs":[` + list(MaxTargets, `"11.1.%d.0/24"`) + `]`), one(`"ports":[443],"cidrs":["11.2.0.0/16",` + list(MaxTargets, `"11.1.%d.0/24"`) + `]`)},
		{"ports", one(`"any":true,"ports":[` + list(MaxPorts, `1%03d`) + `]`), one(`"any":true,"ports":[` + list(MaxPorts+1, `1%03d`) + `]`)},
		{"methods", one(`"any":true,"methods":[` + list(MaxMethods, `"M%d"`) + `]`), one(`"any":true,"methods":[` + list(MaxMethods+1, `"M%d"`) + `]`)},
		{"paths", one(`"any":true,"paths":[` + list(MaxPaths, `"/%d"`) + `]`), one(`"any":true,"paths":[` + list(MaxPaths+1, `"/%d"`) + `]`)},
		{"message", one(`"any":true,"message":"` + strings.Repeat("m", MaxMessage) + `"`), one(`"any":true,"message":"` + strings.Repeat("m", MaxMessage+1) + `"`)},
		{"tests", `{"rules":[],"tests":[` + list(MaxTests, `{"name":"t%d","host":"a.test","expect":"deny"}`) + `]}`, `{"rules":[],"tests":[` + list(MaxTests+1, `{"name":"t%d","host":"a.test","expect":"deny"}`) + `]}`},
		{"name", `{"rules":[],"tests":[{"name":"` + strings.Repeat("n", MaxTestName) + `","host":"a.test","expect":"deny"}]}`, `{"rules":[],"tests":[{"name":"` + strings.Repeat("n", MaxTestName+1) + `","host":"a.test","expect":"deny"}]}`},
		{"bytes", `{"rules":[]` + strings.Repeat(" ", MaxBytes-12) + `}`, `{"rules":[]` + strings.Repeat(" ", MaxBytes-11) + `}`},
	}
	for _, tt := range tests {
		if _, err := Parse([]byte(tt.at)); err != nil {
			t.Errorf("%s at the limit: %.300v", tt.name, err)
		}
		if _, err := Parse([]byte(tt.over)); err == nil {
			t.Errorf("%s over the limit: accepted", tt.name)
		}
	}
	if _, err := Parse([]byte("rules: [] # \xff")); err == nil {
		t.Error("not UTF-8: accepted")
	}
}

// A document that grows over the limit by its defaults could not be read back.
func TestNormalFormKeepsTheLimit(t *testing.T) {
	var b strings.Builder
	for i := range MaxRules {
		fmt.Fprintf(&b, `,{"id":"r%d","action":"deny","hosts":["h%d.test"],"message":"%s"}`, i, i, strings.Repeat("m", 250))
	}
	text := `{"rules":[` + b.String()[1:] + `]}`
	if len(text) > MaxBytes {
		t.Fatal("the document itself is too large")
	}
	if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), "defaults") {
		t.Errorf("%.200v", err)
	}
}

func TestDocumentsBuiltByHandAreChecked(t *testing.T) {
	good := Rule{ID: "a", Action: Allow, Hosts: []string{"A.test"}}
	for name, change := range map[string]func(d *Document, r *Rule){
		"action":    func(d *Document, r *Rule) { r.Action = 7 },
		"tls":       func(d *Document, r *Rule) { r.TLS = 7 },
		"protocols": func(d *Document, r *Rule) { r.Protocols = 1 << 7 },
		"ports":     func(d *Document, r *Rule) { r.Ports = []PortRange{{5, 4}} },
		"host":      func(d *Document, r *Rule) { r.Hosts = []string{"a..test"} },
		"failure":   func(d *Document, r *Rule) { d.FailureMode = 7 },
		"stale":     func(d *Document, r *Rule) { d.FailureMode, d.MaxStale = FailLastKnown, -1 },
		"paths":     func(d *Document, r *Rule) { r.TLS, r.Paths = Inspect, slices.Repeat([]string{"/a"}, MaxPaths+1) },
		"methods":   func(d *Document, r *Rule) { r.TLS, r.Methods = Inspect, slices.Repeat([]string{"GET"}, MaxMethods+1) },
		"hosts":     func(d *Document, r *Rule) { r.Hosts = slices.Repeat([]string{"a.test"}, MaxTargets+1) },
		"too late":  func(d *Document, r *Rule) { r.ExpiresAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"too early": func(d *Document, r *Rule) { d.ObserveUntil = time.Date(1969, 12, 31, 23, 0, 0, 0, time.UTC) },
		"tests":     func(d *Document, r *Rule) { d.Tests = make([]Test, MaxTests+1) },
		"test":      func(d *Document, r *Rule) { d.Tests = []Test{{Name: "t", Host: "a.test", Expect: 7}} },
		"protocol":  func(d *Document, r *Rule) { d.Tests = []Test{{Name: "t", Host: "a.test", Protocol: HTTPS | HTTP}} },
		"foreign":   func(d *Document, r *Rule) { v := ForeignCredentials(7); r.ForeignCredentials = &v },
		"dns":       func(d *Document, r *Rule) { v := DNSMode(7); r.DNS = &v },
		"log":       func(d *Document, r *Rule) { v := LogMode(7); r.Log = &v },
	} {
		d, r := &Document{}, good
		change(d, &r)
		d.Rules = []Rule{r}
		if _, err := d.Normal(); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if _, err := Compile(Layer{Name: "x", Document: d}); err == nil {
			t.Errorf("%s: compiled", name)
		}
	}
	many := &Document{Rules: make([]Rule, MaxRules+1)}
	for i := range many.Rules {
		many.Rules[i] = good
		many.Rules[i].ID = fmt.Sprint("r", i)
	}
	if _, err := many.Normal(); err == nil {
		t.Error("too many rules: accepted")
	}
	for _, end := range []time.Time{time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)} {
		r := good
		r.ExpiresAt = end
		if _, err := (&Document{Rules: []Rule{r}}).Normal(); err != nil {
			t.Error(err)
		}
	}
	d := &Document{Rules: []Rule{good}}
	normal, err := d.Normal()
	if err != nil || normal.Rules[0].Hosts[0] != "a.test" || d.Rules[0].Hosts[0] != "A.test" {
		t.Errorf("%+v, %v; given %+v", normal, err, d)
	}
}

func TestRuleAndDocumentReadFromJSON(t *testing.T) {
	var body struct {
		Policy Document
		Rule   Rule
	}
	text := `{"Policy": {"rules": []}, "Rule": {"id": "a", "action": "allow", "hosts": ["A.test"]}}`
	if err := json.Unmarshal([]byte(text), &body); err != nil || body.Rule.Hosts[0] != "a.test" || body.Rule.Ports[0] != Port(443) {
		t.Errorf("%+v, %v", body, err)
	}
	for _, bad := range []string{`{"Policy": {"rule": []}}`, `{"Rule": {"id": "a", "action": "allow", "hosts": ["A.test"], "x": 1}}`, `{"Rule": {"id": "a", "action": "allow"}}`, `{"Rule": {"id": "a", "id": "b", "action": "allow", "hosts": ["a.test"]}}`, `{"Rule": {"id": "a", "action": "allow", "git": "git.test/a/b", "access": "read"}}`} {
		if err := json.Unmarshal([]byte(bad), &body); err == nil {
			t.Errorf("%s: accepted", bad)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, kind := range []string{"accepted", "refused"} {
		files, _ := filepath.Glob(filepath.Join("testdata", "documents", kind, "*.txt"))
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			input, _, _ := bytes.Cut(content, []byte(line))
			f.Add(input)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := Parse(text)
		if err != nil {
			var field *FieldError
			if d != nil || !errors.As(err, &field) {
				t.Fatalf("%v, %v", d, err)
			}
			return
		}
		checkRoundTrip(t, d)
		if _, err := Compile(Layer{Name: "x", Document: d}); err != nil {
			t.Fatalf("parsed, but not compiled: %v", err)
		}
	})
}
