// Package frame is the wire format between portreeve-init and its host: frames, their caps and the messages inside.
//
// A frame is one byte of type, three bytes of length (big endian) and the payload. Control frames carry one JSON object,
// decoded strictly; Stdin, Stdout, Stderr and Data carry raw bytes. Every type has its own cap, never above MaxPayload.
//
// Both ends share this package, so it imports the standard library only and its lines count towards init's limit.
//
// Connections: init dials one main connection (Hello, then Open frames from the host), and for each Open a new one that begins
// with Stream. Then the host sends one operation and both sides follow its order of frames:
//
//	OpExec    Started, then Stdout|Stderr|Credit and Stdin|StdinClose|Resize|Signal|Cancel, then Exit
//	OpRead    Info, Data..., End
//	OpWrite   Ready, then Data..., End from the host, then Info
//	OpList    Entries..., End
//	OpStat    Info
//	OpDelete  End
//	OpRelay   Ready, then no more frames: raw bytes both ways
//	OpPing    Pong
//
// An Error may take the place of any frame of init's and is the last one.
//
// # Security invariants
//
//   - GU-1: a reader never allocates more for one frame than the cap of its type, and refuses an unknown type or a longer frame before it allocates (TestReaderRefusesBeforeAllocating).
//
// # Not here
//
// The order of frames is checked in nodes/guest for the host and in portreeve-init for the sandbox.
//
// # Failure
//
// A frame that can't be read leaves its connection unusable: close it.
package frame
