// Package cgroup keeps the control groups of one instance: it makes their parent, reads limits back,
// tells an out-of-memory kill, and removes what is left over. It knows version 2 and version 1 (also
// the mixed form) by their files alone.
//
//	tree, err := cgroup.Open("ab12cd")      // parent name portreeve-ab12cd
//	err = tree.Prepare()                    // mounts in a bare namespace, parent, controllers
//	path := tree.Path(id)                   // for the OCI spec's cgroupsPath; runsc makes this one
//	err = tree.Confirm(id, limits)          // the limits are really there
//	n, err := tree.OOMKills(id)             // before the group goes
//	err = tree.Remove(ctx, id)
//
// # Security invariants
//
//   - NC-1: a sandbox whose memory or process limit is not in the kernel is refused (TestConfirmRefusesAMissingLimit).
//   - NC-2: hierarchies are mounted only into an empty /sys/fs/cgroup of a private mount namespace, never over or into the host's, whose options stay as they are (TestEnsureMountedLeavesASharedNamespaceAlone, TestPlan).
//   - NC-3: only groups directly below this instance's parent are listed, emptied or removed (TestNamesCannotLeaveTheParent).
//
// # Not here
//
// Writing the limits: runsc does that from the OCI spec, in a group that it makes itself. (On version 2 it
// writes no limits into a group that exists already, so nobody else may make it.)
//
// # Failure
//
// A group that still has processes after they were killed is an error that names it; the caller keeps its
// record and may try again.
package cgroup
