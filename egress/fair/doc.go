// Package fair divides a fixed number of things between orgs, so that none of them can take what another needs.
//
//	share := fair.New(1000)
//	if !share.Take(org, 2) { ... refuse ... }
//	defer share.Give(org, 2)
//
// Whoever takes never holds more than what it leaves free. So an org alone gets half, two that take all they can a third each, and one
// that comes later finds something. Nobody has to say beforehand how many orgs there are.
//
// # Security invariants
//
//   - EQ-1: an org never holds more than it leaves free for others (TestOneLeavesAsMuchAsItTakes).
//   - EQ-2: an org that comes while others hold all that they can gets a share (TestLateComerGetsAShare).
//
// # Not here
//
// Waiting: who gets nothing is refused. What is divided: the caller counts what it takes.
//
// # Failure
//
// What is taken and never given back is lost to everybody: each Take has its Give.
package fair
