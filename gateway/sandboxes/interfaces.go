package sandboxes

import (
	"context"
	"errors"
	"time"
)

// A Runner is the node. Each method is safe for concurrent use, blocks until done, and takes an id of ours.
type Runner interface {
	// Create starts a sandbox that must not run under a policy older than spec.MinRevision. After an error nothing of it may
	// be left but what Delete removes.
	Create(ctx context.Context, spec Spec) (Started, error)
	// Delete ends a sandbox and removes all of it. One that is not there is no error.
	Delete(ctx context.Context, id string) error
	// Pause stops its processes; ErrNotThere if there is none.
	Pause(ctx context.Context, id string) error
	// Resume lets them go on, as a new generation; a running one is left as it is. ErrNotThere if there is none.
	Resume(ctx context.Context, id string, minRevision int64) (Started, error)
	// Extend moves the end; ErrNotThere if there is none.
	Extend(ctx context.Context, id string, end time.Time) error
	// List says what is on the node.
	List(ctx context.Context) ([]Present, error)
}

// A Readier is the part of the guest that a start waits for.
type Readier interface {
	// Ready returns nil when the guest's init answers, and an error when it never will or ctx ended.
	Ready(ctx context.Context, id string) error
}

// A Feed brings policy to the edges.
type Feed interface {
	// Publish says that there is a new revision in the store. It does not wait.
	Publish(ctx context.Context, revision int64)
	// WaitApplied returns nil once every connected edge has acknowledged that revision or a newer one.
	WaitApplied(ctx context.Context, revision int64) error
}

// Sockets are the ways in of attached sandboxes. Each method is safe for concurrent use.
type Sockets interface {
	// Open makes the socket of a sandbox, or returns where it is already.
	Open(ctx context.Context, id string) (path string, err error)
	// Close takes it away. One that is not there is no error.
	Close(ctx context.Context, id string) error
}

// ErrNotThere is what a Runner returns for a sandbox that it does not have.
var ErrNotThere = errors.New("no such sandbox on the node")

// A Spec is what a node needs to start a sandbox.
type Spec struct {
	ID             string
	Org            string
	Template       string // tiny, base
	MilliCPU       int64
	MemoryBytes    int64
	WorkspaceBytes int64
	Env            map[string]string
	End            time.Time
	MinRevision    int64
}

// Started is what a node answers.
type Started struct {
	Addr        string
	RunscID     string
	Incarnation uint64
	Generation  uint64
	Phases      []Phase
}

// A Phase is one part of a start.
type Phase struct {
	Name string
	Took time.Duration
}

// Present is a sandbox that is on the node.
type Present struct {
	ID      string
	Paused  bool
	Started Started
}

// An EventKind is what happened to a sandbox without anybody asking.
type EventKind string

const (
	Exited  EventKind = "exited"  // its first process ended
	OOM     EventKind = "oom"     // the kernel ended it for its memory
	Expired EventKind = "expired" // its time was up and the node ended it
	Paused  EventKind = "paused"  // put to sleep by itself
	Resumed EventKind = "resumed" // woken by a caller of a tunnel
)

// An Event is a node's report. It is the node's word, never the sandbox's.
type Event struct {
	Sandbox     string
	Kind        EventKind
	Incarnation uint64
	Generation  uint64
}
