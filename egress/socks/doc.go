// Package socks is the SOCKS5 door for attached sandboxes (RFC 1928, RFC 1929): CONNECT to a name, with user name and password.
//
//	socks.Serve(ctx, conn, keeper, socks.Config{Proxy: proxy}) // TLS, if any, was ended before
//
// What is spoken is as little as it takes: one method, one command, one kind of address. A name goes through the same normal
// form as everywhere; an address is refused, as the name that it stands for was looked up by somebody else.
//
// # Security invariants
//
//   - SO-1: nothing goes further without a credential where one is needed (TestCredentialIsNeeded).
//   - SO-2: only names are let through, in their normal form: no address, no NUL, no other spelling of either (TestOnlyNamesPass).
//   - SO-3: of the client's bytes not one more is read than the messages have (TestReadsNoByteTooMany).
//   - SO-4: the whole exchange has one deadline (TestSilentClientIsClosed).
//
// # Not here
//
// Verdicts, records, dials, and everything after the reply: egress/proxy. Whose a credential is: egress/credentials. BIND and UDP
// ASSOCIATE: nobody has them.
//
// # Failure
//
// A client that breaks the protocol is closed without an answer where there is none in the protocol. If it is known whose
// it is, that is recorded.
package socks
