// Package kernel writes the packet rules: one constant table in the edge netns, and the wall around the edge
// process on the host. It speaks netlink and starts no process.
//
//	err := kernel.WriteEdgeTable(ns, kernel.EdgeOptions{KeepBound: adopting})
//	bound := kernel.NewBound(ns)                    // fits the Firewall that nodes asks for
//	err = bound.Add(ctx, "pr4kx0...", addr)         // from here on this link may carry packets of this address
//	err = kernel.WriteWall(kernel.CurrentNetns, kernel.Wall{Table: "portreeve_1a2b3c", UID: edgeUID, Extra: sandboxRanges})
//
// The table has the same rules for any number of sandboxes; who may send is an element of the set bound. It tracks
// no connection. Chains, in the order in which a packet of a sandbox meets them:
//
//	guard     before defragmentation: only IPv4, only from a bound (link, address), no fragment; other UDP is refused
//	steer     replies to inward dials pass, the rest goes by a budget per link to the listeners
//	proxy     TCP to the listeners by tproxy, refused at once when nobody listens
//	input     only what steer marked
//	forward   nothing
//	output    nothing to lo; TCP, DNS answers and our own refusals
//	discard, refuse   count per link, then drop or reject
//
// Verdicts stand in chains of their own, behind a goto: a write into a full set breaks its rule off, so a verdict in
// the same rule would be skipped. For the same reason a budget goes on only while its element could be written and is
// under its rate. A full set refuses.
//
// # Security invariants
//
//   - EK-1: a packet whose (link, source address) is not in the bound set reaches nothing (TestUnboundSourceReachesNothing).
//   - EK-2: no fragment is collected or delivered (TestFragmentsAreDropped).
//   - EK-3: a full set refuses, it never opens (TestFullSetsRefuse).
//   - EK-4: TCP to any address ends at the proxy's listener, and is refused at once when there is none (TestTCPEndsAtTheProxy, TestDeadListenerRefusesAtOnce).
//   - EK-5: UDP other than to port 53 is refused at once, and nothing but TCP and UDP is answered (TestOtherUDPIsRefusedAtOnce, TestOtherProtocolsAreDropped).
//   - EK-6: replies to inward dials reach the dialer, also when it closed first (TestInwardCloseIsNotReset).
//   - EK-7: nothing in the table tracks connections, and none is tracked (TestNothingIsTracked).
//   - EK-8: what was written is read back and compared; a difference or a foreign table is an error (TestCheckNamesWhatDiffers).
//   - EK-9: the edge's uid reaches no local address, no hard range of the floor and no extra range; nobody else is touched (TestWallStopsOneUID).
//   - EK-11: from the ports of doors the edge's uid may answer whoever called, on lo too, and begin nothing (TestWallLetsDoorsAnswer).
//   - EK-12: with a wall that says so the edge's uid reaches what it names, by address, port and protocol, and nothing else (TestWallReachesWhatItNamesOnly).
//   - EK-10: a process inside the edge netns cannot reach the listeners there (TestInwardCannotReachTheListeners).
//
// # Not here
//
// Links, addresses and listening sockets: nodes/netns. Whether an original destination is allowed: the dialer asks
// policies; what arrives at the listener may name any address at all. The wall matches the uid that made the socket:
// never hand the edge a socket of the host netns that can still connect.
//
// # Failure
//
// Rules are replaced in one step or not at all. With the table gone nothing is forwarded, as the netns has no uplink
// and the listeners are bound to 127.0.0.1; with the listeners gone the table refuses.
package kernel
