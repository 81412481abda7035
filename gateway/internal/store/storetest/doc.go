// Package storetest is the contract of the store: what every engine must do.
//
// An engine's test calls Run with a function that opens a fresh, empty store.
//
// # Security invariants
//
//   - None of its own: it holds the tests of the store's invariants.
//
// # Not here
//
// Starting servers: the store's own test does it.
//
// # Failure
//
// A store that can't be opened fails the test; nothing is skipped.
package storetest
