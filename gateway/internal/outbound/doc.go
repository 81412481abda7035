// Package outbound makes the dialer of a process as the configuration says it.
//
//	roots, err := outbound.Roots(start.SystemRoots, start.UpstreamCA)
//	dialer, err := outbound.New(start.UpstreamDNS, start.Upstream, roots, now)
//
// # Security invariants
//
// None of its own: egress/dial has them. Edge and control go out in one way, as both are made here.
//
// # Not here
//
// The floor, which the dialer is given later, and the ways of orgs.
//
// # Failure
//
// Nothing is looked up or connected to here. What can't be meant is an error that names the field of the configuration.
package outbound
