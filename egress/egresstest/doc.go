// Package egresstest makes what tests of the way out share: an authority that signs for their servers, policies that they change, and a
// wire on which connections have the addresses that the kernel would give them. It is for tests alone.
//
//	policy := egresstest.NewPolicies(t, `{"id": "good", "action": "allow", "hosts": ["good.test"]}`)
//	server := &tls.Config{Certificates: []tls.Certificate{*ca.Leaf(t, "good.test")}}
//	nc := wire.Dial(t, sandbox, netip.AddrPortFrom(synthetic, 443))
//
// # Security invariants
//
// None of its own: sockets, handshakes and policies are real ones.
//
// # Not here
//
// Recorders and dialers: what they are asked for differs between the tests.
//
// # Failure
//
// What can't be made ends the test.
package egresstest
