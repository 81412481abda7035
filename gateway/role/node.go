package role

import (
	"net/netip"
	"time"

	"portreeve.dev/egress"
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
	Trust          []byte            `json:"trust,omitempty"` // root certificate in PEM
	Deadline       time.Time         `json:"deadline"`
	Incarnation    uint64            `json:"incarnation"`
	Generation     uint64            `json:"generation"`
	MinRevision    uint64            `json:"min_revision"`
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

// Methods that the node calls on edge.
const (
	EdgeSockets = "sockets" // Sockets and three files: TCP 15001, UDP 53, TCP 53
	EdgeBind    = "bind"    // egress.Binding -> {}
	EdgeUnbind  = "unbind"  // Unbind -> {}
	EdgeSync    = "sync"    // Sync -> EdgeHello: the whole table, on each new link
)

// EdgeName is the notice that edge sends to the node for each synthetic address, before the answer that gives it away.
const EdgeName = "name"

// Sync is what a new link begins with: whose addresses are whose, and the names given so far.
type Sync struct {
	Bindings []egress.Binding `json:"bindings"`
	Names    []Name           `json:"names"`
}

// EdgeHello is edge's answer to Sync.
type EdgeHello struct {
	Serving bool   `json:"serving"` // it has the sockets already
	Names   []Name `json:"names"`   // names that the node may have lost
}

// Name is one entry of the synthetic table.
type Name struct {
	Sandbox     string     `json:"sandbox"`
	Incarnation uint64     `json:"incarnation"`
	Host        string     `json:"host"`
	Addr        netip.Addr `json:"addr"`
}

// Unbind takes an address away.
type Unbind struct {
	Sandbox string     `json:"sandbox"`
	Addr    netip.Addr `json:"addr"`
}

// Methods that the node calls on inward.
const (
	InwardBind   = "bind"   // egress.Binding and one file, the listener of the sandbox's init -> {}; no file: only the generation grew
	InwardUnbind = "unbind" // SandboxRef -> {}
	InwardSync   = "sync"   // InwardKeep -> {}: the whole list, on each new link
)

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

// InwardDial is the one method that ingress calls on inward: DialRequest -> {} and one file, a socket to the application.
const InwardDial = "dial"

// DialRequest asks for a connection to a port of a sandbox, at a generation.
type DialRequest struct {
	Sandbox    string `json:"sandbox"`
	Generation uint64 `json:"generation"`
	Port       uint16 `json:"port"`
}

// Codes of the errors that InwardDial answers with.
const (
	CodeStaleRoute = "stale_route" // another generation runs
	CodePortClosed = "port_closed" // nothing listens, on the address nor on loopback
)

// InwardKeep is what a new link begins with: no other sandbox is there any more.
type InwardKeep struct {
	Sandboxes []string `json:"sandboxes"`
}

// Methods that control calls on inward.
const (
	InwardReady     = "ready"     // SandboxRef -> {}: waits for the sandbox's init
	InwardOperation = "operation" // SandboxRef and one file, a socket that speaks nodes/guest -> {}
)

// Methods that edge calls on control.
const (
	ControlDecisions    = "decisions"    // decisions.Shipment -> decisions.Acked
	ControlIntermediate = "intermediate" // IntermediateRequest -> Intermediate
)

// InwardHostile is the notice that inward sends to control: a sandbox's init has broken the protocol once too often and is not
// heard any more. Its body is an Event without a kind.
const InwardHostile = "hostile"

// IngressKeys is what control calls on ingress first on each link: TunnelKeys -> {}. The feed of routes follows.
const IngressKeys = "keys"

// TunnelKeys are the keys that ingress holds. They are secret, and in no file of ingress's.
type TunnelKeys struct {
	Certificate []byte `json:"certificate"` // of the development authority, DER
	Key         []byte `json:"key"`         // its key
	Cookie      []byte `json:"cookie"`      // signs the cookies that stand for tunnel tokens
}

// EdgeFlush is what control calls on edge: everything that was recorded before is shipped when it answers.
const EdgeFlush = "flush"

// IntermediateRequest asks for a certificate of an org's authority for the edge's own key.
type IntermediateRequest struct {
	Org string `json:"org"`
	Key []byte `json:"key"` // the public key, PKIX in DER
}

// Intermediate is the certificate, and the root above it, in DER.
type Intermediate struct {
	Chain [][]byte `json:"chain"`
}
