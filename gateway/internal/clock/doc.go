// Package clock tells the time by which things end, for all processes of one machine.
//
// The machine's clock can be set: by an admin, by whoever answers NTP, by a guest's host. What has ended must not come alive again
// when it is set back. So the supervisor begins a line, every process is told of it, and reads the time so:
//
//	line := clock.New(least) // supervisor: once for a run, not before where the last run's line had come to
//	now := line.Now()        // edge, control, ingress, node: whatever ends by time is judged by this
//
// The line goes on by the clock that counts from the machine's boot, which nobody sets. Now is the later one of the line and the
// machine's clock.
//
// # Security invariants
//
//   - CK-1: a machine's clock that is set back does not take the time back: it goes on from where the line has come to (TestClockSetBack).
//   - CK-2: a machine's clock that is set ahead is followed while it is ahead, and not for longer (TestClockSetAhead).
//   - CK-3: a machine's clock that is ahead makes nothing old enough to be deleted (TestClockAheadMakesNothingOld).
//   - CK-5: what the machine slept has passed too (TestSleepIsNoticed).
//   - CK-4: a line begins at the machine's time, but not before where an earlier one had come to (TestLineBeginsNotBeforeAnother).
//
// # Not here
//
// Keeping what a line has come to over a restart: gateway/supervisor. Intervals between two moments of one process, like idleness:
// time.Time's own monotonic reading does that. What other programs judge by the machine's clock, as those in sandboxes judge
// certificates.
//
// # Failure
//
// A line that began under a clock that was ahead stays ahead. A clock that was behind when the line began, was set right, and is set
// back later is believed down to the line. For a tenth of a second after the machine slept the line may lack what it slept. A process that can't read the
// clock that counts from boot is more than a century ahead: everything has ended.
package clock
