// Package decisions keeps each verdict on disk until control has it.
//
// A Spool is one SQLite file in a directory of its own. Open it, Record every decision before acting on it, CloseFlow when the
// connection ended; whoever ships calls Batch, sends, then Ack. One at a time writes: a caller that finds nobody writing commits by
// itself, and a goroutine commits in one transaction what came meanwhile, so that a commit costs less per decision the more callers
// there are. Orgs take turns in it, and it is never so long that who comes meanwhile would notice.
//
// Each call of Record and CloseFlow draws one number of its org, also a call that is refused. Numbers grow, and never repeat in
// one spool (its id names it). A number without a row is a lost line, and a lost line is a number without a row: so whoever reads
// the rows can count the losses by itself. What a call lost is written to the ledger, a small file beside, before the caller is told;
// what was drawn when the process died, and told to nobody, is no loss. Numbers come from blocks that are synced to disk before
// use. After a crash of the machine, or with an older copy of either file, nobody knows what was drawn of the last block: its rest is
// left out and called unsure.
//
// Equal denials (the same sandbox, destination and reason) get ten rows a minute; more of them are counted in one row, as are
// allowed decisions whose rule says so (Decision.Fold). Such a row counts on disk like any other, and is shipped when its minute
// is over.
//
// # Security invariants
//
//   - EC-1: Record returns nil only for a decision that a SIGKILL of the process no longer takes away (TestKilledProcessKeepsAcknowledged).
//   - EC-2: what can't be written is an error to the caller: full disk, full spool, closed spool (TestFullDiskRefuses, TestFullSpoolRefuses).
//   - EC-3: a refused or failed decision leaves a gap in the sequence, over a restart too (TestRefusedLeavesGap).
//   - EC-4: one org can't fill the spool of another (TestOrgShare).
//   - EC-5: one sandbox can't flood the spool: it has a budget, and its overrun leaves one line, also after a clock that was ahead (TestSandboxBudget, TestOverrunIsToldAfterAClockAhead).
//   - EC-6: a row leaves the spool only when it was acknowledged (TestOnlyAcknowledgedLeaves).
//   - EC-7: a loss is counted before its caller hears of it, and the death of the process doesn't take the count (TestLossesSurviveTheProcess).
//   - EC-8: no number stands for two lines, whatever crashed, was deleted or comes from an older copy (TestNumbersAreNeverGivenTwice, TestNumbersOutliveTheirRows).
//   - EC-9: a request into which a secret went has a row of its own, under whatever rule (TestCountingRule).
//   - EC-10: a denial has a row of its own until there are many equal ones; a different one always has (TestOnlyEqualDenialsAreFolded).
//   - EC-11: a decision on a connection says at which level its destination is known (TestLevelIsNeeded).
//   - EC-12: a loss that can't be counted is said to be one, so that nobody goes on after it (TestUncountedLossIsSaid).
//   - EC-13: nothing is recorded into a file that the next start would not find, and what it holds is shipped (TestMovedFileIsShippedFirst).
//   - EC-14: what has a row of its own has its end written too, under whatever rule, and no end's bytes are dropped for want of room to count (TestEveryEndIsWritten).
//   - EC-15: what is counted after its row was shipped is counted in another, whose id its caller is told (TestLateCountHasTheIDOfItsRow).
//   - EC-16: however much one org has waiting, another's line is in the next commit (TestOrgsTakeTurns).
//   - EC-17: what came before a Flush is written when it returns, whoever writes it (TestFirstLeads).
//   - EC-18: a commit that breaks off is told to all who wait for it, and its lines are counted as lost (TestBrokenCommitIsTold).
//
// # Not here
//
// Shipping, retention and search: gateway. What is written into a Decision, above all that no value or query gets in: the caller.
// Two processes can't share a directory (the file is locked); an edge that takes over from another one needs its own.
//
// # Failure
//
// Power loss may take the commits of the last moments (synchronous=NORMAL); Config.PowerSafe pays for an fsync per commit.
// After a failed write the file is opened anew at the next call. A damaged file is an error, never silently replaced. Config.Late
// opens the spool also without its file: each call fails, and tries again. A clock that is set back makes nothing but a minute of
// counts shorter or longer.
package decisions
