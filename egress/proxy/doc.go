// Package proxy serves the transparent connections of sandboxes: whatever a sandbox dials arrives here, is judged, and is
// refused, passed through or opened.
//
//	p, err := proxy.New(proxy.Config{Bindings: ..., Policies: ..., Floor: ..., Names: ..., Recorder: ..., Dialer: ..., Flows: ...})
//	err = p.Serve(ctx, listener) // LocalAddr is the original destination, RemoteAddr the sandbox
//	err = p.Shutdown(ctx)        // drains
//
// The path of one connection: whose is it (bind); what does its destination stand for, and may that be reached at all (run);
// which protocols are allowed there and which one is spoken (dispatch). Only tcp: dial at accept and relay,
// as the server may speak first. ssh and postgres: the same, but both sides have to begin like it; PostgreSQL's requests for
// encryption are moved, and TLS behind them is passed (named.go). TLS: the hello is read and compared, then
// the connection is passed (relay) or opened (open). HTTP, clear or opened: each request is judged, recorded and forwarded by
// itself (handler, forward).
//
// HTTP/1 is read by net/http behind httphead.Reader, so no head reaches it unchecked, also on kept and pipelined connections.
// A refused head arrives at the handler as a stand-in, in its turn, and is recorded and answered there. Upstream there is one
// http.Transport per (sandbox, incarnation, destination, secret versions, right to a floor exemption). Its dial takes the
// target from the verdict; the addresses that its kept connections go to are judged again for each request, and each of these
// connections is a flow of its own, with what it carries. Whoever changes secrets calls Refresh.
//
// A client of an opened connection that asks for HTTP/2 is offered it if the upstream has it. What is not remembered is asked
// first, and the first request takes the connection that it was asked on (alpn.go).
//
// A connection through a door (ServeDoor) joins that path behind its first step: whose it is and where it goes was said there.
//
// Encrypted ClientHello: GREASE and a real one can't be told apart (see clienthello), and a real one reaches any name of the
// same provider. So where TLS is passed through, a hello with either goes only to a server that reads no hidden names, which is asked
// (ech.go), unless Config.AllowOuterECH; where TLS is opened the extension is ignored, as the real name then shows inside.
//
// A client that shuts its side behind an HTTP/1 request has Timeouts.HalfClosed to wait for the answer; then it counts as gone.
// Bytes are counted of bodies on HTTP, of everything on relays. Denials are RFC 9457 JSON on HTTP, alert 49 on TLS, RST otherwise.
//
// # Security invariants
//
//   - EP-1: a request is refused unless it names the destination that its connection was judged for (TestRequestMustNameItsConnection, TestH2RequestMustNameItsConnection).
//   - EP-2: a TLS client that names another server than it connected to, or none, is refused before any dial (TestSNIMismatchIsRefused).
//   - EP-3: each request is recorded before it is forwarded, and not forwarded if it can't be (TestRecordComesBeforeDial).
//   - EP-4: each relay is recorded before it is dialled, and not dialled if it can't be (TestRecordComesBeforeDial).
//   - EP-5: of a connection that belongs to no sandbox not a byte is read (TestUnboundConnectionIsClosedUnread).
//   - EP-6: without a fresh snapshot of at least the binding's revision nothing is dialled, nor without a floor (TestNoFreshSnapshotNoConnection, TestNoFloorNoConnection).
//   - EP-7: a synthetic address without a name is never dialled (TestSyntheticAddressWithoutNameIsNeverDialled).
//   - EP-8: HTTP/1 reaches the server through the strict front only, request by request (TestStrictHead).
//   - EP-9: the path that is sent is the path that was judged (TestPathIsJudgedAsItIsSent).
//   - EP-10: on a granted host nothing that the sandbox sent as a credential reaches the upstream (TestGrantedHostTakesNoForeignCredential).
//   - EP-11: a rule that blocks or strips the sandbox's own credentials does so wherever the inside is seen (TestForeignCredentials).
//   - EP-12: each request on a kept connection is judged by the newest policy (TestEveryRequestIsJudgedByTheNewestPolicy).
//   - EP-13: a flow that a tightened policy no longer allows is cut, also in the middle of an answer (TestTightenedPolicyEndsFlows, TestFlowByAddressSaysWhatItClaims).
//   - EP-14: a kept upstream connection is not used once a rule denies the address it goes to (TestUpstreamConnectionsAreKept).
//   - EP-15: an upstream of an opened connection must prove the name that was judged (TestUpstreamMustProveItsName).
//   - EP-160: an upstream whose certificate has ended by our clock proves nothing, whatever the machine's says (TestEndedCertificateStaysEnded).
//   - EP-16: nothing but a WebSocket that was asked for leaves HTTP (TestOtherUpgradesAreRemoved, TestUpstreamFramingIsOurs, TestEarlyFramesGoNowhere).
//   - EP-17: a passed connection does not hide its name in an encrypted hello from a server that could read it (TestECHIsRefused).
//   - EP-18: portreeve.internal answers only under its own name and with its header, but for lists of revoked certificates (TestLocalHost).
//   - EP-19: a method, a path or a header that was judged is the only one there is: hop-by-hop fields end here (TestHopByHopStaysHere).
//   - EP-20: a secret that can't be applied blocks its request (TestSecretThatCantBeHadBlocks).
//   - EP-21: what can't be opened is refused on a granted host: passed TLS and relays (TestGrantedHostIsNeverPassedUnseen).
//   - EP-22: no secret is set in the clear, nor where a policy only watches (TestSecretIsWithheld).
//   - EP-24: an upstream is asked what it speaks only after that was recorded, at an address that was judged (TestUpstreamIsAskedUnderARecord).
//   - EP-25: a kept upstream connection is a flow with its address and its secrets, and ends with them (TestKeptConnectionsAreFlows, TestWhatCarriesASecretEndsWithItsGrant).
//   - EP-26: no idle upstream connection outlives the version of a secret that it carried (TestIdleConnectionsOfAnOldSecretAreClosed).
//   - EP-27: where a rule looks at methods or paths, or a secret is granted, no header, trailer or query parameter names another method or path (TestOverridesAreRefused).
//   - EP-40: a connection through a door is held to the name that was asked for there, as one by the wire is to the name that its address stands for (TestDoorHoldsItsName).
//   - EP-41: a request in absolute form is judged for the destination that it names, and never carries the door's credential further (TestForwardedRequestsGoTheirOwnWays).
//   - EP-42: a name that is reached through a door is looked up only within the budget of its wildcard (TestNamesAtDoorsAreBounded).
//   - EP-28: a real address stands for a name only if the sandbox was given it for that name, and is the one dialled; given for several, the client's own word decides or nothing is dialled (TestPinnedAddressIsItsName, TestSharedAddressNeedsAName).
//   - EP-29: nothing but PostgreSQL, or SSH, passes under a rule for just that, and TLS inside names no other host (TestNotPostgresIsRefused, TestPostgresOverTLS, TestSSH).
//   - EP-30: no DNS question in HTTP passes where it is seen, unless other resolvers are open (TestQuestionsToOtherResolversAreRefused).
//   - EP-23: a trailer that was not announced goes nowhere (TestTrailersCarryNothing).
//   - EP-70: each byte between sandbox and outside is metered once, whatever way it takes (TestEachByteIsMetered).
//   - EP-71: a connection that a used up quota refuses is told so and reaches nothing (TestQuotaIsTold).
//   - EP-72: an org's idle upstream connections make room for its own, never for another's (TestIdleUpstreamsMakeRoom, TestPoolsAreBounded).
//   - EP-73: answers that wait for a slow client take a bounded part of memory (TestUnreadAnswersAreBounded).
//   - EP-74: no upstream's answer is taken for one of ours (TestNoAnswerPassesForOurs).
//   - EP-75: what a sandbox does wrong is in the log once a second at most (TestLogIsNotTheSandboxs).
//   - EP-76: a granted value that an answer reflects is replaced: in fields and trailers always, in bodies where a grant says so (TestReflectedSecretIsReplaced, TestReflectionByWebSocket).
//   - EP-77: an answer whose body has to be searched and can't be doesn't pass (TestUnreadableAnswersAreRefused).
//   - EP-78: what net/http refuses of HTTP/2 by itself is recorded, whatever else is open: a stream that it resets before it answers, one too many, a whole connection (TestStreamsWithoutARequestAreRecorded, TestStreamsBesideAnOpenOneAreRecorded, TestTooManyStreamsAreRecorded, TestMalformedConnectionIsRecorded).
//   - EP-79: what is refused after it was allowed is a denial of its own, with its reason, which the answer names (TestRefusalAfterAllowIsADenial, TestEndBeforeTheAnswerIsADenial).
//   - EP-80: that an answer held a granted value is on record with its request, also where that is only counted or ended with something else (TestReflectionIsAlwaysTold).
//   - EP-81: what an upstream answered is believed for ten minutes and no longer, wherever the clock is set (TestMemoryOfAClockAheadIsNotBelieved).
//   - EP-151: only what plainly no rule allows is said to be open to asking (TestRefusalSaysWhereToAsk).
//   - EP-152: a connection by address is judged by the floor before the policy, through every door, and is recorded and told so (TestAddressIsJudgedByTheFloorFirst).
//
// # Not here
//
// Verdicts: policies. Resolving, the floor of what a name leads to, connecting: the Dialer. Caps and re-judging of live flows: the FlowTable. Which secret
// goes where: the Injector. What is a credential: secrets. Who is at a door, and what is spoken there: explicit, socks. Request
// bodies are not looked into, nor what a WebSocket says. A rule by CIDR may cover the addresses of a granted host: by address only the server name of
// passed TLS tells, and a relay nothing. Early hints (103) are not
// passed on. WebSockets over HTTP/2 (RFC 8441) are not offered: clients then use HTTP/1. What net/http itself
// refuses on HTTP/2, a header list that is too large (431), a path with a broken escape, a field of HTTP/1's connections, goes nowhere,
// and no handler hears of it: it is recorded when the next stream begins or the connection ends, as parse_error, and not if other
// streams were open, or its frame was no request's at all (two paths). The one hook for errors, HTTP2Config.CountError, names an error, and
// neither connection nor stream.
//
// # Failure
//
// Every failure before a verdict is a denial, and so is what we refuse after it: a second decision, beside the first one's close. Every failure of
// an upstream is recorded at the close of the decision and told to the client apart from a denial: 502 and 504 with a code on HTTP, alert 80 on TLS, RST otherwise. Running out of descriptors slows
// accepting and ends nothing.
package proxy
