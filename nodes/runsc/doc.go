// Package runsc speaks to gVisor: it builds the OCI spec of a sandbox and runs the runsc program.
//
//	cli, err := runsc.New(runsc.Config{Binary: bin, Root: run, Upper: upper})
//	spec, err := runsc.Spec(box)            // pure: everything in it comes from box
//	err = runsc.WriteBundle(dir, spec)
//	pid, err := cli.Create(ctx, runsc.Create{ID: runsc.NewID(), Bundle: dir, ...})
//	err = cli.Start(ctx, id)
//
// The root of a sandbox is its image, read-only. /workspace is an empty directory of its own under an overlay whose
// upper layer is one unlinked file in Upper, so its size is limited, its bytes are no memory, and nothing is left when
// the sandbox ends. /tmp and /dev/shm are limited tmpfs.
//
// # Security invariants
//
//   - NR-1: each command is an argument list that starts with the flags of the recipe and never has one that opens the sandbox (TestArgvHasNoForbiddenFlag).
//   - NR-2: a container is named by a fixed-length random id, so that runsc's prefix matching can't hit another (TestOnlyFullIDsAreAccepted).
//   - NR-3: the spec is built from its arguments alone; the root is read-only, process 1 has four capabilities and no new privileges, there are no annotations (TestSpecIsClosed).
//   - NR-4: the only host directories a sandbox sees are its image, the init program and its control directory, all read-only, and its own empty workspace (TestSpecIsClosed).
//   - NR-5: no process of a sandbox holds a pipe or file of ours as standard input, output or error, and none of our descriptors or environment (TestCreateGivesNothingOfOurs).
//
// # Not here
//
// When which command runs, and what is removed after a failure: package nodes.
//
// # Failure
//
// A command that failed is an *Error with runsc's own words; one that hangs is killed after Config.Timeout. After either
// the state of the container is unknown: delete it.
package runsc
