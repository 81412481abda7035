// Package quantity reads amounts of memory and processors as Kubernetes writes them.
//
//	quantity.Bytes("512Mi")  // 536870912, true
//	quantity.Millis("1.5")   // 1500, true
//
// # Security invariants
//
// None of its own: what is too much is for the caller's limits.
//
// # Not here
//
// Bounds, and the words of a refusal: the caller names its field.
//
// # Failure
//
// What can't be read in one way, is zero, or doesn't fit into an int64 is refused, never rounded.
package quantity
