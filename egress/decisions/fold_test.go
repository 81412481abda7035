package decisions_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"portreeve.dev/egress/decisions"
)

func denied(sandbox, host string) *decisions.Decision {
	d := decision("org_a", sandbox)
	d.Verdict, d.Reason, d.Host, d.Rule = "deny", "no_rule", host, ""
	return d
}

// rows decodes everything that waits; with now, also what is being counted.
func rows(t *testing.T, s *decisions.Spool, now bool) (all []decisions.Decision) {
	t.Helper()
	sent, err := s.Batch(100000, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range sent.Rows {
		d, err := r.Decision()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

func TestFloodOfEqualDenialsIsOneRow(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s := open(t, t.TempDir(), decisions.Config{FoldAfter: 3, Now: func() time.Time { return now }})
	ids := map[string]int{}
	for range 100 {
		d := denied("sbx_a", "evil.test")
		record(t, s, d)
		ids[d.ID]++
	}
	record(t, s, denied("sbx_a", "other.test"))
	record(t, s, denied("sbx_b", "evil.test"))
	if got := rows(t, s, true); len(got) != 5 {
		t.Fatalf("%d rows before the minute is over, want 3 of the flood and 2 of others", len(got))
	}
	now = now.Add(time.Minute)
	all := rows(t, s, false)
	if len(all) != 6 || s.Lost() != 0 {
		t.Fatalf("%d rows, %d lost", len(all), s.Lost())
	}
	if d := all[5]; d.Count != 97 || !d.Closed || d.Host != "evil.test" || d.Verdict != "deny" || d.Until.IsZero() || ids[d.ID] != 97 {
		t.Errorf("the row that counts: %+v; its id was given to %d", d, ids[d.ID])
	}
	record(t, s, denied("sbx_a", "evil.test")) // a new minute begins with rows of their own
	if got := rows(t, s, false); len(got) != 7 || got[6].Count != 0 {
		t.Errorf("in the next minute: %d rows", len(got))
	}
}

// What comes counted stands for so many, in a row of its own as in one that counts.
func TestCountedDecisionsAddUp(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s := open(t, t.TempDir(), decisions.Config{FoldAfter: 2, Now: func() time.Time { return now }})
	for range 4 {
		record(t, s, denied("sbx_a", "evil.test"))
		counted := denied("sbx_a", "evil.test")
		counted.Count, counted.Until, counted.Closed = 5, now, true
		record(t, s, counted)
	}
	now = now.Add(time.Minute)
	var counts []uint64
	for _, d := range rows(t, s, false) {
		counts = append(counts, d.Count)
	}
	if want := []uint64{0, 5, 18}; !slices.Equal(counts, want) {
		t.Errorf("rows for %v, want %v", counts, want)
	}
}

// TestOnlyEqualDenialsAreFolded changes one thing at a time, so that nothing is equal.
func TestOnlyEqualDenialsAreFolded(t *testing.T) {
	s := open(t, t.TempDir(), decisions.Config{FoldAfter: 1})
	record(t, s, denied("sbx_a", "evil.test"))
	for _, change := range []func(*decisions.Decision){
		func(d *decisions.Decision) { d.Sandbox = "sbx_b" },
		func(d *decisions.Decision) { d.Host = "b.test" },
		func(d *decisions.Decision) { d.Port++ },
		func(d *decisions.Decision) { d.Reason = "rule_denied" },
		func(d *decisions.Decision) { d.Addr = "192.0.2.1" },
		func(d *decisions.Decision) { d.Layer = "http" },
	} {
		d := denied("sbx_a", "evil.test")
		change(d)
		record(t, s, d)
	}
	if got := rows(t, s, false); len(got) != 7 {
		t.Errorf("%d rows for 7 different denials", len(got))
	}
	for range 20 {
		record(t, s, decision("org_a", "sbx_a")) // equal, but allowed, and their rule says nothing
	}
	if got := rows(t, s, false); len(got) != 27 {
		t.Errorf("%d rows with 20 allowed ones", len(got))
	}
}

func TestCountingRule(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s := open(t, t.TempDir(), decisions.Config{Now: func() time.Time { return now }})
	counting := func() *decisions.Decision {
		d := decision("org_a", "sbx_a")
		d.Fold, d.Method, d.Path = true, "GET", "/a"
		return d
	}
	for range 50 {
		d := counting()
		record(t, s, d)
		if err := s.CloseFlow(t.Context(), d, decisions.Closing{Status: 200, BytesOut: 10, BytesIn: 20}); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, s)
	secret := counting()
	secret.Secrets = []decisions.Use{{Secret: "sec_1", Version: 1, Place: "header:authorization"}}
	record(t, s, secret)
	refused := counting()
	refused.Verdict, refused.Reason = "deny", "no_rule"
	record(t, s, refused)
	if got := rows(t, s, false); len(got) != 2 || len(got[0].Secrets) != 1 || got[1].Verdict != "deny" {
		t.Fatalf("a request with a secret and a denial have rows of their own, under whatever rule: %+v", got)
	}
	now = now.Add(time.Minute)
	got := rows(t, s, false)
	if d := got[2]; len(got) != 3 || d.Count != 50 || d.BytesOut != 500 || d.BytesIn != 1000 || d.Path != "" || d.Method != "" || !d.Closed {
		t.Errorf("%d rows, the counting one: %+v", len(got), d)
	}
	if s.Lost() != 0 {
		t.Errorf("%d lost", s.Lost())
	}
}

// A rule that counts doesn't take away the end of what has a row of its own, nor the bytes of what no count has room for.
func TestEveryEndIsWritten(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s := open(t, t.TempDir(), decisions.Config{Now: func() time.Time { return now }})
	end := decisions.Closing{Status: 200, BytesOut: 10, BytesIn: 20}
	secret := decision("org_a", "sbx_a")
	secret.Fold, secret.Secrets = true, []decisions.Use{{Secret: "sec_1", Version: 1, Place: "header:authorization"}}
	record(t, s, secret)
	if err := s.CloseFlow(t.Context(), secret, end); err != nil {
		t.Fatal(err)
	}
	flush(t, s)
	if got := rows(t, s, false); len(got) != 2 || got[1].ID != secret.ID || !got[1].Closed || got[1].Status != 200 || got[1].BytesIn != 20 {
		t.Fatalf("of a request with a secret under a rule that counts: %+v", got)
	}

	counted := decision("org_a", "sbx_b")
	counted.Fold = true
	record(t, s, counted)
	now = now.Add(time.Minute) // its count is over
	rows(t, s, false)
	for i := range 300 { // more than are watched for being equal
		record(t, s, denied("sbx_b", fmt.Sprintf("h%d.test", i)))
	}
	other := decision("org_a", "sbx_b")
	other.Fold, other.Host = true, "no.room.test"
	record(t, s, other)
	if other.Fold {
		t.Error("a decision with a row of its own is said to be counted")
	}
	for _, d := range []*decisions.Decision{counted, other} {
		if err := s.CloseFlow(t.Context(), d, end); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, s)
	now = now.Add(time.Minute)
	var ends int64
	for _, d := range rows(t, s, false)[3:] {
		if d.Closed {
			ends += d.BytesIn
		}
	}
	if ends != 40 || s.Lost() != 0 {
		t.Errorf("bytes of %d in ends, want 40; %d lost", ends, s.Lost())
	}
}

// What is counted after its row was shipped is counted in another one, and is told that one's id.
func TestLateCountHasTheIDOfItsRow(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s := open(t, t.TempDir(), decisions.Config{Now: func() time.Time { return now }})
	first, late := decision("org_a", "sbx_a"), decision("org_a", "sbx_a")
	first.Fold, late.Fold = true, true
	record(t, s, first)
	now = now.Add(2 * time.Second)
	if got := rows(t, s, true); len(got) != 1 || got[0].ID != first.ID {
		t.Fatalf("the first row: %+v, told was %s", got, first.ID)
	}
	record(t, s, late)
	now = now.Add(time.Minute)
	if got := rows(t, s, false); len(got) != 2 || got[1].ID != late.ID || late.ID == first.ID {
		t.Errorf("the rows are %+v, told was %s", got, late.ID)
	}
}

// A count costs no budget and, once it is there, no space: what is refused for want of either is what is not counted.
func TestCountsCostNothing(t *testing.T) {
	s := open(t, t.TempDir(), decisions.Config{FoldAfter: 2, Rate: 1e-9, Burst: 4})
	for range 1000 {
		record(t, s, denied("sbx_a", "evil.test"))
	}
	size := s.Size()
	record(t, s, denied("sbx_a", "evil.test"))
	if s.Size() != size {
		t.Errorf("one more of a count takes %d bytes", s.Size()-size)
	}
	record(t, s, denied("sbx_a", "a.test"))
	if err := s.Record(t.Context(), denied("sbx_a", "b.test")); !errors.Is(err, decisions.ErrBudget) {
		t.Errorf("the fifth row of a budget of four: %v", err)
	}
}

func TestCountsOfAnEarlierLifeAreKept(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, decisions.Config{FoldAfter: 1})
	for range 10 {
		record(t, s, denied("sbx_a", "evil.test"))
	}
	s.Close()
	s = open(t, dir, decisions.Config{FoldAfter: 1})
	got := rows(t, s, false)
	if len(got) != 2 || got[1].Count != 9 {
		t.Errorf("after reopening: %+v", got)
	}
}

func TestLevelIsNeeded(t *testing.T) {
	s := open(t, t.TempDir(), decisions.Config{})
	for _, layer := range []string{"connect", "http"} {
		for level, want := range map[string]bool{"http": true, "sni": true, "address": true, "": false, "none": false} {
			d := decision("org_a", "sbx_a")
			d.Layer, d.Level = layer, level
			if err := s.Record(context.Background(), d); (err == nil) != want {
				t.Errorf("layer %s, level %q: %v", layer, level, err)
			}
		}
	}
	d := decision("org_a", "sbx_a")
	d.Layer, d.Level = "dns", ""
	record(t, s, d)
}

func BenchmarkCount(b *testing.B) {
	s := open(b, b.TempDir(), decisions.Config{FoldAfter: 1})
	d := denied("sbx_a", "evil.test")
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Record(context.Background(), d); err != nil {
			b.Fatal(err)
		}
	}
}

// TestClockThatIsSetBack moves the wall clock a day back and forth. Nothing is lost, repeated or held up by it.
func TestClockThatIsSetBack(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	dir := t.TempDir()
	cfg := decisions.Config{FoldAfter: 1, Rate: 10, Burst: 100, Now: func() time.Time { return now }}
	s := open(t, dir, cfg)
	recorded := uint64(0)
	for _, step := range []time.Duration{0, -24 * time.Hour, 48 * time.Hour, -48 * time.Hour} {
		now = now.Add(step)
		for range 5 {
			record(t, s, denied("sbx_a", "evil.test"))
			record(t, s, decision("org_a", "sbx_b"))
			recorded += 2
		}
	}
	s.Close() // makes rows also of counts whose minute is still to come
	s = open(t, dir, cfg)
	found := uint64(0)
	for _, d := range rows(t, s, false) {
		found += max(1, d.Count)
	}
	if found != recorded || s.Lost() != 0 {
		t.Errorf("%d were recorded, %d are found, %d lost", recorded, found, s.Lost())
	}
}
