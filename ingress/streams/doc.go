// Package streams knows what is open through each tunnel, and ends it when the tunnel, its access or its sandbox's generation ends.
//
//	stream, err := index.Open(record, generation, end)        // one request, or one WebSocket
//	defer stream.Close()
//	index.Changed(record)                                     // from the route table
//	streams.Carry(stream, client, app)                        // an accepted WebSocket
//
// A WebSocket is told why. Between two frames of the app a close frame is put in, then the connection is shut: 1001 when
// the tunnel expired or was deleted ("tunnel expired", "tunnel deleted") or we stop, 1008 when access was revoked, 1012 when
// the sandbox pauses or its generation is over. A client whose app stays in the middle of a frame, or that reads nothing, is cut off.
//
// # Security invariants
//
//   - IS-1: when a tunnel expires, what is open through it ends, without word from control (TestStreamsEndOnExpiry).
//   - IS-2: what was admitted under an older epoch, or before the tunnel lost its public access, ends when that changes (TestStreamsEndOnEpoch).
//   - IS-3: what runs to a generation that is over ends, and what runs to the present one does not (TestStreamsEndWithTheirGeneration).
//   - IS-4: the close frame stands between two frames, never within one, and only one is sent (TestCloseFrameStandsBetweenFrames).
//   - IS-5: one tunnel has at most Limit streams (TestStreamsAreBounded).
//
// # Not here
//
// Idle connections to apps (forward), and those of clients, which belong to no tunnel (front).
//
// # Failure
//
// Nothing here waits for anybody: an end is a function that returns at once.
package streams
