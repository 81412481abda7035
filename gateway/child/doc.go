// Package child is the life of a process that the supervisor started.
//
// Such a process finds its socket to the supervisor at file 3. It is told what to do ("start"), says when it serves,
// meets its siblings ("peer", a socket each time one of the two was started anew), and is asked to end ("stop"):
//
//	err := child.Run(ctx, child.Spec{
//		Start: func(ctx context.Context, config json.RawMessage, files []*os.File) (any, []*os.File, error) { … },
//		Siblings: map[string]*child.Sibling{"node": node},
//	})
//
// # Security invariants
//
//   - CD-1: a process ends when its socket to the supervisor closes (TestEndsWithTheSupervisor).
//   - CD-2: a socket to a sibling that the process doesn't know is closed (TestUnknownSiblingIsClosed).
//
// # Not here
//
// Rights: the supervisor drops them before the process runs, and the process's own role enters its cage.
//
// # Failure
//
// A sibling that is gone leaves its Peer without a link until the supervisor brings the next one.
package child
