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
//   - FE-1: without a heartbeat for FreshFor by the boot clock there is no snapshot (TestSilenceMakesTheSnapshotStale).
//   - FE-2: a sandbox gets no snapshot of a revision below the one it was started under (TestOlderRevisionIsRefused).
//   - FE-3: a state that can't be read whole changes nothing and is not acknowledged (TestUnreadableStateIsRefusedWhole).
//   - FE-4: a sandbox gets only its own org's policy (TestSandboxOfAnotherOrgHasNoSnapshot).
//   - FE-5: a sandbox gets only its own org's secrets (TestSecretsAreOfOneOrg).
//   - FE-6: a secret that can't be used refuses its whole state, and no error holds its value (TestBadSecretRefusesTheState).
//   - FE-7: a list of a sandbox's own allows nothing that the other layers don't (TestOwnListOnlyNarrows).
//
// # Not here
//
// Where policies are kept (gateway/internal/store) and what they mean (policies).
//
// # Failure
//
// With control gone, an edge goes on for FreshFor and refuses every new connection and request after that.
package feed
