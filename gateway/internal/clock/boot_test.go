package clock

import (
	"testing"
	"time"
)

func TestSleepIsNoticed(t *testing.T) {
	t.Parallel()
	var ran, slept, late time.Duration
	b := bootClock{ran: func() time.Duration { return ran }, kernel: func() time.Duration {
		at := time.Hour + ran + slept
		ran += late // the process waits for a processor
		return at
	}}
	check := func(when string, want time.Duration) {
		t.Helper()
		if got := b.now(); got != want {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	check("at the start", time.Hour)
	ran = time.Second
	check("a second later", time.Hour+time.Second)
	slept = 24 * time.Hour
	check("just after a sleep", time.Hour+time.Second)
	ran += lookEvery
	check("at the next look", 25*time.Hour+ran)
	late = time.Minute
	ran += lookEvery
	check("waited within a look", 25*time.Hour+ran+late)
	late = 0
	ran += lookEvery
	check("at the look after it", 25*time.Hour+ran)
}

func TestBootClockIsTheKernels(t *testing.T) {
	t.Parallel()
	before := boot.now()
	kernel := sinceBoot()
	if before > kernel {
		t.Errorf("it said %v, and the kernel said %v after it", before, kernel)
	}
	for range 1000 {
		now := boot.now()
		if now < before {
			t.Fatalf("it went back from %v to %v", before, now)
		}
		before = now
	}
}
