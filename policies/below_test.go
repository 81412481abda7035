package policies

import (
	"testing"
	"time"
)

func TestBelow(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	parse := func(text string) *Document {
		t.Helper()
		d, err := ParseAt([]byte(text), now)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	s, err := Compile(
		Layer{Name: "ceiling", Document: parse(`{"rules": [{"id": "all", "action": "allow", "any": true}, {"id": "w", "action": "allow", "hosts": ["*.wild.test"]}]}`)},
		Layer{Name: "policy:p", Document: parse(`{"rules": [
			{"id": "a", "action": "allow", "hosts": ["*.wild.test", "*.deep.wild.test", "named.wild.test"]},
			{"id": "b", "action": "allow", "hosts": ["ending.wild.test"], "expires_at": "2026-01-01T01:00:00Z"},
			{"id": "c", "action": "deny", "hosts": ["denied.wild.test"]},
			{"id": "d", "action": "allow", "hosts": ["other.test"]}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{
		"x.wild.test": "wild.test", "y.x.wild.test": "wild.test", "x.deep.wild.test": "deep.wild.test", "deep.wild.test": "wild.test",
		"named.wild.test": "", "ending.wild.test": "", "denied.wild.test": "wild.test", "wild.test": "", "other.test": "", "x.other.test": "", "test": "",
	} {
		if got := s.Below(host, now); got != want {
			t.Errorf("%s is below %q, want %q", host, got, want)
		}
	}
	if got := s.Below("ending.wild.test", now.Add(2*time.Hour)); got != "wild.test" {
		t.Errorf("a name whose own rule has ended is below %q", got)
	}
	if got := (*Snapshot)(nil).Below("x.wild.test", now); got != "" {
		t.Errorf("without a policy: %q", got)
	}
}
