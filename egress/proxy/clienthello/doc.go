// Package clienthello reads a TLS client's first message without answering it: which name it asks for, and whether it hides another.
//
// Read takes the message from a connection, over as many TCP segments and TLS records as the client chose, and returns
// every byte it took so that they can be replayed to an upstream. Parse does the same on bytes in memory.
//
// Encrypted ClientHello: GREASE ECH and a real one are made to look alike (RFC 9849, section 6.2), and nobody without the
// server's key can tell them apart. So Hello says only that the extension is there; what to do about it is the caller's rule.
//
// # Security invariants
//
//   - CH-1: a name is returned only if the whole message is well formed and says it once; a repeated extension or a second name is refused (TestAmbiguousHelloIsRefused).
//   - CH-2: no more than MaxSize bytes of a client are held, whatever lengths it announces (TestHelloIsBounded).
//
// # Not here
//
// Deadlines: the caller sets them on its connection. The normal form of a name: policies/hostname. Verdicts: policies.
//
// # Failure
//
// Each failure is an error beside the bytes read so far; nothing is ever guessed.
package clienthello
