// Package apitest holds stand-ins for what the API needs of others, and a world that joins them behind a real listener.
//
// They do the real thing in small and have switches for faults: Runner keeps a table, Guest runs processes of this machine
// in a folder, Feed acknowledges. None of them isolates anything; they are for tests only.
//
// # Security invariants
//
//   - None of its own.
//
// # Not here
//
// A node, an edge, a sandbox.
//
// # Failure
//
// Each fault has a switch, named for what breaks.
package apitest
