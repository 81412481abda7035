// Package canary proves again and again that a sandbox that may reach nothing reaches nothing.
//
//	c := canary.New(canary.Config{Start: ..., Try: ..., Remove: ..., Settle: ..., Every: time.Minute})
//	go c.Run(ctx)
//	proof := c.Proof() // when denial was last seen to hold, and at which layer
//
// Each round makes a sandbox under a policy of its own that allows nothing, lets the probe try a few ways out of it, and
// removes it. What the probe says is one half: it is a program of ours in a sandbox that nobody else used. The other half is
// what the edge recorded meanwhile, as the sandbox's word alone proves nothing: each layer has to have said no.
//
// # Security invariants
//
//   - CN-1: a round proves a layer only if the edge recorded a denial there and allowed nothing (TestSilenceProvesNothing, TestAllowedIsNoProof).
//   - CN-2: a round that could not be made leaves the last proof as old as it is (TestFailedRoundProvesNothing).
//
// # Not here
//
// Making sandboxes and running programs in them: whoever gives Start, Try and Remove. The ways out that are tried: cmd/portreeve-probe,
// which tries many more for portreeve probe.
//
// # Failure
//
// A round that fails is said in the log and in Proof; the next one comes a period later. A round in which something got out is an
// error in the log each time.
package canary
