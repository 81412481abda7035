package e2e

import (
	"strings"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// TestRepeatedNamesAreCounted: of a name that a sandbox asks for again and again each question is on record, most of them in one row; and the
// sandbox itself is told of its denials as the record has them.
func TestRepeatedNamesAreCounted(t *testing.T) {
	_, p := shared(t)
	ceiling(t, p, allow("good", "good.test"))
	b, once := armed(t, p), armed(t, p)
	const times = 9
	names := map[string]string{"evil.test": "deny", "good.test": "allow"}
	codes := map[string]string{"deny": "ok NXDOMAIN", "allow": "ok NOERROR"}
	for name, verdict := range names {
		if _, said := b.hostile("lookups", "8.8.8.8", name, "9"); said != codes[verdict] {
			t.Fatalf("%s: %s", name, said)
		}
		if _, said := once.hostile("lookups", "8.8.8.8", name, "1"); said != codes[verdict] {
			t.Fatalf("%s: %s", name, said)
		}
	}
	for name, verdict := range names {
		var rows []decision
		sum := uint64(0)
		// The count is written once the name was not asked for anew for ten seconds.
		if err := lab.Await(40*time.Second, "record of every question for "+name, func() bool {
			rows, sum = b.lookedUp(name), 0
			for _, d := range rows {
				sum += max(d.Count, 1)
			}
			return sum >= times
		}); err != nil {
			t.Fatalf("%v; the record: %+v", err, rows)
		}
		counted := 0
		for _, d := range rows {
			if d.Verdict != verdict {
				t.Errorf("%s is recorded as %+v", name, d)
			}
			if d.Count > 1 {
				counted++
			}
		}
		if sum != times || counted == 0 || len(rows) >= times {
			t.Errorf("%s was asked for %d times, and has %d rows for %d: %+v", name, times, len(rows), sum, rows)
		}
		if rows := once.lookedUp(name); len(rows) != 1 || rows[0].Count > 1 {
			t.Errorf("%s was asked for once: %+v", name, rows)
		}
	}
	var told struct {
		Denials []struct {
			Host  string    `json:"host"`
			Layer string    `json:"layer"`
			Count uint64    `json:"count"`
			Time  time.Time `json:"time"`
			Until time.Time `json:"until"`
		} `json:"denials"`
	}
	if status := b.asks("GET", "/denials", nil, &told); status != 200 {
		t.Fatalf("status %d", status)
	}
	sum := uint64(0)
	for _, d := range told.Denials {
		sum += max(d.Count, 1)
		if d.Host != "evil.test" || d.Layer != "dns" || d.Count > 1 && !d.Until.After(d.Time) {
			t.Errorf("told is %+v", d)
		}
	}
	if sum != times {
		t.Errorf("%d denials are told, want %d: %+v", sum, times, told.Denials)
	}
}

// lookedUp are the rows about a name's lookups.
func (b *box) lookedUp(name string) (rows []decision) {
	b.t.Helper()
	for _, d := range b.decisions() {
		if d.Layer == "dns" && strings.EqualFold(d.Host, name) {
			rows = append(rows, d)
		}
	}
	return rows
}
