// Package front is the outermost part of ingress: it accepts connections, ends TLS, reads HTTP strictly and shapes what we
// answer ourselves.
//
//	f, err := front.New(front.Config{Zone: zone, Certificate: certs.Get, Handler: handler})
//	err := f.Serve(ctx, tlsListener, plainListener)
//
// HTTP/1 is checked by policies/httphead before net/http sees it, HTTP/2 right after. What reaches the Handler has one host, in
// normal form, inside the tunnel zone and, over TLS, the very name that the connection was opened for. So no request for a
// tunnel is ever served as anything else, and nothing else as a tunnel.
//
// Answers of our own are made for who asks: a small page for a browser's address bar, a problem (RFC 9457) for programs, a
// status of its own for gRPC. They are never cached, never framed, and hold nothing of what the client sent.
//
// # Security invariants
//
//   - IF-1: a request that two parsers could read differently reaches nobody, over HTTP/1 and HTTP/2 (TestAmbiguousRequestsReachNobody).
//   - IF-2: over TLS a request is served only under the name that the connection was opened for (TestHostMustBeTheConnectionsName).
//   - IF-3: a host outside the tunnel zone is misdirected, whatever it is (TestOtherHostsAreMisdirected).
//   - IF-4: a hello, a head and an idle connection each end at a deadline (TestSlowClientsAreCutOff).
//   - IF-5: there are no more connections than allowed (TestConnectionsAreBounded).
//   - IF-6: answers of our own are not cached, not framed, run no script, and repeat nothing of the request (TestOwnAnswersAreInert).
//
// # Not here
//
// Which tunnels there are and who may use them: the Handler.
//
// # Failure
//
// A listener that fails ends Serve. When ctx ends, requests get a few seconds, then their connections are closed.
package front
