package role

// Methods that control calls on the node, for attached sandboxes.
const (
	NodeDoorOpen  = "door_open"  // SandboxRef -> DoorSocket: makes the sandbox's socket, or says where it is
	NodeDoorClose = "door_close" // SandboxRef -> {}
)

// DoorSocket is where an attached sandbox comes in.
type DoorSocket struct {
	Path string `json:"path"`
}

// EdgeDoor is what the node calls on edge: SandboxRef and one file, the listening socket of an attached sandbox -> {}. A socket of
// the same sandbox that it has already is closed.
const EdgeDoor = "door"

// DoorAuthority stands in an IntermediateRequest for the installation's own authority, which signs for its doors. It is no org's id.
const DoorAuthority = "doors"

// EdgeDoors are the doors that listen on the network. Their listeners are the files of the start message, in this order.
type EdgeDoors struct {
	HTTP  bool `json:"http"`  // an HTTP proxy over TLS
	SOCKS bool `json:"socks"` // SOCKS5 over TLS
	// Name is what they are called in certificates. With a Certificate and a Key (secret), both in PEM, those are used; without,
	// control signs.
	Name        string `json:"name,omitempty"`
	Certificate string `json:"certificate,omitempty"`
	Key         string `json:"key,omitempty"`
}

// ControlDoors are the addresses of the doors as users dial them, host:port; empty where there is none.
type ControlDoors struct {
	HTTP  string `json:"http,omitempty"`
	SOCKS string `json:"socks,omitempty"`
	Own   bool   `json:"own,omitempty"` // they show certificates that this installation signs
}
