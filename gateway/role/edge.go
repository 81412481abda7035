package role

import (
	"net/netip"

	"portreeve.dev/egress"
)

// Methods that the node calls on edge.
const (
	EdgeSockets = "sockets" // {} and three files, the listeners of the edge netns: TCP 15001, UDP 53, TCP 53 -> {}
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

// EdgeFlush is what control calls on edge: everything that was recorded before is shipped when it answers.
const EdgeFlush = "flush"
