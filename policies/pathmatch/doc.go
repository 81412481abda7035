// Package pathmatch is the one form in which a request's path is judged and sent, and the patterns that judge it.
//
//	path, err := pathmatch.Canonical("/v1/%7euser/./x") // "/v1/~user/x"
//	p, err := pathmatch.Compile("/v1/*/x")
//	p.MatchAll(path) // true
//
// A path that servers read differently is refused and never repaired: empty segments, ";", backslashes, control
// characters, text that is not UTF-8, escapes of escapes, dot segments above the root. Dot segments below it are resolved.
// An encoded slash is let through, as npm and GitLab need it, and patterns read it both ways: an allow rule has to
// match in each, a deny rule in one. Escapes make no other difference to a pattern. Letters are compared as they are:
// a server that ignores their case needs deny rules in each spelling, or better, allow rules only.
//
// # Security invariants
//
//   - PM-1: no accepted path has a dot segment, an empty segment, a backslash or a parameter, in any reading (TestCanonicalOrRefused, FuzzCanonical).
//   - PM-2: an encoded slash carries a path neither past an allow rule nor around a deny rule (TestEncodedSlashIsReadBothWays).
//   - PM-3: no spelling by escapes, and no slash at the end, leads around a deny rule (TestSpellingMakesNoDifference).
//
// # Not here
//
// The query: the caller cuts it off before, at the first "?". Sending the canonical path instead of the one received: egress/proxy does it.
//
// # Failure
//
// Each refusal is ErrAmbiguous, which the proxy answers with 400.
package pathmatch
