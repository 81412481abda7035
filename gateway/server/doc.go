// Package server is the gateway's two processes: control, which holds the store and answers the API, and ingress, which
// meets the internet.
//
//	err := server.Control(ctx) // portreeve control
//	err := server.Ingress(ctx) // portreeve ingress
//
// # Security invariants
//
//   - GS-1: what an edge ships as a decision is stored only under the org that the sandbox has (TestShippedDecisionOfAnotherOrgIsDropped).
//   - GS-2: the store is made only where there is none (TestStoreIsNotMadeTwice).
//   - GS-3: ingress answers on no name that is not a tunnel's (TestUnknownNamesGetNothing).
//
// # Not here
//
// Routes and their rules: gateway/api. What runs: the node.
//
// # Failure
//
// With the node or inward gone, commands fail with "unavailable" and the API goes on. With control gone, edges go on for
// feed.FreshFor, and sandboxes end at their deadline by the node's own clock.
package server
