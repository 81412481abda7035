// Package audit says what an entry of the audit log is and proves that none was changed, lost or put in between.
//
// Entries of one org form a chain: each holds the hash of the one before. The store appends an entry in the transaction of
// the change that it tells of; whoever has a run of entries can check it offline:
//
//	err := audit.Verify(audit.Genesis(org), entries)
//
// # Security invariants
//
//   - AU-1: changing any field of an entry breaks the chain at that entry (TestEveryFieldIsChained).
//   - AU-2: leaving out, doubling or swapping entries breaks the chain (TestVerifyNoticesGapsAndSwaps).
//   - AU-3: two entries that differ never hash the same by moving bytes from one field to the next (TestFieldsDontRunTogether).
//
// # Not here
//
// Writing: gateway/internal/store, which gives number and hash. An entry holds no value of a secret, no command line and
// no body: whoever makes one sees to that.
//
// # Failure
//
// A chain proves nothing about its newest end: who can rewrite the whole table can rewrite the chain. Keep a hash elsewhere.
package audit
