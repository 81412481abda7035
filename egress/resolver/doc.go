// Package resolver is the DNS server that sandboxes see: it judges a name, and answers with an address that stands for it.
//
// Serve answers on sockets that were handed over. A query belongs to the sandbox that has its source address. An allowed name is
// answered with a synthetic address from Names, one per name and incarnation, which the proxy turns back into the name: so a
// connection is to a name, and nothing that a sandbox asks ever leaves the node. Everything but A is answered empty.
//
// Under a rule with dns: real an A query is looked up, by Config.Lookup, after the verdict was recorded; what is found is judged, and
// answered for 5 to 60 seconds, with aliases left out. Names keeps which sandbox was given which address for which name: only for that
// name it may connect there. The names below a wildcard are the sandbox's own choice, and whoever answers for it sees them: they are counted, and
// end with one alarm.
//
// The address of Self always resolves: it is where a sandbox learns what it may reach.
//
// Names is the table. It is handed on: each entry goes to OnAdd before the answer goes out, Export copies all, and Import puts a
// copy under a restarted edge, a restored sandbox or a fork. Addresses are given in order; that tells a sandbox only how many
// names it has asked for itself.
//
// # Security invariants
//
//   - ER-1: only a name that the policy may allow, under a fresh snapshot, gets an address (TestDeniedNameHasNoAddress, TestNoFreshPolicyNoAddress).
//   - ER-2: no answer with a verdict without its record (TestUnrecordedIsNotAnswered).
//   - ER-3: within an incarnation an address stands for one name, for ever (TestAddressNeverReused).
//   - ER-4: a sandbox sees only its own table, known by its source address (TestTablesAreApart, TestUnknownSourceIsIgnored).
//   - ER-5: nothing but A, PTR of the own table, and emptiness is answered (TestOtherTypesAreEmpty, TestOddQueriesRefused).
//   - ER-6: queries, distinct names and their bytes are bounded per sandbox (TestQueryBudget, TestNameBudget).
//   - ER-7: the answer comes from the address that was asked (TestAnswerComesFromAskedAddress).
//   - ER-8: the floor's names are denied before the policy is asked (TestFloorNameDenied).
//   - ER-9: the copy of an entry is handed out before its address is, or the address is not (TestEntryIsHandedOutFirst).
//   - ER-10: a name is looked up only after it was allowed and recorded, and only where a rule says dns: real (TestNothingLeavesForDeniedNames).
//   - ER-11: a real address is given out only if floor and rules let it pass (TestRealAnswersAreJudged).
//   - ER-12: a real address stands for the names that this incarnation was given it for, until a while after its TTL (TestPinsAreOfOneSandboxAndEnd).
//   - ER-40: what is answered at a time is divided between orgs (TestTCPIsSharedBetweenOrgs).
//   - ER-13: names below a wildcard, their bytes, and lookups are bounded per sandbox (TestWildcardBudget, TestLookupBudget, TestNamesAtDoorsAreCharged).
//   - ER-14: each verdict is on record, the repetitions of one within a while as a count (TestRepetitionsAreCounted, TestRepetitionsOutliveTheServer).
//
// # Not here
//
// Lookups: egress/dial, after a verdict on the connection. Sockets, and that queries to any server arrive here: node and
// egress/kernel. Forgetting a sandbox: whoever unbinds it for good calls Drop. Two edges that overlap must not both give out
// addresses to the same sandbox: the old one stops serving DNS before the new one imports the last entries.
// Pins are not handed on: after a restart a real address leads nowhere until its name is asked for again.
//
// # Failure
//
// No snapshot, a full table, a lookup, a recorder or an OnAdd that fails: SERVFAIL. A policy that denies: NXDOMAIN. Both at once, never silence.
// The death of the process takes what was counted in the last seconds, but no verdict.
package resolver
