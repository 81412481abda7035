// Package processtest makes what tests of our processes share: sockets between two of them, and waiting for one.
//
//	mine, theirs := processtest.Pair(t)
//	processtest.Await(t, "a new process", func() bool { return p.current() != 0 })
//
// # Security invariants
//
// None of its own: the sockets are real ones.
//
// # Not here
//
// Closing: whoever takes an end closes it.
//
// # Failure
//
// What can't be made, or doesn't come, ends the test.
package processtest
