// Package attach runs a command on this machine whose only way out is a socket of Portreeve's.
//
//	code, err := attach.Run(ctx, attach.Config{Socket: path, Argv: argv, ...})
//
// The command lives in a network namespace of its own that has nothing but lo. There a listener stands on lo, which this
// package made and serves from outside: each connection to it is copied to the socket, behind which the edge speaks HTTP proxy
// and SOCKS5. Variables tell the command's programs of it; whoever ignores them reaches nothing at all.
//
//	Run ── starts ──► Inner (new namespaces): lo up, /run covered, listeners made and handed to Run, rights dropped
//	                     └─ exec ──► the command
//
// # Security invariants
//
//   - AT-1: the command's namespace has no link but lo, and the command can't enter another: what it sends and no proxy takes goes nowhere (TestNothingLeavesButThroughTheSocket).
//   - AT-2: the command can't reach the machine's own services by sockets below /run or in the abstract namespace, such as a resolver that would ask for it (TestServicesOfTheMachineAreOutOfReach).
//   - AT-3: the command has no capability over anything but its own namespaces, and can gain none (TestCommandHasNoRights).
//   - AT-4: when Run ends, so does the command, whatever ended Run (TestCommandEndsWithItsRunner).
//
// # Not here
//
// Files and the kernel: the command has the files of its user, sees the machine's processes, and speaks to the machine's kernel. It
// is the network alone that is walled. A command of root's that is not to be trusted with the machine's files belongs into a
// sandbox of a node's. The sandbox in the store, its policy and its end: whoever calls Run.
//
// # Failure
//
// With the edge away connections are refused until it is there again. Where the machine lets nobody make namespaces, nothing is run.
package attach
