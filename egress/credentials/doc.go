// Package credentials makes and checks the passwords that open the doors for attached sandboxes.
//
//	password, err := credentials.Mint(key, credentials.Claims{Sandbox: ..., Door: credentials.HTTP, Source: ..., Expires: ...}) // control
//
//	gate, err := credentials.NewGate(credentials.GateConfig{Lookup: ...})                                                      // edge
//	admission := gate.Admit(ctx, credentials.HTTP, source, username, password)
//
// A password says for which sandbox and incarnation it was made, for which door, for which source address and until when, and
// is signed (HMAC-SHA256) with a key of the sandbox's org. So the edge can check one without asking anybody, and control needs
// to keep none. The user name is the sandbox's id.
//
// # Security invariants
//
//   - CR-1: a password opens its own door, for its own sandbox and incarnation, from its own address, and until its end (TestPasswordOpensOneDoor).
//   - CR-5: a password with an end further away than any is made for opens nothing: it is of a clock that was ahead (TestPasswordOpensOneDoor).
//   - CR-2: a password that was changed in one bit, or signed with another org's key, opens nothing (TestForgedPasswordOpensNothing).
//   - CR-3: whoever fails waits longer each time, while whoever has the right password doesn't wait (TestFailuresWait).
//   - CR-4: failures in the name of a sandbox are recorded within a budget: a stranger can't use up what the sandbox may record (TestFailuresAreRecordedWithinABudget).
//
// # Not here
//
// Keys: control makes, keeps and rotates them. Who may have a password made: gateway/api. Whether the sandbox is there: Lookup.
//
// # Failure
//
// Without the sandbox or a key of its org every password is wrong. Which of user name and password was wrong nobody is told.
package credentials
