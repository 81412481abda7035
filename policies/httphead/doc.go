// Package httphead is the strict front of HTTP/1: no byte of a request reaches net/http before its head was found unambiguous.
//
// Parse judges one whole head; ParseProxy and ReadProxy do so for requests to a forward proxy. Reader stands between a
// connection and http.Server: it lets heads through one by one, each after it was checked, follows the body's framing to find the next one, and so holds on connections that are kept alive
// and on pipelined requests. The bytes it passes on are the client's own, never rewritten.
//
// A head that is refused never reaches the server. In its place the server is given one request of our own with the method
// Refused, which no client can send, and then the end of the stream: so the handler answers (and records) the refusal in
// its turn, after the responses of the requests before it. A refusal inside a body is an error of that body instead.
//
// # Security invariants
//
//   - HH-1: a head that two parsers could read differently is refused: framing, Host, target, line ends, names, folding (TestAmbiguousHeadIsRefused).
//   - HH-2: each request on a connection is checked, also behind a body, also when sent ahead (TestEachPipelinedHeadIsChecked).
//   - HH-3: no more than MaxHead bytes or MaxLines lines of a head are held (TestHeadIsBounded).
//   - HH-4: a chunked body is exactly chunked: sizes without extensions, CRLF only, trailers that frame nothing (TestAmbiguousChunksAreRefused).
//   - HH-5: a request to a proxy names one destination, in one way, with its port where it is CONNECT; what comes behind its head is not parsed (TestProxyHeadNamesOneDestination).
//
// # Not here
//
// Whether the Host is the right one, which methods and paths are allowed: the one who serves compares, policies decides. Deadlines: OnHead tells when a head begins and ends.
//
// # Failure
//
// After a refusal the stream is over: nothing behind it is parsed.
package httphead
