package role

// Methods that the node calls on inward.
const (
	InwardBind   = "bind"   // egress.Binding and one file, the listener of the sandbox's init -> {}; no file: only the generation grew
	InwardUnbind = "unbind" // SandboxRef -> {}
	InwardSync   = "sync"   // InwardKeep -> {}: the whole list, on each new link
)

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

// InwardHostile is the notice that inward sends to control: a sandbox's init has broken the protocol once too often and is not
// heard any more. Its body is an Event without a kind.
const InwardHostile = "hostile"
