// Package server is the gateway's two processes: control, which holds the store and answers the API, and ingress, which
// meets the internet.
//
//	err := server.Control(ctx) // portreeve control
//	err := server.Ingress(ctx) // portreeve ingress
//
// # Security invariants
//
//   - GS-1: what an edge ships as a decision is stored only under the org that the sandbox has (TestShippedDecisionOfAnotherOrgIsDropped).
//   - GS-2: store and master key are made only in an empty directory, and only together (TestStoreIsNotMadeTwice).
//   - GS-3: ingress answers on no name that is not a tunnel's, and asks inward for nothing but the record's sandbox, port and generation (TestUnknownNamesGetNothing).
//   - GS-4: a tunnel ends with its sandbox at the latest; of one that is gone ingress has no token (TestTunnelEndsWithItsSandbox).
//   - GS-5: a secret's value leaves control only with a grant, and only under its own org (TestSecretWithoutAGrantStays).
//   - GS-6: what is not stored is not acknowledged, so that the edge keeps it (TestWhatIsNotStoredIsNotAcknowledged).
//   - GS-30: a spool that is an older copy of itself goes on behind every number that may have been drawn (TestOlderCopyOfASpoolLeavesNumbersOut).
//   - GS-31: the key under which an org's foreign credentials are hashed is its own, and stays (TestHashKeysAreOfOneOrg).
//   - GS-32: the decisions of an org, and of all, take no more room than they may; the largest give first (TestDecisionsKeepToTheirBudgets).
//   - GS-33: flows of an edge that died are closed, once all that it recorded is here (TestFlowsOfADeadEdgeAreClosed).
//   - GS-8: what is meant for a tunnel never reaches the API (TestTunnelHostsNeverReachTheAPI).
//   - GS-10: the keys of ingress are stored sealed, each under its name, and are the same after a restart (TestTunnelKeysStay).
//   - GS-11: a connection that does not say what it speaks is closed, and none outlives the process's listener (TestSilentConnectionIsClosed, TestSplitEndsWithItsContext).
//   - GS-12: a secret that can't be opened closes what it is granted for, and no other secret and no other org (TestUnopenableSecretClosesOnlyItself).
//   - GS-40: a webhook's endpoint is reached only where the floor lets its org, whatever name leads there (TestWebhooksStayAboveTheFloor).
//   - GS-42: control dials under the floor that the edges have, and what is taken away or has ended is open to nobody (TestFloorFollowsTheStore).
//   - GS-43: the key of the info file may change what holds for every org, and no key of before gains that (TestInstallersKeyHoldsThePlatform).
//   - GS-44: a tunnel, a key and an exemption that have ended stay so when the machine's clock is set back (TestEndedTunnelStaysGone, TestEndedKeyStaysEnded, TestExemptionStaysEnded).
//   - GS-45: a clock that is ahead for a while takes nothing out of the record (TestClockAheadDeletesNothing).
//   - GS-41: what edge asks for a sandbox is answered only about that sandbox, as the store knows it (TestEdgeAsksOnlyAboutItsSandbox).
//
// # Not here
//
// Routes and their rules: gateway/api. What runs: the node.
//
// # Failure
//
// With the node or inward gone, commands fail with "unavailable" and the API goes on. With control gone, edges go on for
// feed.FreshFor, and sandboxes end at their deadline by the node's own clock.
package server
