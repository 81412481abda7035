// Package explicit is the HTTP proxy for attached sandboxes: CONNECT, and requests in absolute form.
//
//	s, err := explicit.New(explicit.Config{Proxy: proxy})
//	go s.Run(ctx)
//	s.ServeConn(ctx, conn, keeper) // TLS, if any, was ended before
//
// The first head of a connection is read here (httphead.ReadProxy), as net/http drops the Host of a CONNECT and goproxy takes
// what it gives. What can be read in one way only is replayed to goproxy, alone: what came behind it waits, so that nothing
// is ever parsed as a second request. The credential is checked, once for both forms, and goproxy says which form it is. Its
// answer is always to give the connection away, to proxy.ServeDoor: CONNECT with its authority as the destination, the
// absolute form with its head read again, by the server that serves clear HTTP of the transparent path.
//
// Of goproxy nothing else is used. It would accept every CONNECT, dial for itself, take a proxy from the environment and sign
// with a key that everybody has: the last CONNECT handler rejects, its transport and both dials fail, and none of its ready
// actions, authorities or signers is named.
//
// # Security invariants
//
//   - EX-1: a head that could be read in two ways never reaches goproxy: it is answered and the connection closed (TestAmbiguousHeadIsRefusedBeforeGoproxy).
//   - EX-2: nothing goes further without a credential, CONNECT no more than the absolute form (TestCredentialIsNeeded).
//   - EX-3: what goproxy is not told to give away it rejects, and it can dial nothing (TestGoproxyAloneReachesNothing).
//   - EX-4: what comes behind a head is never parsed as another (TestNothingBehindARefusalIsParsed, TestConnectIsGivenAway).
//   - EX-5: a head has a deadline and a size, and a connection that waits for one holds nothing else (TestSilentConnectionIsClosed).
//   - EX-6: each request in absolute form shows the credential of the one who opened the connection (TestEachRequestShowsTheCredential).
//   - EX-7: a connection is its caller's to count until it is known whose it is (TestStrangerIsCountedUntilItIsKnown).
//   - EX-9: a wrong password is answered alike whether or not its sandbox is there, before anything is recorded (TestWrongPasswordTellsNothing).
//   - EX-8: a refused head is recorded for whoever showed a credential in it (TestRefusedHeadIsRecordedForWhoeverSentIt).
//
// # Not here
//
// Verdicts, records, dials: egress/proxy. Whose a credential is: egress/credentials. TLS and listeners: whoever calls ServeConn.
//
// # Failure
//
// With the proxy shutting down connections are closed. A refusal without a credential that holds is in no sandbox's decisions; it is
// counted (Refused).
package explicit
