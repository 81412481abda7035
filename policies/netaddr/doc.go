// Package netaddr is the normal form of addresses and ranges, as policies judge them.
//
// Canonical takes an IPv4 address out of ::ffff:0:0/96; Embed finds those that the transition mechanisms carry
// (NAT64, 6to4, Teredo, IPv4-compatible), so that a forbidden address stays forbidden in each disguise.
//
// # Security invariants
//
//   - NA-1: an IPv4 address written inside IPv6 is judged as the IPv4 address (TestCanonicalTakesIPv4Out).
//   - NA-2: the IPv4 address that a transition address leads to is found (TestEmbedFindsIPv4).
//
// # Not here
//
// Which ranges are closed: the floor in policies. Host names and odd spellings of addresses: policies/hostname.
//
// # Failure
//
// Nothing here can fail but parsing; a prefix that can't be read in one way is an error, never a guess.
package netaddr
