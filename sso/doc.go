// Package sso turns a browser login or a key into a principal.
//
// Today it knows API keys. A key reads prk_<id>_<secret>: the id finds the row, the secret ends in a checksum so that a
// typing error or a scanner's guess is told apart without the store, and only a SHA-256 of the whole text is kept.
//
//	secret, key, err := sso.NewKey()             // secret is shown once, key.Hash is stored
//	text, err := sso.FromHeader(r.Header)        // what the client presented
//	parsed, err := sso.ParseKey(text.Reveal())   // its id, to find the row by
//	ok := parsed.Matches(row.Hash)               // constant time
//
// # Security invariants
//
//   - SS-1: a key whose hash differs from the stored one matches nothing, and an empty stored hash matches nobody (TestOnlyTheWholeKeyMatches).
//   - SS-2: the text of a key comes out of Reveal and nothing else: not out of fmt, slog, JSON or text marshalling (TestSecretNeverPrints).
//   - SS-3: the zero principal is nobody and holds no scope (TestZeroPrincipalIsNobody).
//   - SS-4: a request that presents two credentials is refused, whichever of them is good (TestTwoCredentialsAreRefused).
//   - SS-5: a sandbox holds no scope, whatever it is given (TestSandboxHoldsNoScope).
//   - SS-6: what an org's owner may do does not hold what the platform may (TestPlatformIsAboveTheOrgs).
//
// # Not here
//
// Looking a key up, its expiry and its revocation: the caller holds the rows. Browser logins come later.
//
// # Failure
//
// Nothing here waits for anything. A missing random source is a panic of crypto/rand, as everywhere in Go.
package sso
