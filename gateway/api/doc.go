// Package api is the HTTP interface of the control process: OpenAPI 3.1 from Go types, under /api/v1 and, for older clients, /api.
//
//	srv, err := api.New(api.Config{Store: st, Sandboxes: svc, Guest: guest, Feed: feed, Floor: floor, Keyring: ring, Authorities: authorities, SetupToken: token})
//	http.Serve(listener, srv)
//
// Each route names one scope; a route exists only when it works. Refusals are RFC 9457 problems with a stable code, a
// request id and, where a part of the request is at fault, its place and what is wrong with it, never its value.
// exec, shell, files and the decision stream are plain handlers; the rest is huma's.
//
// A create of a tunnel answers once ingress has its route, or after Config.Applied with a warning in the log; a delete that
// ingress has not acknowledged by then answers 504, and is done all the same.
//
// # Security invariants
//
//   - GA-1: every route but health, the OpenAPI document and register refuses a request without a live key (TestEveryRouteNeedsAKey).
//   - GA-2: every route refuses a key without the route's scope (TestEveryRouteNeedsItsScope).
//   - GA-3: no refusal repeats a value that the client sent (TestNoRefusalRepeatsAValue).
//   - GA-4: another org's id is 404 on every route that takes one (TestAnotherOrgsIDIsNotFound).
//   - GA-5: an X-Org-Id that is not the key's org is refused (TestOrgHeaderMustBeTheKeysOrg).
//   - GA-6: a setup token registers once, and a wrong one never (TestSetupTokenRegistersOnce).
//   - GA-7: a key gives no policy that it does not list (TestKeyGivesOnlyItsPolicies).
//   - GA-8: a key makes no key that may do more than it may (TestKeyMakesNoStrongerKey).
//   - GA-9: a change against a stale version is refused with 412 and changes nothing (TestStaleIfMatchIsRefused).
//   - GA-10: bytes of a sandbox leave as attachment, without sniffing, in a CSP sandbox (TestDownloadIsAnAttachment).
//   - GA-11: no path of a request leaves the sandbox's own folders (TestPathsStayInTheSandbox).
//   - GA-12: a cursor that we did not sign for this org and this question is refused (TestForeignCursorIsRefused).
//   - GA-13: a body over its limit is refused with 413 before any of it is acted on (TestBodyOverItsLimitIsRefused).
//   - GA-14: an answer that held a value shown once is not kept for its idempotency key (TestOneTimeValueIsNotKept).
//   - GA-15: no answer, log line or audit entry holds a secret's value, and none is stored but sealed (TestNoAnswerHoldsAValue).
//   - GA-16: a tunnel's token is in the answer to its create and nowhere else; what is stored is its hash (TestTunnelLife).
//   - GA-17: a host with a grant is let through unopened by no policy, whichever of the two comes first (TestGrantedHostIsNeverPassed).
//   - GA-18: a sandbox has a public tunnel or the use of a secret, not both, whichever comes first, unless its org says otherwise (TestPublicTunnelAndGrantExcludeEachOther, TestPublicWithGrantIsTheOrgsWord).
//   - GA-19: a sandbox's policy and own list are changed only by a key that may give that policy (TestOwnListNeedsItsPolicy).
//   - GA-20: no document comes into force against its own tests, unless it was asked to only report them (TestFailingTestRefusesTheChange).
//   - GA-30: an org learns only of its own decisions whether and where they were lost (TestDecisionHealthIsOfOneOrg).
//   - GA-31: a stream of decisions goes on behind any of its events, without missing or repeating one (TestTailGoesOnBehindAnyEvent).
//   - GA-32: who follows is told what was lost or deleted before it came to him (TestTailTellsWhatIsNotInIt).
//   - GA-25: a live connection is ended only after the audit log says who ends it (TestKilledFlowIsWrittenDownFirst).
//   - GA-40: a sandbox asks only for what plainly no rule allows: not for what a rule denies or the floor closes (TestOnlyTheMissingRuleIsAskedFor).
//   - GA-41: an edge that brings an ask is believed in nothing but which sandbox it heard (TestEdgeIsNotBelieved).
//   - GA-42: whoever asks for access does not decide about it (TestWhoAsksDoesNotDecide).
//   - GA-43: access that was asked for ends by itself, after a day at the latest (TestApprovalGivesAccessForAWhile).
//   - GA-44: an ask is held only while somebody watches who may decide (TestHeldOnlyWhileSomebodyWatches).
//   - GA-46: a webhook's secret is in the answer to its create and nowhere else, and stored only sealed, for that org and endpoint (TestWebhookSecretIsShownOnce).
//   - GA-47: an event is queued with the change that it tells of, or not at all, and only for endpoints of its org (TestEventsAreQueuedWithTheirChange).
//   - GA-48: nobody below the platform sees or changes what is open of the floor, or makes a key that does (TestFloorIsThePlatforms).
//   - GA-49: what the floor's hard part holds, or no org is named for, is opened by no call (TestFloorExemptionsThatAreRefused).
//   - GA-50: what would be allowed is told under the floor, with the exemptions of the org that asks (TestAnswersKnowTheFloor, TestEffectKnowsTheFloor).
//   - GA-51: a change that makes a test of its document fail is refused; what the platform changed of the floor is told, and refuses no change that has nothing to do with it (TestTestsKnowTheFloor).
//   - GA-61: no tunnel is opened that the org's ingress policy refuses, and each refusal is in the audit log (TestIngressPolicyDecidesOnTunnels).
//   - GA-62: an ingress policy holds for the tunnels that there are: what it refuses ends with it (TestNewIngressPolicyHoldsForOldTunnels).
//   - GA-45: access to a host with a grant is given opened, never passed (TestGrantedHostIsGivenOpened).
//
// # Not here
//
// TLS, the listener and its timeouts: gateway/server. What a sandbox's life is: gateway/sandboxes. Verdicts: policies.
//
// # Failure
//
// With the store gone every route answers 503 and health says so; the cause goes to the log, never to the client. With the
// node gone exec, files and shell answer 503. With an edge silent, ?wait=applied answers 504 after the change was stored.
package api
