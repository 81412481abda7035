// Package decisions keeps each verdict on disk until control has it.
//
// A Spool is one SQLite file in a directory of its own. Open it, Record every decision before acting on it, CloseFlow when the
// connection ended; whoever ships calls Batch, sends, then Ack. One goroutine writes: it commits all that is waiting in one
// transaction, so that a commit costs less per decision the more callers there are.
//
// Each call of Record and CloseFlow draws one sequence number, also a call that is refused. Numbers grow, and never repeat in
// one file (ID names it). A number without a row is therefore a lost line, and the reader can count them as well as Lost does.
//
// # Security invariants
//
//   - EC-1: Record returns nil only for a decision that a SIGKILL of the process no longer takes away (TestKilledProcessKeepsAcknowledged).
//   - EC-2: what can't be written is an error to the caller: full disk, full spool, closed spool (TestFullDiskRefuses, TestFullSpoolRefuses).
//   - EC-3: a refused or failed decision leaves a gap in the sequence, over a restart too (TestRefusedLeavesGap).
//   - EC-4: one org can't fill the spool of another (TestOrgShare).
//   - EC-5: one sandbox can't flood the spool: it has a budget, and its overrun leaves one line (TestSandboxBudget).
//   - EC-6: a row leaves the spool only when it was acknowledged (TestOnlyAcknowledgedLeaves).
//
// # Not here
//
// Shipping, retention and search: gateway. What is written into a Decision, above all that no value or query gets in: the caller.
// Two processes can't share a directory (the file is locked); an edge that takes over from another one needs its own.
//
// # Failure
//
// Power loss may take the commits of the last moments (synchronous=NORMAL); Config.PowerSafe pays for an fsync per commit.
// After a failed write the file is opened anew at the next call. A damaged file is an error at Open, never silently replaced.
package decisions
