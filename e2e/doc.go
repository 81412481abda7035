// Package e2e holds the black-box tests: they drive the built programs on the lab's small internet, with real sandboxes,
// and import nothing of ours but lab.
//
//	make e2e RUN=TestNothingOut
//
// The judge of "nothing got out" is the lab's capture on the uplink, never the product's own word.
//
// # Security invariants
//
// None of its own: it shows those of the others from outside the processes.
//
// # Not here
//
// What needs a fresh machine (make vm), and what one package can show alone (its own tests).
//
// # Failure
//
// A test that can't build its world fails; it never skips.
package e2e
