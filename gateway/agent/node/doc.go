// Package node is the node process: it joins the lifecycle of sandboxes with links, rules and images, and tells edge and
// inward whose an address is.
//
//	err := node.Run(ctx) // cmd/portreeve-node
//
// It runs as root with the capabilities that this takes, and reads typed messages of its siblings only.
//
// # Security invariants
//
//   - AN-1: a sandbox starts only after edge and inward have both acknowledged its address (TestBindNeedsBoth).
//   - AN-2: sockets of the edge netns are handed on and never kept (TestSocketsAreNotKept).
//   - AN-3: edge can only tell the node a name that one of its sandboxes can have, ingress only ask that one runs, inward nothing (TestSiblingsAskForNothing, TestNamesOfTheEdgeAreBounded).
//   - AN-4: however many callers of a tunnel come at once, a paused sandbox is resumed once, as one generation, and control is told once (TestManyCallersWakeOnce).
//
// # Not here
//
// What is decided about a packet: egress/kernel's constant table and the edge.
//
// # Failure
//
// With the node gone, sandboxes and the edge go on, with the names that they have. The next node adopts the sandboxes and asks
// the edge for its names. An edge or inward that does not answer is told again until it does, or is gone.
package node
