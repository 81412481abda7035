package clock

import "time"

// A Clock is the line that the time of one machine's processes keeps to: where it began, by the machine's clock, and how long after boot
// that was. It never changes. The zero value is the line that began with this process.
type Clock struct {
	At   time.Time     `json:"at,omitzero"`
	Boot time.Duration `json:"boot,omitempty"`
}

// began is the line of a process that was given none.
var began = New(time.Time{})

// New begins a line by the machine's clock, but not before least: where an earlier one had come to.
func New(least time.Time) Clock {
	at := time.Now().Round(0).UTC()
	if at.Before(least) {
		at = least.Round(0).UTC()
	}
	return Clock{at, sinceBoot()} // the wall was read first, for the same reason as in Now
}

// Now is the machine's time or, where that was set back, the line's.
func (c Clock) Now() time.Time {
	since := boot.now() // first: the line is behind the wall by what is between, never ahead
	return c.now(time.Now(), since)
}

// now keeps the monotonic reading of wall where it is not behind, so that what is measured between two times is by that.
func (c Clock) now(wall time.Time, since time.Duration) time.Time {
	if line := c.line(since); wall.Before(line) {
		return line
	}
	return wall
}

// Earliest is the earlier one of the machine's time and the line's. By it, and by no other, things are old enough to be deleted: a clock that
// is ahead for a while must not take away what nobody can bring back.
func (c Clock) Earliest() time.Time {
	since := boot.now()
	return c.earliest(time.Now(), since)
}

func (c Clock) earliest(wall time.Time, since time.Duration) time.Time {
	if line := c.line(since); line.Before(wall) {
		return line
	}
	return wall
}

// Line is what the line has come to, whatever the machine's clock says.
func (c Clock) Line() time.Time { return c.line(boot.now()) }

// Behind is how far the machine's clock is behind; 0 where it isn't.
func (c Clock) Behind() time.Duration {
	line := c.Line()
	return max(0, line.Sub(time.Now().Round(0)))
}

func (c Clock) line(since time.Duration) time.Time {
	if c.At.IsZero() {
		c = began
	}
	return c.At.Add(since - c.Boot)
}
