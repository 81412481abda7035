// Package nodes runs gVisor sandboxes on one machine.
//
//	node, err := nodes.New(nodes.Config{StateDir: dir, Instance: nodes.InstanceOf(dir), Init: bin, Driver: cli, Network: ..., ...})
//	err = node.Purge(ctx)                        // dev: begin with nothing; serve calls node.Adopt(ctx) instead
//	placement, err := node.Create(ctx, nodes.Spec{Sandbox: "sbx_…", Org: "org_…", Image: "tiny", ...})
//	err = node.Pause(ctx, "sbx_…")
//	placement, err = node.Resume(ctx, "sbx_…", minRevision)
//	err = node.Delete(ctx, "sbx_…")
//
// Everything that it drives is an interface declared here (parts.go), filled in by whoever composes the node. What it knows of
// a sandbox is in a file before anything of it runs: <state>/node/sandboxes/<container id>/record.json.
//
//	          Create                 Pause
//	(nothing) ─────► creating ► running ◄──► paused
//	                    │          │ Delete, exit, expiry │
//	                    └──────────┴──► deleting ► (nothing)
//
// # Security invariants
//
//   - ND-1: a sandbox's binding is acknowledged and its firewall element is set before its link is up and its first process runs (TestRulesStandBeforeTheFirstProcess).
//   - ND-2: a create that fails at any step leaves no container, link, binding, element, control group, mount or file (TestFailedCreateLeavesNothing, TestRealFailedCreateLeavesNothing).
//   - ND-3: at delete the firewall element goes first, and the address is given back only when binding, element and container are gone (TestDeleteOrder, TestAddressIsKeptWhileBound).
//   - ND-4: after a restart a sandbox is taken over only if its process is the recorded one, by id and start time; every other one is removed (TestAdoptKeepsTheLivingOnly).
//   - ND-5: a sandbox does not run past its deadline, nor when the node restarts after it (TestExpiry, TestAdoptRemovesTheExpired).
//   - ND-6: the listener of a sandbox's init lies in a directory that only root enters, and the node keeps no copy of it (TestNodeKeepsNoListener).
//   - ND-7: a sandbox whose limits are not in the kernel is not started (TestUnconfirmedLimitsStopCreate).
//   - ND-8: a file by which a sandbox knows whom to trust is never written again nor removed while it lives: a newer one stands beside it (TestTrustIsReplacedByTheSide).
//
// # Not here
//
// The init's protocol (nodes/guest), links and addresses (nodes/netns), packet rules, leases, and checkpoints. Nothing here
// reads a byte that a sandbox wrote.
//
// # Failure
//
// A removal that could not be finished keeps its record as "deleting"; Delete, Adopt and Purge try again. If the process is
// gone the sandboxes go on; Adopt finds them.
package nodes
