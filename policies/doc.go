// Package policies decides, and never does anything.
//
// A Document is a set of rules, read by Parse, which refuses what it does not understand. Compile joins documents as
// layers (the org's ceiling, a named policy, the sandbox's own list) to an immutable Snapshot; Evaluate asks it:
//
//	doc, err := policies.Parse([]byte(`{"rules": [{"id": "api", "action": "allow", "hosts": ["api.example.com"]}]}`))
//	snap, err := policies.Compile(policies.Layer{Name: "ceiling", Version: 7, Document: doc})
//	v := snap.Evaluate(&policies.Request{Stage: policies.StageConnect, Host: "api.example.com", Port: 443, Now: now})
//	if v.Allowed() { ... }
//
// In every layer an allow rule has to match, and no deny rule in any. Beside the rules stands the Floor, which judges
// addresses and which no org can change. A request is asked about up to three times, as more of it becomes known:
// at StageName allow rules match by host alone, and deny rules only if nothing but the host restricts them; at StageConnect
// methods and paths are treated so; at StageRequest everything is compared.
//
// How allowed traffic is treated is said by the allow rule that names the destination most closely in its layer; among
// equally close ones by the stricter. Of several layers the strictest opinion holds: one "inspect" opens TLS, one "strip"
// strips; a layer that says nothing has no opinion.
//
// # The language
//
// A rule has an id (a-z, 0-9, ".", "_", "-"), an action, and one of: hosts (exact, or *.x for every name below x), cidrs, or
// any: true (every host, but no address). The star alone is refused, so that whoever allows everything says so in a word
// of its own. Defaults of an allow rule: protocols [https]; ports by protocol (https and tls 443, http 80, ssh 22,
// postgres 5432; tcp has none, and addresses need ports); tls pass. Defaults of a deny rule: every port and protocol,
// and https with http if it has methods or paths. Ports may be ranges, "8000-8099".
// Public suffixes are refused in allow rules; a wildcard below a suffix of the private section, or below a
// top-level domain that the list does not know, needs shared: true. In deny rules they are fine.
// foreign_credentials counts where the inside is seen, and is block unless some layer says otherwise.
// A denial is Requestable exactly if its reason is no_rule, whichever layer lacks the rule, and it is about a name.
//
// A document may also name presets, and repositories in place of hosts ("git: github.com/acme/*" with "access: read"): both are
// written out as plain rules when it is read. Its tests say what the author expects; RunTests asks them, of
// a Floor as the wire would answer. Lint, Diff,
// Replay and Learn help whoever writes documents, and decide nothing; EditYAML changes a text and keeps its comments.
//
// # Security invariants
//
//   - PO-1: the zero verdict, action, class and foreign-credentials mode deny (TestZeroVerdictIsDeny).
//   - PO-2: a rule that can't be read refuses the whole document (TestUnreadableRuleRefusesTheDocument, TestDocuments, FuzzParse).
//   - PO-3: a matching deny wins over every allow, in every layer, order and closeness (TestDenyWins, TestEvaluateEqualsReference).
//   - PO-4: no exemption opens any part of the hard floor (TestNoSettingOpensTheHardFloor).
//   - PO-31: what is always closed is closed inside an exemption too, in every form of the address (TestAlwaysIsClosedInsideAnExemption).
//   - PO-33: what the floor closes is denied as that before the policy is asked, and what an exemption opens is open only to rules that name it (TestFloorComesBeforeThePolicy).
//   - PO-5: no floor, no verdict but deny (TestNilFloorDenies).
//   - PO-6: a wildcard never matches its apex, nor a name that only ends like it (TestWildcardNeverMatchesApex).
//   - PO-7: no snapshot, no layer, or a layer without a document denies (TestNoPolicyDenies).
//   - PO-8: what one layer does not allow is denied, whatever the others say (TestEveryLayerHasToAllow).
//   - PO-9: a host that is not in normal form is denied before any rule is asked (TestHostNotInNormalFormDenies).
//   - PO-10: an address in disguise is classified by the address inside it (TestClassifySeesThroughDisguises).
//   - PO-11: an expired rule allows nothing; without a clock every ending rule has ended for allowing, none for denying (TestExpiry).
//   - PO-12: observe_until lifts only its own layer's denials and has an end; what it lets through is marked (TestObserveLetsRulesWatchOnly).
//   - PO-13: a rule about methods or paths of TLS that is passed through is refused (TestDocuments).
//   - PO-14: an exemption holds for its orgs and ports only (TestFloorJudge).
//   - PO-32: an exemption opens nothing from its end on (TestExemptionEnds).
//   - PO-15: an allow rule for addresses never allows a name; a deny rule for addresses also holds for names (TestDenyLooksAtResolvedAddress).
//   - PO-16: a verdict that rests on a method or a path says so, and every header or query parameter that names another one is known as such (TestInsideIsSaid, TestOverrideHeaders, TestOverrideQuery).
//   - PO-17: tests change no verdict, and what is let through only because a layer watches fails a test that expects it (TestTestsOnlyTell, TestRunTestsWhileWatching).
//   - PO-37: a test is asked as the wire would answer it: under the floor, with the exemptions that the org has at that time (TestTestsStandOnTheFloor).
//   - PO-18: under presets and git rules packages install and repositories clone; publishing and pushing are denied, and nothing passes unopened (TestPresetsInstallAndDontPublish, TestGitAccess, TestSugarIsWrittenOut).
//   - PO-19: what is learnt names single hosts, addresses, ports, protocols and whole paths, and allows nothing that was not seen or that a rule denied (TestLearn, TestLearnIsNarrow).
//   - PO-20: replay changes nothing, keeps a bounded number of rows, and gives no answer about what was recorded in part (TestReplay, TestReplayChangesNothing, TestReplayIsBounded).
//   - PO-34: what the floor closes is newly allowed by no draft and drafted by no means, whatever was recorded of it (TestReplayKnowsTheFloor, TestLearnKnowsTheFloor).
//   - PO-35: lint says of a range that the floor closes it exactly if it closes each of its addresses on each port (TestFloorCoverEqualsTheFloor, TestLintKnowsTheFloor).
//   - PO-36: an explanation's verdict is the one that holds on the wire, and its first layer that denies is the one that decided, the floor before all (TestExplainKnowsTheFloor).
//   - PO-21: a text that was edited means exactly the document that was asked for, whatever stood in it before (TestEditYAML, TestEditYAMLMeansWhatIsAsked, FuzzEditYAML).
//   - PO-30: known resolvers of others, and the port of DNS over TLS, are denied to every rule that does not name them, unless the first layer opens them and none closes them (TestOtherResolversAreClosed).
//
// # Not here
//
// The normal forms themselves: hostname, netaddr, pathmatch. Evaluate checks the shape of a host but trusts the caller
// that Request.Path is canonical. Dialling the address that was judged, and asking Judge about exactly that one: egress/dial.
// Freshness: whoever holds a snapshot denies with ReasonStalePolicy when it is too old, by Failure.
// Of the addresses that a name has, exemptions are used only where the policy's verdict is Named too: the dialer compares.
//
// # Failure
//
// Nothing here waits or fails: there is no store and no network. Whatever is missing (snapshot, document, floor, time) denies.
package policies
