package main

import (
	"strings"
	"testing"
)

func TestSummary(t *testing.T) {
	const start = `{"Action":"start","Package":"p"}` + "\n"
	for name, c := range map[string]struct {
		in   string
		ok   bool
		want string
	}{
		"all passed":                {start + `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"pass","Package":"p"}`, true, "1 passed, 0 failed"},
		"a failed one is told":      {`{"Action":"output","Package":"p","Test":"TestA","Output":"why\n"}` + "\n" + `{"Action":"fail","Package":"p","Test":"TestA"}`, false, "why\n"},
		"a skipped one failed":      {`{"Action":"skip","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"pass","Package":"p"}`, false, "0 passed, 1 failed"},
		"a package did not build":   {`{"ImportPath":"p","Action":"build-output","Output":"p.go:1: no\n"}` + "\n" + `{"Action":"fail","Package":"p"}`, false, "p.go:1: no"},
		"nothing ran":               {"", false, "0 passed, 0 failed"},
		"other words are passed on": {"go: no such tool\n" + `{"Action":"pass","Package":"p","Test":"TestA"}`, true, "no such tool"},
	} {
		var out strings.Builder
		if ok := summarize(strings.NewReader(c.in), &out, false); ok != c.ok || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: %v, %q", name, ok, out.String())
		}
	}
}

func TestPassedTestsHaveGoTestsOwnLines(t *testing.T) {
	const in = `{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- PASS: TestA (0.01s)\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.021s\n"}
{"Action":"pass","Package":"p"}
`
	const short = "PASS\nok  \tp\t0.021s\n\n1 passed, 0 failed\n"
	for verbose, want := range map[bool]string{false: short, true: "--- PASS: TestA (0.01s)\n" + short} {
		var out strings.Builder
		if ok := summarize(strings.NewReader(in), &out, verbose); !ok || out.String() != want {
			t.Errorf("verbose %v: %v, %q", verbose, ok, out.String())
		}
	}
}
