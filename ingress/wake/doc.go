// Package wake makes a sleeping sandbox run once for everybody who calls it at the same time.
//
//	flights, err := wake.New(wake.Config{Waker: w})
//	call := wake.Call{Org: org, Sandbox: sandbox, From: record.Generation}
//	generation, err := flights.Wait(ctx, call) // held until it runs
//	err := flights.Start(call)                 // for a caller who comes back later
//	...
//	flights.Close()
//
// There is at most one flight per sandbox. It belongs to nobody: callers may leave, it goes on, and its outcome is
// remembered for a while, for callers whose route is still the old one. A failed flight is not repeated at once.
//
// # Security invariants
//
//   - IW-1: however many call, one sandbox is woken once (TestManyCallersAreOneWake).
//   - IW-2: callers held are bounded per sandbox, per org and in all; one more is refused at once (TestParkingIsBounded).
//   - IW-3: a sandbox that can't be woken is not tried again before its back-off is over (TestFailedWakeBacksOff).
//   - IW-4: callers without a credential cause no more wakes of an org's sandboxes than it lets them, by default none (TestAnonymousWakesAreCounted).
//
// # Not here
//
// Who may wake (access decides before), which requests do (ingress), and whether the app listens already (forward).
//
// # Failure
//
// With nobody there to wake, flights fail and callers get a *FailedError with the time to come back.
package wake
