package role

import (
	"net/netip"
	"time"
)

// Methods that control calls on the node.
const (
	NodeCreate = "create" // NodeSpec -> Placement
	NodeDelete = "delete" // SandboxRef -> {}
	NodePause  = "pause"  // SandboxRef -> {}
	NodeResume = "resume" // Resume -> Placement
	NodeExtend = "extend" // Extend -> {}
	NodeList   = "list"   // {} -> []Placement
	NodeImages = "images" // {} -> []Image
	NodeTrust  = "trust"  // OrgTrust -> {}
)

// Codes of the errors that these methods answer with.
const (
	CodeUnknown       = "unknown_sandbox"
	CodeExists        = "sandbox_exists"
	CodeNotReady      = "sandbox_not_ready"
	CodeExpired       = "deadline_passed"
	CodeImageUnknown  = "image_unknown"
	CodeImageBuilding = "image_building"
	CodeImageFailed   = "image_failed"
)

// NodeEvent is the notice that the node sends to control.
const NodeEvent = "event"

// EventResumed is the kind of the event that a tunnel's caller woke a sandbox.
const EventResumed = "resumed"

// NodeSpec asks for a sandbox.
type NodeSpec struct {
	Sandbox        string            `json:"sandbox"`
	Org            string            `json:"org"`
	Image          string            `json:"image"`
	MemoryBytes    int64             `json:"memory_bytes"`
	CPUMillis      int64             `json:"cpu_millis"`
	WorkspaceBytes int64             `json:"workspace_bytes"`
	Env            map[string]string `json:"env,omitempty"`
	Trust          []byte            `json:"trust,omitempty"` // root certificates in PEM
	Deadline       time.Time         `json:"deadline"`
	Incarnation    uint64            `json:"incarnation"`
	Generation     uint64            `json:"generation"`
	MinRevision    uint64            `json:"min_revision"`
}

// OrgTrust is what all sandboxes of an org are to trust from now on.
type OrgTrust struct {
	Org   string `json:"org"`
	Roots []byte `json:"roots"` // certificates in PEM
}

// SandboxRef names a sandbox.
type SandboxRef struct {
	Sandbox string `json:"sandbox"`
}

// Resume lets a paused sandbox go on, not under a policy older than MinRevision.
type Resume struct {
	Sandbox     string `json:"sandbox"`
	MinRevision uint64 `json:"min_revision"`
}

// Extend moves the end of a sandbox.
type Extend struct {
	Sandbox  string    `json:"sandbox"`
	Deadline time.Time `json:"deadline"`
}

// Placement is where a sandbox runs.
type Placement struct {
	Sandbox     string     `json:"sandbox"`
	Org         string     `json:"org"`
	Addr        netip.Addr `json:"addr"`
	RunscID     string     `json:"runsc_id"`
	Incarnation uint64     `json:"incarnation"`
	Generation  uint64     `json:"generation"`
	State       string     `json:"state"` // running, paused
	Deadline    time.Time  `json:"deadline"`
}

// Event is something that happened to a sandbox without having been asked for.
type Event struct {
	Sandbox     string `json:"sandbox"`
	Kind        string `json:"kind"` // exited, out_of_memory, expired, resumed
	Incarnation uint64 `json:"incarnation"`
	Generation  uint64 `json:"generation"`
}

// Image is an image that the node has, or builds.
type Image struct {
	Name   string `json:"name"`
	Digest string `json:"digest,omitempty"`
	State  string `json:"state"` // ready, building, failed
	Error  string `json:"error,omitempty"`
}

// NodeWake is the one method that ingress calls on the node: WakeRequest -> Woken.
const NodeWake = "wake"

// WakeRequest asks for a paused sandbox to run. Generation is the one that the caller saw asleep; a later one runs already.
type WakeRequest struct {
	Sandbox    string `json:"sandbox"`
	Generation uint64 `json:"generation"`
}

// Woken is the generation that runs.
type Woken struct {
	Generation uint64 `json:"generation"`
}
