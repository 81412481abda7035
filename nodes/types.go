package nodes

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"time"
)

// What commands may answer.
var (
	ErrUnknown  = errors.New("no such sandbox here")
	ErrExists   = errors.New("the sandbox is here already, in another incarnation")
	ErrNotReady = errors.New("the sandbox is being made or removed")
	ErrClosed   = errors.New("the node is closed")
	ErrExpired  = errors.New("the deadline has passed")
	ErrLeft     = errors.New("not everything of an earlier run could be removed")
)

// A Spec says what sandbox to make.
type Spec struct {
	Sandbox     string            `json:"sandbox"` // sbx_…
	Org         string            `json:"org"`     // org_…
	Image       string            `json:"image"`
	Limits      Limits            `json:"limits"`
	Env         map[string]string `json:"env,omitempty"` // defaults of user processes
	Deadline    time.Time         `json:"deadline"`      // zero: none
	Incarnation uint64            `json:"incarnation"`
	Generation  uint64            `json:"generation"`
	Trust       []byte            `json:"trust,omitempty"` // root certificates in PEM that its programs are to trust
	MinRevision uint64            `json:"min_revision"`    // no verdict about it from an older policy revision
}

// Limits of a sandbox; a zero field takes its value from DefaultLimits.
type Limits struct {
	MemoryBytes    int64 `json:"memory_bytes"`
	CPUMillis      int64 `json:"cpu_millis"` // 1000 is one processor
	Pids           int64 `json:"pids"`       // host processes; one of the sandbox is about two of these
	WorkspaceBytes int64 `json:"workspace_bytes"`
	TmpBytes       int64 `json:"tmp_bytes"` // /tmp is memory, and counts as such
}

// DefaultLimits are those of a sandbox that names none.
var DefaultLimits = Limits{MemoryBytes: 512 << 20, CPUMillis: 1000, Pids: 4096, WorkspaceBytes: 2 << 30, TmpBytes: 128 << 20}

func (l Limits) withDefaults() Limits {
	for _, f := range []struct {
		v *int64
		d int64
	}{
		{&l.MemoryBytes, DefaultLimits.MemoryBytes}, {&l.CPUMillis, DefaultLimits.CPUMillis}, {&l.Pids, DefaultLimits.Pids},
		{&l.WorkspaceBytes, DefaultLimits.WorkspaceBytes}, {&l.TmpBytes, DefaultLimits.TmpBytes},
	} {
		if *f.v == 0 {
			*f.v = f.d
		}
	}
	return l
}

// A Placement says where a sandbox is and whose its packets are.
type Placement struct {
	Sandbox     string     `json:"sandbox"`
	Org         string     `json:"org"`
	Addr        netip.Addr `json:"addr"`
	Gateway     netip.Addr `json:"gateway"`
	Interface   string     `json:"interface"`
	Netns       string     `json:"netns"`
	RunscID     string     `json:"runsc_id"`
	Incarnation uint64     `json:"incarnation"`
	Generation  uint64     `json:"generation"`
	MinRevision uint64     `json:"min_revision"`
	Pid         int        `json:"pid"` // of the sentry
}

// A State is a step in a sandbox's life here.
type State string

// The states; doc.go draws them.
const (
	Creating State = "creating"
	Running  State = "running"
	Paused   State = "paused"
	Deleting State = "deleting"
)

// A Status is what the node knows of a sandbox.
type Status struct {
	Placement
	State    State
	Image    string
	Digest   string
	Limits   Limits
	Created  time.Time
	Deadline time.Time
}

// An EventKind tells what happened by itself.
type EventKind string

// The kinds. After Exited, OutOfMemory and Expired comes Deleted, when all is removed.
const (
	Exited      EventKind = "exited"
	OutOfMemory EventKind = "out_of_memory"
	Expired     EventKind = "expired"
	Deleted     EventKind = "deleted"
)

// An Event is something that happened to a sandbox.
type Event struct {
	Kind        EventKind `json:"kind"`
	Sandbox     string    `json:"sandbox"`
	Org         string    `json:"org"`
	Incarnation uint64    `json:"incarnation"`
	Generation  uint64    `json:"generation"`
	At          time.Time `json:"at"`
	Reason      EventKind `json:"reason,omitempty"` // of Deleted: what led to it; empty after the Delete command
}

var (
	sandboxID = regexp.MustCompile(`^sbx_[0-9A-Za-z-]{1,64}$`)
	orgID     = regexp.MustCompile(`^org_[0-9A-Za-z-]{1,64}$`)
)

func (s Spec) validate(now time.Time) error {
	switch {
	case !sandboxID.MatchString(s.Sandbox):
		return fmt.Errorf("sandbox id %q", s.Sandbox)
	case !orgID.MatchString(s.Org):
		return fmt.Errorf("org id %q", s.Org)
	case s.Incarnation == 0 || s.Generation == 0:
		return errors.New("incarnation and generation start at 1")
	case s.Limits.WorkspaceBytes < 1<<20:
		return fmt.Errorf("workspace limit %d: at least 1 MiB", s.Limits.WorkspaceBytes)
	case !s.Deadline.IsZero() && !s.Deadline.After(now):
		return ErrExpired
	}
	return nil
}
