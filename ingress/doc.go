// Package ingress brings outside bytes to sandboxes: it joins the front, the routes, access, waking and forwarding.
//
//	s, err := ingress.New(ingress.Config{Domain: "tunnel.localhost", CookieKeys: keys, Issuer: ca, Waker: w, Dialer: d, Log: log})
//	s.Routes().Replace(records) // as control says
//	err = s.Serve(ctx, tlsListener, plainListener)
//
// One request goes: strict front, route, access, wake, stream, forward. Each step may end it with an answer of our own, whose
// code stands in the header X-Portreeve-Code:
//
//	tunnel_not_found 404      tunnel_ended 410            routes_stale 503       token_required 401   foreign_origin 403
//	waking 503                wake_failed 503             waiting_room_full 503  asleep 503           too_many_requests 429
//	wake_budget_spent 429
//	port_closed 502           bad_app_answer 502          sandbox_unreachable 502
//
// A preflight never wakes and never needs a token, as browsers can't send one with it: on a tunnel with a token it gets 204 that
// allows nothing. Prefetches, favicon.ico and robots.txt don't wake either.
//
// # Security invariants
//
//   - IG-1: an unknown, ended or refused request wakes nothing and dials nothing (TestRefusedRequestsWakeAndDialNothing).
//   - IG-2: what is dialled is the record's sandbox, port and generation, whatever the client sends (TestOnlyTheRecordIsDialled).
//   - IG-3: a change of the route while a request is on its way to the app ends it (TestRouteIsLookedAtAgain, TestShortenedTunnelIsLookedAtAgain).
//   - IG-4: callers of a public tunnel wake no sandbox more often than its org lets them (TestAnonymousCallersHaveTheOrgsBudget).
//
// # Not here
//
// The store, the node and the API: gateway fills in Waker and Dialer and feeds the routes.
//
// # Failure
//
// With control gone, known tunnels go on and unknown hosts get 503. With inward gone, requests get 502 until it is back.
package ingress
