// Package store keeps what the control process must not lose: orgs, keys, sandboxes,
// tunnels, policies, secrets as sealed bytes, decisions, the audit log, and what is open of the floor, which is of no org.
//
// It is database/sql over a SQLite file or PostgreSQL; the SQL is one text for both. Reading is by methods of Store, each with
// the org as an argument. Changing is possible in one way only:
//
//	err := st.Change(ctx, store.By{Principal: who, Address: addr, RequestID: id}, func(tx *store.Tx) error {
//		v, err := tx.PutPolicy(ctx, "web", doc, store.AnyVersion)
//		if err != nil {
//			return err
//		}
//		tx.Bump()                                              // edge must know
//		return tx.Record(ctx, audit.PolicyUpdate, "policy:web", nil)
//	})
//
// Decisions and idempotency keys are not changes of a principal; they have methods of their own on Store.
//
// # Security invariants
//
//   - ST-1: a change without a valid principal is not begun (TestChangeNeedsAPrincipal).
//   - ST-2: a change that wrote no audit entry is rolled back (TestChangeNeedsAnAuditEntry).
//   - ST-3: an entry and its change are there together or not at all (TestEntryAndChangeGoTogether).
//   - ST-4: no read or change with one org's name touches a row of another (TestOrgsDontMeet).
//   - ST-5: a write against a stale version changes nothing (TestStaleVersionChangesNothing, TestOwnListsAreKept).
//   - ST-6: revisions grow in commit order: no revision appears below one already seen (TestRevisionsAreCommitOrdered).
//   - ST-7: appending a decision a second time changes nothing; only its first closing does (TestDecisionAppendIsIdempotent).
//   - ST-8: a store is not made by mistake: opening one that isn't there needs Create (TestOpenDoesNotCreate).
//   - ST-9: a one-time setup token registers one org (TestSetupTokenWorksOnce).
//   - ST-10: an org's first root and a key of the platform are made once and never replaced, whoever comes at once (TestFirstKeyStays).
//   - ST-14: one root of an org signs at most, and one is next; of a retired one no key is kept (TestRootsChangeInOrder).
//   - ST-15: an intermediate that was revoked stays so, and the edges are told (TestIntermediatesAreKept).
//   - ST-11: a sandbox has no more live tunnels than its limit, whoever comes at once (TestTunnelLimitHoldsInParallel).
//   - ST-12: a value is stored only as the next version of the one that is there (TestSecretVersionsFollowEachOther).
//   - ST-13: a version of a policy that a kept decision names is kept as long as the decision (TestOldVersionsAreForgotten).
//   - ST-16: nobody below the platform changes the floor, and each change of it is a revision (TestFloorExemptionsAreKept).
//   - ST-17: there are no more exemptions than the limit, whoever comes at once (TestFloorLimitHoldsInParallel).
//   - ST-40: a request for access is decided once, by a key of its org, and never by a sandbox or a part of ours (TestRequestsAreKept).
//   - ST-41: a sandbox and an org have no more open requests for access than their limits, whoever asks at once, and equal ones are one (TestRequestLimitsHoldInParallel).
//   - ST-42: a delivery that was put off while the clock was ahead is due once it is right (TestWebhooksAreKept).
//   - ST-43: a tunnel that has ended only by a clock that is ahead can be ended for good (TestRestrictionsHoldForWhatReturns).
//   - ST-44: an ingress policy that can't be read allows nothing, of its org alone, and can be replaced (TestUnreadableIngressPolicyRefusesAndIsReplaced).
//   - ST-30: a decision is lost that is missing among the numbers that arrived, whoever says what; sent again, nothing changes (TestLossIsWhatIsMissing).
//   - ST-31: who follows an org's decisions sees each verdict and each end of a flow once, in the order of their commits (TestTailSeesEachEndOnce).
//   - ST-32: decisions beyond an org's days or budget go the oldest first, none of another org's, and it is said from when on all are there (TestOldestDecisionsGoFirst).
//   - ST-33: of flows without an end only those are closed whose edge has died (TestDeadFlowsAreEnded).
//
// # Not here
//
// Whether a principal may do something: gateway/api asks for the scope; only of the platform's it is asked for here too. Whether a document is right: policies says so.
// Key texts: only their hashes come here.
//
// # Failure
//
// Errors of the driver come out as ErrNotFound, ErrConflict, ErrVersion, ErrBusy, ErrFull or ErrUnavailable, chosen by the driver's code.
// After ErrUnavailable from Change the outcome is unknown: the commit may have happened. Ask again before repeating.
package store
