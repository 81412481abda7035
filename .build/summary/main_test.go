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
		if ok := summarize(strings.NewReader(c.in), &out); ok != c.ok || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: %v, %q", name, ok, out.String())
		}
	}
}
