// Package inward is the inward process: it lives inside the edge netns, speaks with the init of each sandbox, carries
// control's operations to it, and dials its ports for ingress.
//
//	err := inward.Run(ctx) // cmd/portreeve-edge inward
//
// # Security invariants
//
//   - IN-1: nothing of an init is read before the process is in its cage (TestBindIsRefusedOutsideTheCage).
//   - IN-2: an operation reaches only the sandbox that it names, and only while that is bound (TestOperationNeedsABoundSandbox).
//   - IN-3: a port is dialled only in a bound sandbox and only at the generation that the route names (TestDialNeedsTheGeneration).
//
// # Not here
//
// What init says is believed by nobody: nodes/guest decodes, checks and encodes anew each frame.
//
// # Failure
//
// With inward gone, operations end and sandboxes go on; their inits dial the next one.
package inward
