package clock

import (
	"encoding/json"
	"testing"
	"time"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// line began at noon, an hour after boot.
var line = Clock{noon, time.Hour}

func TestClockSetBack(t *testing.T) {
	for name, tt := range map[string]struct {
		wall time.Time
		boot time.Duration
		want time.Time
	}{
		"as it was":                    {noon, time.Hour, noon},
		"gone on by itself":            {noon.Add(time.Minute), time.Hour + time.Minute, noon.Add(time.Minute)},
		"set back by a second":         {noon.Add(-time.Second), time.Hour, noon},
		"set back by a year":           {noon.AddDate(-1, 0, 0), time.Hour, noon},
		"set back, and gone on":        {noon.AddDate(-1, 0, 0), 3 * time.Hour, noon.Add(2 * time.Hour)},
		"set back after it went on":    {noon, 3 * time.Hour, noon.Add(2 * time.Hour)},
		"set back while it was asleep": {noon.Add(-time.Hour), 25 * time.Hour, noon.Add(24 * time.Hour)},
		"set to before the epoch":      {time.Unix(-1, 0), time.Hour, noon},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := line.now(tt.wall, tt.boot); !got.Equal(tt.want) {
				t.Errorf("the time is %v, want %v", got, tt.want)
			}
		})
	}
}

// Recovery takes no hands.
func TestClockSetAhead(t *testing.T) {
	t.Parallel()
	ahead := noon.AddDate(1, 0, 0)
	for i, step := range []struct {
		wall time.Time
		boot time.Duration
		want time.Time
	}{
		{noon, time.Hour, noon},
		{ahead, time.Hour, ahead},
		{ahead.Add(time.Minute), time.Hour + time.Minute, ahead.Add(time.Minute)},
		{noon.Add(2 * time.Minute), time.Hour + 2*time.Minute, noon.Add(2 * time.Minute)}, // set right
		{noon, time.Hour + 3*time.Minute, noon.Add(3 * time.Minute)},                      // and back
	} {
		if got := line.now(step.wall, step.boot); !got.Equal(step.want) {
			t.Errorf("step %d: the time is %v, want %v", i, got, step.want)
		}
	}
}

func TestClockAheadMakesNothingOld(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		wall time.Time
		want time.Time
	}{
		"right":     {noon, noon},
		"ahead":     {noon.AddDate(1, 0, 0), noon},
		"set back":  {noon.AddDate(-1, 0, 0), noon.AddDate(-1, 0, 0)},
		"a bit off": {noon.Add(time.Second), noon},
	} {
		if got := line.earliest(tt.wall, time.Hour); !got.Equal(tt.want) {
			t.Errorf("%s: old is judged by %v, want %v", name, got, tt.want)
		}
	}
}

// The machine's own clocks, both of which go on while this runs.
func TestLineBeginsNotBeforeAnother(t *testing.T) {
	t.Parallel()
	before := time.Now()
	if c := New(before.Add(-time.Hour)); c.At.Before(before.Round(0)) || c.Behind() != 0 || c.Now().Before(before) {
		t.Errorf("after an earlier line it began at %v, is %v behind and says %v; the clock said %v before", c.At, c.Behind(), c.Now(), before)
	}
	c := New(before.Add(time.Hour + time.Second))
	later := before.Add(time.Hour) // it began a little before, so as never to be ahead
	if now, behind := c.Now(), c.Behind(); now.Before(later) || behind > 2*time.Hour || behind < 50*time.Minute || c.Line().Before(later) {
		t.Errorf("after a later line it says %v and is %v behind; that one had come to %v", now, behind, later)
	}
	if c.Earliest().After(time.Now()) {
		t.Error("old is judged by the line, though the machine's clock is behind it")
	}
}

func TestZeroIsTheProcessesOwn(t *testing.T) {
	t.Parallel()
	before := time.Now()
	var zero Clock
	if now := zero.Now(); now.Before(before) || now.After(before.Add(time.Hour)) {
		t.Errorf("it says %v at %v", now, before)
	}
	if got := zero.now(noon.AddDate(-50, 0, 0), sinceBoot()); got.Before(began.At) {
		t.Errorf("a clock set back to %v gives %v, and the process began at %v", noon.AddDate(-50, 0, 0), got, began.At)
	}
}

// Another process of the machine has the same line.
func TestLineIsHandedOn(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(line)
	if err != nil {
		t.Fatal(err)
	}
	var other Clock
	if err := json.Unmarshal(data, &other); err != nil || other != line {
		t.Fatalf("%s is read as %v, %v", data, other, err)
	}
}

func TestMonotonicReadingIsKept(t *testing.T) {
	t.Parallel()
	c, since := New(time.Time{}), boot.now()
	wall := time.Now()
	if got := c.now(wall, since); got != wall { // == compares the reading too
		t.Errorf("a clock that is not behind says %v, want %v", got, wall)
	}
}

// BenchmarkNow watches what the second clock costs whoever judges.
func BenchmarkNow(b *testing.B) {
	c := New(time.Time{})
	b.ReportAllocs()
	for b.Loop() {
		c.Now()
	}
}
