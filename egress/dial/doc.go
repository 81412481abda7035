// Package dial is the one way out: it resolves a name, judges every address, and connects to an address it has judged.
//
// Everything of ours that opens a connection to a target that a sandbox or an org may influence calls Dialer.Dial with the org,
// the host in normal form (or an address) and the port. The verdict on the host was given before; what is decided here is the
// floor, on each address, at the moment of use. A *Refused is such a decision; an *Error is a failure, with a kind for the record.
//
// Names are asked of the configured servers, in the clear or over TLS (RFC 7858): no file of the host, no search list and no proxy setting of the host's takes part.
// Config.Upstream is the company's own proxy: then connections are asked of it, after everything was judged, and never made without it.
//
// # Security invariants
//
//   - ED-1: the address connected to is an address that was judged in this very call (TestRebindingNeverHits).
//   - ED-2: an address that the floor denies is not connected to, however the name leads there: answer, CNAME, cache, literal (TestPrivateAnswerRefused, TestAliasToPrivateRefused).
//   - ED-3: only records that belong to the name asked for, or to its alias chain, count (TestStrayOwnersIgnored).
//   - ED-4: a reply counts only if server, id and question are those of the query (TestForgedRepliesIgnored).
//   - ED-5: what one org looked up is never the answer to another (TestCacheIsPerOrg).
//   - ED-6: a host that the floor denies by name is not even looked up (TestDeniedHostNotLookedUp).
//   - ED-7: the socket itself refuses any address but the judged one (TestSocketRefusesOtherAddress).
//   - ED-8: an address of the machine's own is refused, whatever an exemption opens (TestOwnAddressIsRefused).
//   - ED-22: with a company's proxy nothing is connected to but that proxy, whatever it does, for every org but those with a direct way (TestConnectionsGoThroughTheProxy, TestFailingProxyIsNotPassedBy).
//   - ED-23: the proxy is asked for an address that was judged; for a name only if the operator wants that and all its addresses may be used (TestChecksComeBeforeTheProxy).
//   - ED-24: only a whole answer with status 200 is a connection, and nothing behind its head is taken from it (TestFailingProxyIsNotPassedBy, FuzzProxyAnswer).
//   - ED-25: the login of the company's proxy is in no error (TestLoginIsInNoError).
//   - ED-26: a server over TLS proves its name before it hears a question, and nothing is asked in the clear instead (TestQuestionsOverTLSStayThere).
//   - ED-27: questions that belong to the company's proxy go nowhere else (TestQuestionsGoThroughTheProxy).
//   - ED-29: a reply on a connection that several questions share goes to the one that it belongs to (TestQuestionsShareAConnection, TestReplyToSomethingElseIsNone).
//   - ED-28: connections of an org with source addresses leave from one of them, also those to the company's proxy, and from no other (TestOrgLeavesFromItsOwnAddress, TestProxyIsReachedFromTheOrgsAddress).
//   - ED-30: an exemption that has ended since the floor was set opens nothing (TestExemptionEndsAtTheDialer).
//   - ED-20: Lookup tells only of addresses that floor and rules let pass, and looks up no name that they deny (TestLookupTellsNothingClosed).
//   - ED-21: a pinned address is the only one tried, and judged like any other (TestPinIsJudged).
//
// # Not here
//
// Whether the policy allows the host: policies, before. That the name dialled is the name judged (SNI, Host): proxy.
// Rules on the names of an alias chain, and on the ranges of the addresses: Target.Alias and Target.Address are asked about each.
// That nothing else under egress dials is a property of the source, and TestNoOtherDialer reads the source.
//
// # Failure
//
// No server answers: an *Error of kind resolve_timeout after Config.ResolveTimeout. No floor: everything is refused.
package dial
