package nodestest

import (
	"sync"
	"time"

	"portreeve.dev/nodes"
)

// A Clock stands still until Advance.
type Clock struct {
	mu     sync.Mutex
	now    time.Time
	timers map[*timer]bool
}

type timer struct {
	c  *Clock
	at time.Time
	f  func()
}

// NewClock returns a clock that stands at a moment in 2026.
func NewClock() *Clock {
	return &Clock{now: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC), timers: map[*timer]bool{}}
}

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc calls f, in Advance's goroutine, when the clock has advanced by d.
func (c *Clock) AfterFunc(d time.Duration, f func()) nodes.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{c, c.now.Add(d), f}
	if d <= 0 {
		go f()
		return t
	}
	c.timers[t] = true
	return t
}

// Advance moves the clock and calls what is due.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	c.now = c.now.Add(d)
	var due []*timer
	for t := range c.timers {
		if !t.at.After(c.now) {
			due = append(due, t)
			delete(c.timers, t)
		}
	}
	c.mu.Unlock()
	for _, t := range due {
		t.f()
	}
}

func (t *timer) Stop() bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	was := t.c.timers[t]
	delete(t.c.timers, t)
	return was
}
