// Package access says who may use a tunnel, and keeps what is ours out of what is passed on.
//
//	gate, err := access.NewGate(keys)             // cookie keys: the first one signs
//	pass := gate.Check(r, record, secure)         // before anything is woken or dialled
//	access.Strip(r)                               // before it is forwarded
//	access.CleanSetCookie(header)                 // before an app's answer is
//
// A tunnel is public, or it has a token. The token comes as X-Portreeve-Token, as ?portreeve_token= (a browser is sent to the
// same URL without it, with a cookie), or as that cookie. The app's own Authorization and cookies are nobody's business here.
//
// Over TLS the cookie is __Host-portreeve-tunnel: a browser lets no other host set it. Tunnels of one machine also answer over
// plain HTTP, where not every client accepts that name; there it is portreeve-tunnel. The code in a cookie counts for one
// tunnel, one token, one epoch and one of the two.
//
// # Security invariants
//
//   - IA-1: without the token or a cookie made from it, a tunnel that isn't public is refused (TestPrivateTunnelWantsItsToken).
//   - IA-2: a cookie counts only for its own tunnel, host, token and epoch, until its end, and nobody makes one without the key (TestCookieCountsForOneTunnel, FuzzCookie).
//   - IA-3: nothing of ours is left in what Strip returns, in no spelling, and all else is left as it was (TestNothingOfOursIsForwarded).
//   - IA-4: with the cookie alone, another site can neither change anything nor open a WebSocket (TestOtherSitesCannotUseTheCookie).
//   - IA-5: an app can set no cookie of ours, and none beyond its own host (TestAppCannotSetOurCookies).
//   - IA-6: the redirect leads to the very host that was asked, whatever the path looks like (TestRedirectStaysOnTheHost).
//
// # Not here
//
// Whether the tunnel is still there (route). Answering: Check only says what to answer.
//
// # Failure
//
// Everything is decided from the record and the request; there is nothing to wait for. A Gate without a key does not exist.
package access
