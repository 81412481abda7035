package main

import (
	"os"
	"path/filepath"
	"testing"
)

const guarded = `package p

import "fmt"

const limit = 3

func f(a, b int) (int, error) {
	if a < b && !g(true) {
		return 0, fmt.Errorf("a %d", a+1)
	}
	a++
	err := h()
	defer g(false)
	return a, err
}
`

// TestMutantsOf: what is changed, one thing each, and what is left alone: constants and words for people.
func TestMutantsOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.go")
	if err := os.WriteFile(path, []byte(guarded), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := mutantsOf(source{"p", path})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"a < b && !g(true)": "!(a < b && !g(true))", "&&": "||", "<": "<=", "!": "", "true": "false", "0": "1",
		"a++": "", "defer g(false)": "", "false": "true", "err": "nil",
	}
	for _, m := range found {
		text, ok := want[m.was]
		if !ok || text != m.text {
			t.Errorf("line %d: %q became %q", m.line, m.was, m.text)
		}
		delete(want, m.was)
		changed, err := m.apply()
		if err != nil || string(changed) == guarded || len(changed) != len(guarded)-len(m.was)+len(m.text) {
			t.Errorf("%v: applied: %v\n%s", m, err, changed)
		}
	}
	for was := range want {
		t.Errorf("%q was left alone", was)
	}
}
