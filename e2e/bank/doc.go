// Package bank plays the bank of known bugs against the running product: each file in rows is one bug that some egress
// gateway had, with what a sandbox sends for it and what must be seen outside.
//
//	make bank                   plays every row and prints a table; RUN=regex chooses ids
//	make bank-sensitivity       plays them against an edge whose policy always allows, and one whose policy always denies
//
// A row has an id, its source, the cause in one sentence, a policy (a file in policies), the paths on which it makes sense,
// cases that must be refused, and their allowed twins. Package sender, in a real sandbox, says what a case says. The judge
// is outside: what the lab's servers received, which names its name server was asked for, what its capture saw. Beside that
// the refusal must have the form that the row names, and leave exactly the records that it names, with a reason from the
// closed list.
//
// A row whose bug needs more than one sandbox's bytes names a program (programs_test.go), or a black-box test elsewhere that shows it.
//
// # Security invariants
//
// None of its own: it shows those of the others from outside the processes.
//
// # Not here
//
// Credentials that are stored with us: their bank is the one of the tests about secrets.
//
// # Failure
//
// A row that can't be played has failed. A row marked open fails too, and says why.
package bank
