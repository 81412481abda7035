// Package cage is what a process that reads hostile bytes locks itself into once it has what it needs.
//
//	report, err := cage.Enter(cage.Config{Role: cage.Edge, ReadWrite: []string{spool}})
//	err = report.SelfCheck()                    // tries what must fail
//	log.Info("caged", "report", report)
//
// Order: Landlock (files, no TCP bind, signals and abstract sockets stay inside), not dumpable, no core files, and
// last a seccomp filter on all threads whose default is to kill the process. There is no way out again.
//
// Two roles. Edge serves sockets that it was handed, dials TCP and UDP, keeps a SQLite database in its one writable
// directory and passes descriptors over unix sockets. Inward dials TCP and unix sockets and has no files at all.
//
// What no longer works inside, so do it before: reading CA bundles, time zones, /etc/resolv.conf and /etc/hosts
// (Go's resolver then asks ::1: resolver addresses come as configuration), net.Interfaces and zones of link-local
// addresses (a netlink socket kills), os/exec. SQLite needs "temp_store=memory", as it has no directory for more.
//
// # Security invariants
//
//   - CG-1: a system call outside of the role's list ends the process (TestForbiddenCallsKill).
//   - CG-2: of files only the given directories are reachable (TestOnlyGivenFilesAreReachable).
//   - CG-3: without Landlock nothing is caged and Enter fails, unless told otherwise by a name that shouts (TestRefusesWithoutLandlock).
//   - CG-4: a process with capabilities, or root, is refused (TestRefusesPrivileges).
//   - CG-5: the filter holds on every thread (TestEveryThreadIsCaged).
//   - CG-6: no new listening socket, of any family (TestForbiddenCallsKill, TestEdgeDoesItsWork).
//
// # Not here
//
// Uid, groups, capabilities, namespace: spawn drops them before the program runs. Which addresses may be dialled:
// this Landlock knows ports only, and no UDP, so the host's wall (egress/kernel) and the dialer's floor hold that.
//
// # Failure
//
// Enter fails half way only before the process began its work: end the process. A library that one day makes a call
// which isn't listed ends it too; the kernel's log names the call (audit type 1326).
package cage
