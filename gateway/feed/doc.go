// Package feed brings policy and secrets from control to the edges, routes to ingress, and says how long an edge may go on
// under what it has.
//
// Control owns a Publisher for each of the two, which sends the whole state at each change and a heartbeat in between. Each
// edge owns a Holder, which compiles what it was sent and gives out snapshots while they are fresh:
//
//	holder.Register(mux)                          // edge: "policies" and "heartbeat"
//	snap, revision, err := holder.Snapshot(b)     // edge: per connection and per request
//	publisher.Publish(); publisher.WaitApplied(ctx, revision)
//
// # Security invariants
//
//   - FE-1: without a heartbeat for FreshFor by the boot clock there is no snapshot, unless the policy may go on as last known (TestSilenceMakesTheSnapshotStale).
//   - FE-2: a sandbox gets no snapshot of a revision below the one it was started under (TestOlderRevisionIsRefused).
//   - FE-3: what of a state can't be used is closed, and nothing of another org, policy or sandbox with it (TestUnusablePartIsClosed).
//   - FE-10: an exemption of the floor ends on time, whether or not control is heard (TestExemptionEndsByTheClock).
//   - FE-4: a sandbox gets only its own org's policy (TestSandboxOfAnotherOrgHasNoSnapshot).
//   - FE-5: a sandbox gets only its own org's secrets (TestSecretsAreOfOneOrg).
//   - FE-6: a secret that can't be used closes what it is granted for and nothing else, and no report holds its value (TestBadSecretClosesItsGrants).
//   - FE-7: a list of a sandbox's own allows nothing that the other layers don't (TestOwnListOnlyNarrows).
//   - FE-8: the last known policy holds for max_stale since the last heartbeat, only where every layer says so (TestLastKnownPolicyHasAnEnd).
//   - FE-9: without a heartbeat for FreshFor there are no secrets, also where the last known policy holds (TestLastKnownPolicyHasNoSecrets).
//
// # Not here
//
// Where policies are kept (gateway/internal/store) and what they mean (policies).
//
// # Failure
//
// With control gone, an edge goes on for FreshFor and refuses every new connection and request after that. Sandboxes whose
// policy says failure_mode last_known go on for max_stale, without secrets: hosts with a grant are refused meanwhile.
// So does an edge that hears of a newer policy and can't have it. What an edge could not use of a state it closes and tells
// control, whose log says it once; a state that can't be decoded changes nothing.
package feed
