// Package inbound is an org's policy for what comes in: which tunnels its sandboxes may have, and what callers without a
// credential may cause.
//
//	v := policy.Evaluate(inbound.Request{Public: true, Port: 3000, Lifetime: time.Hour})
//	if !v.Allowed() { ... v.Field, v.Message ... }
//
// The zero Policy allows no tunnel. Default is what an org has that set nothing.
//
// # Security invariants
//
//   - IB-1: what the policy doesn't name is refused: a mode, a port, a lifetime; the zero Policy refuses everything (TestZeroPolicyRefuses, TestEvaluate).
//   - IB-2: a public tunnel of a sandbox that may use a secret needs the org's word (TestEvaluate).
//
// # Not here
//
// Who calls a tunnel that there is: ingress/access. Ending tunnels that a new policy refuses: gateway/api.
//
// # Failure
//
// A policy that can't be read is an error; whoever reads it refuses everything then.
package inbound
