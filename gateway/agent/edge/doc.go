// Package edge is the edge process: it joins resolver, proxy, dialer, flows and spool, and serves the sockets of the edge
// netns that the node hands over.
//
//	err := edge.Run(ctx) // cmd/portreeve-edge
//
// # Security invariants
//
//   - AE-1: sockets are served only once the process is in its cage (TestSocketsAreRefusedOutsideTheCage).
//   - AE-2: a name is with the node before its address is with a sandbox (TestNameGoesToTheNodeFirst).
//   - AE-3: with no fresh policy the flows that are alive end (TestStalePolicyEndsFlows).
//
// # Not here
//
// What is decided: policies. Whose an address is: the node says so.
//
// # Failure
//
// Without the node no new address is bound; without control nothing new is allowed after feed.FreshFor; without room in the
// spool every connection is refused.
package edge
