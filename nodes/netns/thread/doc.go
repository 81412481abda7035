// Package thread runs a function on an operating system thread that is thrown away afterwards.
//
// Network namespace, capabilities and no_new_privs belong to a thread, not to a process. Work that changes one of
// them is done here, and the thread ends with the work, so that no other goroutine can ever run on it.
//
// # Security invariants
//
//   - NT-1: what the function changes about its thread is seen by no goroutine that runs later (TestChangedThreadIsNeverUsedAgain).
//
// # Not here
//
// Joining a namespace: the function does it itself, see netns.Do.
//
// # Failure
//
// A panic in the function ends the process, as in any goroutine.
package thread
