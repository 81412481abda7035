// Package forward carries one request to the app in a sandbox and its answer back.
//
//	f, err := forward.New(forward.Config{Dialer: d})
//	err := f.Forward(w, r, forward.Hop{Record: record, Generation: generation, ...})
//	f.Retire(tunnel, generation) // idle connections to an older generation
//
// It speaks HTTP/1.1 to the app over connections that the Dialer makes to the sandbox of the record and nowhere else, kept for
// a few seconds per tunnel and generation. The app sees itself as localhost, unless the tunnel says otherwise; paths and
// queries arrive byte for byte; event streams and everything without a length are passed on as they come. The framing
// is ours on both sides: nothing of it is copied.
//
// # Security invariants
//
//   - IH-1: the app gets no header that claims to be ours or a proxy's, in any spelling, but those that we wrote (TestForwardedHeadersAreOurs, FuzzReserved).
//   - IH-2: hop-by-hop fields, and what Connection names, end here in both directions, in early hints too; WebSocket is the only upgrade (TestHopByHopEndsHere, TestOnlyWebSocketIsAnUpgrade).
//   - IH-3: a connection is used again only for the tunnel and the generation it was made for (TestConnectionsBelongToOneGeneration).
//   - IH-4: a request is sent twice only when the app can't have seen it, or when it is one that may be repeated (TestNothingIsSentTwice).
//   - IH-5: a request chooses neither where it goes, which is the Dialer's to say from the record, nor whom the app is asked as (TestRequestChoosesNoAddress).
//   - IH-6: an answer of the app can't claim to be ours, set cookies of ours or beyond its host, or point elsewhere by Alt-Svc (TestAnswersClaimNothing).
//
// # Not here
//
// Access, waking, and what answers an error: Forward returns one as long as nothing was answered.
//
// # Failure
//
// With nobody there to dial, each request fails with the Dialer's error. A client that leaves, or a stream that is ended, ends the exchange at once.
package forward
