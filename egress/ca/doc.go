// Package ca signs the certificates under which opened TLS is shown to a sandbox.
//
// Each org has a Root, whose key control keeps sealed. An edge makes a key of its own and has control sign an intermediate
// for it, for Lifetime; from that an Issuer signs a leaf for each name, on demand:
//
//	root, err := ca.NewRoot("Example org", from, now)       // control, once per org
//	chain, err := root.Intermediate(publicKey, from, now)   // control, for an edge
//	leaf, err := issuer.Leaf(ctx, org, "api.example.com")   // edge, per connection
//
// Each certificate below a root names the list of those that its signer took back, at portreeve.internal: some clients, Schannel
// first of all, refuse a certificate that names none. The root's list is control's, and an edge signs its intermediate's.
//
// # Security invariants
//
//   - CA-1: a leaf names exactly one host (TestLeafNamesOneHost).
//   - CA-2: two orgs share no key and no certificate, and neither is trusted by the other's root (TestOrgsDoNotCross).
//   - CA-3: an intermediate can't sign another one and ends within Lifetime (TestIntermediateIsShortAndLast).
//   - CA-4: each leaf has a key and a serial of its own, drawn at random (TestKeysAndSerialsAreFresh).
//   - CA-5: once an org's authority has another mark, no intermediate got under the one before signs a leaf (TestMarkEndsAnIntermediate).
//   - CA-6: a list of revoked certificates is signed by nobody but the key that signed the certificates (TestListIsItsSignersOwn).
//   - CA-7: many callers for one leaf are one signature, also the caller that comes as a flight ends (TestFlightThatEndedIsSeen).
//   - CA-9: an end comes by a clock that is not set back, and what has not begun for those to whom it is shown is replaced (TestSetClockGetsAnother).
//   - CA-8: the same for an intermediate (TestFlightThatEndedIsSeen).
//
// # Not here
//
// Which names are opened: policies decides that before a leaf is asked for. Which root signs and which are trusted:
// gateway/authorities. Clients that never ask for a list, most of them, trust a revoked intermediate until it ends; what ends
// it for all is its mark.
//
// # Failure
//
// With control gone, leaves are signed until the intermediate ends; then Leaf fails and the connection is refused.
package ca
