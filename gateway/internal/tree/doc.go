// Package tree holds no code, only the tests that keep the repository in shape: who imports whom, what each package
// comment promises, which dependencies have a reason, which words stay out.
//
// It reads the tree and asks the go command; it needs no rights and no network.
//
// # Security invariants
//
// None of its own. It holds the walls between packages, and that each invariant of the others has a test and a proof.
//
// # Not here
//
// Whether the proofs hold: make prove builds and runs them.
//
// # Failure
//
// A rule that no longer names anything that exists fails too: a wall around nothing is a mistake in the rule.
package tree
