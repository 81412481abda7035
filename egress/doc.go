// Package egress lets inside bytes out when a decision says so: proxy, DNS, nftables.
//
// The package itself holds what its parts share: who a connection belongs to.
// The work is in the folders below: kernel, resolver, proxy, explicit, socks, credentials, dial, flows, decisions.
//
// # Security invariants
//
//   - EG-1: an address belongs to at most one sandbox incarnation at a time; an unknown address belongs to none (TestUnknownAddressHasNoBinding).
//   - EG-2: an attached sandbox is nobody once its end has come, also if nothing else says so (TestAttachedEnds).
//   - EG-3: no step of the machine's clock makes a busy flow idle, or an idle one busy (TestIdleGoesByNoSetClock).
//
// # Not here
//
// Verdicts: policies decides them. Addresses and links: nodes/netns makes them.
//
// # Failure
//
// A table that lost its node keeps its bindings: the sandboxes behind them go on under the last policy while it is fresh.
package egress
