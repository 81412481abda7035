package policies

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func parse(t testing.TB, text string) *Document {
	t.Helper()
	d, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDiff(t *testing.T) {
	from := parse(t, `{"rules": [
		{"id": "same", "action": "allow", "hosts": ["a.test", "b.test"], "tls": "inspect", "methods": ["GET", "POST"]},
		{"id": "gone", "action": "deny", "hosts": ["gone.test"]},
		{"id": "other", "action": "allow", "hosts": ["o.test"]}]}`)
	to := parse(t, `{"observe_until": "2026-02-01T00:00:00Z", "tests": [{"name": "t", "host": "a.test", "expect": "allow"}], "rules": [
		{"id": "new", "action": "deny", "any": true},
		{"id": "other", "action": "allow", "hosts": ["o.test"], "tls": "inspect", "foreign_credentials": "strip", "enabled": false},
		{"id": "same", "action": "allow", "hosts": ["B.test", "a.test"], "tls": "inspect", "methods": ["POST", "get"], "ports": [443]}]}`)
	text := func(c DocumentChange) (s []string) {
		s = append(s, c.Fields...)
		for _, r := range c.Rules {
			line, _ := json.Marshal(r.Fields)
			s = append(s, r.ID+" "+r.Kind+" "+string(line))
		}
		return s
	}
	want := []string{"observe_until", "tests", "gone removed null", `other changed ["tls","foreign_credentials","enabled"]`, "new added null"}
	if d := cmp.Diff(want, text(Diff(from, to))); d != "" {
		t.Error(d)
	}
	if c := Diff(from, from); !c.Empty() || c.Rules == nil || c.Fields == nil {
		t.Errorf("%+v", c)
	}
	if c := Diff(nil, to); len(c.Rules) != 3 || c.Rules[0].Kind != RuleAdded || c.Rules[0].After == nil || c.Rules[0].Before != nil {
		t.Errorf("%+v", c)
	}
	if c := Diff(to, nil); len(c.Rules) != 3 || c.Rules[0].Kind != RuleRemoved {
		t.Errorf("%+v", c)
	}
	for _, r := range Diff(from, to).Rules {
		if (r.Before != nil) != (r.Kind != RuleAdded) || (r.After != nil) != (r.Kind != RuleRemoved) {
			t.Errorf("%+v", r)
		}
	}
}

// No difference means the same verdicts, and the changes applied to one document give the other.
func TestDiffTellsAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := drawDocument(t), drawDocument(t)
		c := Diff(from, to)
		applied := &Document{DoH: to.DoH, ObserveUntil: to.ObserveUntil, FailureMode: to.FailureMode, MaxStale: to.MaxStale}
		changed := map[string]RuleChange{}
		for _, r := range c.Rules {
			changed[r.ID] = r
		}
		for _, r := range from.Rules {
			if ch, ok := changed[r.ID]; !ok {
				applied.Rules = append(applied.Rules, r)
			} else if ch.After != nil {
				applied.Rules = append(applied.Rules, *ch.After)
			}
		}
		for _, r := range c.Rules {
			if r.Kind == RuleAdded {
				applied.Rules = append(applied.Rules, *r.After)
			}
		}
		var fields []string
		if !from.ObserveUntil.Equal(to.ObserveUntil) {
			fields = append(fields, "observe_until")
		}
		if from.DoH != to.DoH {
			fields = append(fields, "doh")
		}
		if slices.Sort(fields); !slices.Equal(slices.Sorted(slices.Values(c.Fields)), fields) {
			t.Fatalf("fields %v, want %v", c.Fields, fields)
		}
		if again := Diff(applied, to); !again.Empty() {
			t.Fatalf("%+v", again)
		}
		a, errA := Compile(Layer{Name: "a", Document: applied})
		b, errB := Compile(Layer{Name: "a", Document: to})
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		r := drawRequest(t)
		if x, y := a.Evaluate(&r), b.Evaluate(&r); x != y {
			t.Fatalf("request %+v\n%+v\n%+v", r, x, y)
		}
	})
}
