// Package netns makes the network of one node by netlink: the edge netns, one netns and one link per sandbox, and
// the address pairs that they carry. It starts no process.
//
//	edge, created, err := netns.OpenEdge("portreeve-1a2b3c")     // made, or adopted after a restart
//	addr, err := pool.Reserve()                                  // the odd half of a /31 pair
//	pair, err := edge.Pair(ctx, "pr1a2b3c-x7k2", addr)           // netns, link, addresses; the edge's end is down
//	... bind pair.Interface to pair.Sandbox in the firewall ...
//	err = pair.Up(ctx)                                           // from here on packets flow
//	err = pair.Readdress(ctx)                                    // before each start and restore: runsc takes eth0's address
//	socks, err := edge.Sockets()                                 // to be handed to the edge process
//
// # Security invariants
//
//   - NN-1: the edge netns forwards nothing: ip_forward is 0 and was read back after it was written (TestEdgeNeverForwards).
//   - NN-2: the edge netns has no uplink: anything but lo and veth ends, and any default route, is named by Check (TestCheckNamesEachViolation).
//   - NN-3: the sandbox's link carries nothing before Up (TestNothingPassesBeforeUp).
//   - NN-4: an address pair is given to the next sandbox no sooner than its quarantine after its release (TestReleasedPairWaitsOutItsQuarantine, TestQuarantineOfAClockAheadEnds).
//   - NN-5: the listening sockets are bound to 127.0.0.1, so that without rules nothing of a sandbox reaches them (TestSocketsAreOutOfReachWithoutRules).
//   - NN-6: IPv6 is off on the edge's links from their first moment (TestEdgeLinksHaveNoIPv6).
//
// # Not here
//
// Packet rules: egress/kernel writes them, nodes asks for them by its Firewall. ARP is not filtered anywhere: arp_ignore
// keeps one sandbox from asking which other pairs exist, and the neighbour table is the kernel's.
//
// # Failure
//
// A namespace is mounted only when it is complete, so one that is found after a crash is whole. A pair that could not
// be made is removed again. Everything outlives the process: List finds it, Adopt takes it over, Remove ends it.
package netns
