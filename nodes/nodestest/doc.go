// Package nodestest has fakes of everything that a node drives. They share one World, which knows what exists, fails where a
// test asks, and notes each step that would be unsafe. It is for tests alone.
//
// # Security invariants
//
// None of its own: it is where those of package nodes are watched.
//
// # Not here
//
// gVisor, the network and the kernel: the real tests of package nodes use those.
//
// # Failure
//
// Set World.Fault to "<method>:before" or "<method>:after" and that method fails with ErrFault, before or after its effect.
package nodestest
