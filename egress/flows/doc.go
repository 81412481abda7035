// Package flows is the table of live egress connections, and ends those that the policy no longer allows.
//
// The proxy adds each connection before it asks for the verdict, and within it each relay or request, and calls remove when it
// is over. Whoever installs a new snapshot calls Rejudge; Run does so every second too, which covers what nobody announces: a rule that expires,
// a snapshot that is no longer fresh, a binding that is gone.
//
// # Security invariants
//
//   - EF-1: a flow that the newest snapshot of its sandbox denies is ended by the next Rejudge, others are untouched (TestTightenedPolicyEndsFlow).
//   - EF-2: a flow is seen by Rejudge from before its verdict on, so that no switch falls between verdict and table (TestUnjudgedFlowIsSeen, TestDialledFlowIsJudgedAtOnce).
//   - EF-3: a flow without a fresh snapshot is ended (TestStalePolicyEndsFlows).
//   - EF-4: a flow to an address that the floor closed since is ended (TestFloorEndsFlow).
//   - EF-5: connections are bounded per sandbox, per org and per destination of an org (TestFlowCaps, TestDestinationCap).
//   - EF-6: expiry and staleness end a flow without any call from outside (TestRunEndsExpired).
//   - EF-8: a flow that passes unseen ends when its rule opens TLS, or when a secret is granted to its host (TestOpaqueFlowEndsWhenItMustBeSeen).
//   - EF-9: flows are listed and killed within their org only (TestFlowsOfAnotherOrgAreNotThere).
//   - EF-10: a flow killed by its id ends, and no other (TestKilledFlowEndsAlone).
//   - EF-11: connections that a sandbox begins are bounded per second (TestNewConnectionsPerSecond).
//   - EF-12: an org's connections take no more descriptors than its share (TestDescriptorsAreShared, TestRefusedFlowTakesNothing).
//   - EF-13: what moves is held to the bandwidth of its sandbox and of its org, and of no other (TestBandwidthIsHeld).
//   - EF-14: with its quota used up an org's flows end and none begins, until the month does (TestQuotaEndsAndRefusesFlows, TestQuotaIsOfItsMonth).
//   - EF-15: the count of a month never falls behind what was counted before (TestCountGoesOnWhereItWas, TestMonthThatComesBackIsCountedOn).
//   - EF-16: requests under way are bounded per sandbox, however few connections carry them (TestRequestsAreBounded).
//   - EF-17: a flow by address ends, too, when a rule comes to deny the server name that it claims, or a secret is granted to it (TestClaimEndsFlow).
//   - EF-20: a flow that carries a secret ends when the secret is no longer granted to its host (TestFlowEndsWithTheGrantItCarries).
//   - EF-7: a flow whose sandbox was unbound, or began anew, is ended (TestUnboundSandboxEndsFlows).
//
// # Not here
//
// Closing the connection: Flow.Kill. Keeping the counts of a month over a restart, and bringing them to others: who calls Usage and
// Counted. The closing record: proxy. Requests within a connection: proxy judges each.
//
// # Failure
//
// A clock that is set changes nothing within a month; over its beginning or end, the quota of the month that it comes to is what is left of
// it.
//
// A source that fails is a snapshot that isn't fresh: its flows end. What failure_mode allows is the source's business.
package flows
