package policies

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const page = "../docs/policies.md"

// Each example of the page is read, its tests are run, and nobody is warned of what we show, but of what is shown for that.
func TestExamplesOfThePage(t *testing.T) {
	text := pageText(t)
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(text, -1)
	if len(examples) < 5 {
		t.Fatalf("%d examples", len(examples))
	}
	asked := 0
	for _, x := range examples {
		d, err := Parse([]byte(x[1]))
		if err != nil {
			t.Errorf("%v\n%s", err, x[1])
			continue
		}
		s, err := Compile(Layer{Name: "policy", Document: d})
		if err != nil {
			t.Fatal(err)
		}
		for _, res := range s.RunTests(d.Tests, testNow) {
			if asked++; !res.Passed {
				t.Errorf("%s: %s", res.Name, res.Message)
			}
		}
		checkRoundTrip(t, d)
		for _, f := range Lint(d, LintOptions{Now: testNow, Floor: labFloor, Org: "org_1"}) {
			if f.Code != FindBroad || !strings.Contains(x[1], "mode:") {
				t.Errorf("%+v\n%s", f, x[1])
			}
		}
	}
	if asked < 25 {
		t.Errorf("%d tests", asked)
	}
}

// The page tells of every field, code, preset and access that there is, and of no other.
func TestPageIsComplete(t *testing.T) {
	text := pageText(t)
	for heading, want := range map[string][]string{"## Rules": ruleKeys, "## What lint tells": Findings(), "## Presets": presetNames()} {
		_, section, _ := strings.Cut(text, heading+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		var got []string
		for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
			got = append(got, m[1])
		}
		missing := slices.DeleteFunc(slices.Clone(want), func(s string) bool { return slices.Contains(got, s) })
		unknown := slices.DeleteFunc(slices.Clone(got), func(s string) bool { return slices.Contains(want, s) })
		if len(missing)+len(unknown) > 0 {
			t.Errorf("%s: missing %q, unknown %q", heading, missing, unknown)
		}
	}
	for _, word := range slices.Concat(documentKeys, gitAccess) {
		if !strings.Contains(text, "`"+word+"`") {
			t.Errorf("the page does not tell of %s", word)
		}
	}
}

func pageText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
