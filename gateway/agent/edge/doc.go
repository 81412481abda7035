// Package edge is the edge process: it joins resolver, proxy, dialer, flows and spool, and serves the sockets of the edge
// netns that the node hands over.
//
//	err := edge.Run(ctx) // cmd/portreeve-edge
//
// # Security invariants
//
//   - AE-1: sockets are served only once the process is in its cage (TestSocketsAreRefusedOutsideTheCage).
//   - AE-2: a name is with the node before its address is with a sandbox; while the node is away no name gets one (TestNameGoesToTheNodeFirst).
//   - AE-3: with no fresh policy, nor a last known one that may hold, the flows that are alive end (TestStalePolicyEndsFlows).
//   - AE-4: a verdict that was recorded outlives the process, and reaches control once it is there (TestRecordOutlivesAKill).
//   - AE-5: an org that lets connections go on without a record does so for none with a secret, and for none whose loss isn't counted (TestBestEffortNeverCoversASecret).
//   - AE-6: a sandbox can't leave the record by using up its budget (TestBestEffortDoesNotCoverABudget).
//   - AE-7: what an org does not want of a path is cut off before anything is written (TestPathIsCutBeforeTheSpool).
//   - AE-20: what was counted of an org's quota outlives the process, and is told to control as one count however often (TestCountOutlivesTheProcess, TestCountIsToldOnce).
//   - AE-22: an org's connections beyond its share of the process's descriptors are refused with a record; what is given back is used again, also after there were none at all (TestFewDescriptors, TestNoDescriptors).
//   - AE-21: a quota holds without control, by what was used here and elsewhere in its month (TestQuotaHoldsWithoutControl).
//   - AE-23: what has ended stays so when the machine's clock is set back: rules, exemptions, attached sandboxes, passwords (TestWhatEndedStaysEnded).
//   - AE-40: an attached sandbox that the policy no longer has is cut off at once: its socket, its connections (TestDetachedSandboxIsCutOff).
//   - AE-41: a door on the network takes what a key of the sandbox's org signed that control feeds now, and nothing else (TestNetworkDoorAsksForTheCredential).
//   - AE-42: what came by a sandbox's own socket and said nothing yet is bounded for the sandbox, and takes of its org's share of descriptors (TestNewcomersAreBounded).
//
// # Not here
//
// What is decided: policies. Whose an address is: the node says so.
//
// # Failure
//
// Without the node no new address is bound and no new name is answered, for a moment: the supervisor starts it again. Without
// control nothing new is allowed after feed.FreshFor, or after max_stale where the policy's failure_mode is last_known, then without secrets; without room in the spool every connection is refused. A table of
// addresses that does not fit, or a part that ends, ends the process, and the next one begins with what the node has.
package edge
