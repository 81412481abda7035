// Package bank plays the bank of known bugs against the running product: each file in rows is one bug that some egress
// gateway had, with what a sandbox sends for it and what must be seen outside.
//
//	make bank                   plays every row and prints a table; RUN=regex chooses ids
//	make bank-sensitivity       plays them against edges that were made worse, and counts which checks notice
//
// A row has an id, its source, the cause in one sentence, a policy (a file in policies), the paths on which it makes sense,
// cases that must be refused, and their allowed twins. Package sender, in a real sandbox, says what a case says. The judge
// is outside: what the lab's servers received, which names its name server was asked for, what its capture saw. Beside that
// the refusal must have the form that the row names, and leave exactly the records that it names, with a reason from the
// closed list.
//
// A row whose bug needs more than one sandbox's bytes names a program (programs_test.go), or a black-box test elsewhere that shows it.
// Of a test that looks at one package alone the table says that it is not from outside.
//
// Sensitivity is counted by attack: each deny case on each path, with each of its values. With Evaluate forced to allow, nine
// of ten of those that the policy alone refuses must fail; what they are after, asked for plainly, is counted apart. A case that
// another wall refuses names it (wall), and its row the invariants whose proofs by removal show that wall (proof). These cases
// are played once more against an edge without the guards of all those proofs that are edge's, and the table says for each row
// how many of its checks notice. Most proofs take one facet of a guard away, and guards stand behind each other, so a row may hold there.
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
