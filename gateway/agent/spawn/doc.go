// Package spawn starts a process with less than its parent has: another uid, no groups, a bounded set of
// capabilities, no_new_privs, a session of its own and, if asked, another network namespace.
//
//	cmd := exec.Command(path, args...)
//	cmd.Env, cmd.ExtraFiles = []string{}, files
//	err := spawn.Start(cmd, spawn.Rights{UID: uid, GID: uid, Netns: edge})
//
// # Security invariants
//
//   - SP-1: an unprivileged child has no capability in any set, no group, and can gain none (TestChildHasNothing).
//   - SP-2: a child gets the descriptors that it is given and no other, also none that the parent itself inherited (TestInheritedDescriptorsStay).
//   - SP-3: a privileged child has the capabilities it is given and no other (TestRootKeepsOnlyWhatItIsGiven).
//
// # Not here
//
// The cage: a process enters it itself, when it has what it needs. There is no parent death signal, as it would
// follow the thread that started the child, which ends at once: a child ends when its socket to the parent closes.
//
// # Failure
//
// A right that cannot be dropped fails the start: nothing runs with more than was asked.
package spawn
