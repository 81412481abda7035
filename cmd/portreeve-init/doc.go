// Command portreeve-init is process 1 of each sandbox: it starts every user process, reads and writes their files, opens their
// terminals and relays to their loopback, on behalf of a host that it dials.
//
//	portreeve-init        no flags, no files; must be process 1
//
// It runs as uid 0 with CAP_SETUID, CAP_SETGID and CAP_KILL only, so that no user process can signal, trace or replace it.
// It is static, uses the standard library only and stays small (TestInitStaysSmall). User processes run as uid and gid 1001, without groups or capabilities, each exec in a session of its own.
//
// Socket: /run/portreeve/init.sock, made by the host. It is redialled for ever, because a restore from a checkpoint
// comes back without connections; user processes live on meanwhile. The frames are those of nodes/guest/frame.
// Environment: PORTREEVE_ENV_X=v makes X=v a default of user processes. Log: a line per failure on stderr.
//
// # Security invariants
//
//   - GU-2: a user process has uid and gid 1001, no groups, no capabilities and no_new_privs, and can't signal init (TestUserProcessRights).
//   - GU-3: a file operation happens with the rights of uid 1001 (TestFilesHaveUserRights).
//   - GU-4: a file operation stays under /workspace or /tmp, whatever links are there (TestFilesStayInside).
//   - GU-10: a file operation never waits for or fills anything but a regular file (TestFilesRefuseSpecial).
//   - GU-5: what an exec started in its session ends when it times out or its caller cancels (TestCancelKillsSession, TestTimeout).
//
// # Not here
//
// The host believes nothing of what init says; nodes/guest checks each frame. Limits of memory and CPU are the host's cgroup.
// A folder that is deleted while somebody swaps links in below it may take files along that the user could delete too:
// all of it happens with the user's rights. A fork bomb is stopped by the host's pids limit: init only refuses a new exec above 512 processes.
//
// # Failure
//
// Host gone: redial with back-off up to a second. A stream that ends without Cancel leaves its process alone: a checkpoint or
// a restart of the host's side is no reason to end work; its output is read and dropped from then on.
package main
