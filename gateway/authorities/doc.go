// Package authorities keeps each org's certificate authority: which root signs, which are trusted, and what was taken back.
//
//	s, err := authorities.New(authorities.Config{Store: st, Keyring: ring, Node: node, Publish: feed.Publish})
//	pem, err := s.Trust(ctx, org)                    // what sandboxes trust; the first call makes the first root
//	chain, err := s.Sign(ctx, org, key)              // an intermediate for an edge's own key
//	view, err := s.Rotate(ctx, by, 24*time.Hour)     // a new root, trusted at once, signing later
//	err = s.Revoke(ctx, by, serial)                  // an intermediate: on the list, and edges ask for another
//	list, err := s.List(ctx, org, id)                // of what a root took back, in DER
//	err = s.Step(ctx)                                // each second: what is due, and sandboxes that don't know yet
//
// A rotation overlaps, so that no program in a sandbox meets a signer that it does not trust:
//
//	Rotate ─► next: every sandbox trusts both roots, the old one signs
//	             │ no sandbox is left that was made before, or the wait is over
//	             ▼
//	          signing: the new one signs, the old one is leaving
//	             │ ca.Lifetime later: nothing that it signed is good any more
//	             ▼
//	          the old one is retired: nobody trusts it, and its key is gone
//
// A sandbox that runs when Rotate is called gets both roots within seconds, for the programs that it starts from then on. Those
// that run already have read the old one alone, and nobody can tell when the last of them ends but by the sandbox's own end: hence
// the wait. A rotation without a wait is for a root that can't be trusted any more: the new one signs at once, and all others
// are retired.
//
// # Security invariants
//
//   - OA-1: a new root signs only once every living sandbox was made under it, or the wait is over (TestNewRootWaitsForTheOld).
//   - OA-2: what a retired root signed is trusted by no sandbox, and its key is in no store (TestRetiredRootIsGone).
//   - OA-3: an intermediate that no record could be written of is not handed out (TestUnrecordedIntermediateIsNotSigned).
//   - OA-4: one org's list, root or intermediate is not there for another (TestOrgsAuthoritiesDoNotMeet).
//   - OA-5: an org's first root is made once, and the sealed key of a root opens for its org and version only (TestFirstRootIsMadeOnce, TestSealedKeyOpensOnlyForItsOrg).
//
// # Not here
//
// Certificates themselves: egress/ca. The files in sandboxes: nodes. Who may rotate: gateway/api.
//
// # Failure
//
// With the store gone nothing is signed, and what is due is done when it is back. A node that is away is told when it is there
// again. Until then its sandboxes trust what they did.
package authorities
