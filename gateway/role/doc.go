// Package role holds what the processes of one machine tell each other: start messages, and the bodies of the methods on
// their links.
//
// The package has types only; who may call what is registered by each role (gateway/agent, gateway/server).
//
// # Security invariants
//
// None of its own: the types hold no secret but the one-time values named in their comments.
//
// # Not here
//
// Framing and files: gateway/link.
//
// # Failure
//
// A message that doesn't decode strictly is refused by gateway/link.
package role
