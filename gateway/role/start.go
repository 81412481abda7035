package role

import (
	"net/netip"
	"time"

	"portreeve.dev/gateway/internal/clock"
	"portreeve.dev/gateway/limits"
)

// NodeStart is what the node is told. Files: none.
type NodeStart struct {
	StateDir  string       `json:"state_dir"` // of the machine; the node's own is node/ below it
	Instance  string       `json:"instance"`  // six hex digits, in every name of ours on the machine
	EdgeUID   uint32       `json:"edge_uid"`  // whose packets the host's output wall judges
	Runsc     string       `json:"runsc"`
	Init      string       `json:"init"`       // the portreeve-init program
	Probe     string       `json:"probe"`      // the portreeve-probe program
	TinyImage string       `json:"tiny_image"` // rootfs tar of the image tiny
	Addresses netip.Prefix `json:"addresses"`  // address pairs of sandboxes come from here
	Synthetic netip.Prefix `json:"synthetic"`  // never dialled
	Purge     bool         `json:"purge"`      // sandboxes end with the run
	Adopt     bool         `json:"adopt"`      // keep living sandboxes of an earlier start; else remove them
	Base      bool         `json:"base"`       // build the image base in the background
	Names     int          `json:"names"`      // distinct, of one incarnation
	Reach     []Reach      `json:"reach"`      // what the edge reaches wherever that is
	Only      bool         `json:"only"`       // it reaches nothing but that
	DoorPorts []uint16     `json:"door_ports"` // from which the edge may answer whoever called it, wherever that is
	Connects  int          `json:"connects"`   // new connections of one sandbox a second
	Lookups   int          `json:"lookups"`    // DNS queries of one sandbox a second
	Clock     clock.Clock  `json:"clock"`      // of the run
}

// NodeReady is the node's answer. Files: the edge netns.
type NodeReady struct {
	EdgeNetns string `json:"edge_netns"` // read back and found without a way out
	RunscRoot string `json:"runsc_root"`
	Base      string `json:"base,omitempty"` // of the image base: ready, building, or why it can't be built; empty when it isn't wanted
}

// Values of NodeReady.Base that are no reason.
const (
	BaseReady    = "ready"
	BaseBuilding = "building"
)

// Caged is what edge and inward answer: what they saw hold for themselves. Files: none.
type Caged struct {
	LandlockABI int      `json:"landlock_abi"` // 0: the kernel has none, and the admin said to go on
	Checked     []string `json:"checked"`      // what was tried from inside, and refused
}

// EdgeStart is what the edge is told. Files: the listeners of its doors.
type EdgeStart struct {
	Dir         string         `json:"dir"`          // the only directory it writes to
	Machine     string         `json:"machine"`      // its name, for those who read about it
	UpstreamDNS []string       `json:"upstream_dns"` // each in the form of Resolver
	UpstreamCA  []string       `json:"upstream_ca"`  // PEM blocks, beside the system's roots
	SystemRoots string         `json:"system_roots"` // the system's roots in PEM
	Upstream    *UpstreamProxy `json:"upstream,omitempty"`
	Hard        []netip.Prefix `json:"hard"`   // ranges of ours, added to the hard floor
	Always      []netip.Prefix `json:"always"` // closed inside an exemption too
	Synthetic   netip.Prefix   `json:"synthetic"`
	Limits      EdgeLimits     `json:"limits"`
	HiddenNames bool           `json:"hidden_names"` // hellos that may hide a name pass to every server
	Sources     bool           `json:"sources"`      // some org's connections leave from an address of its own
	Doors       EdgeDoors      `json:"doors,omitzero"`
	Uncaged     bool           `json:"uncaged"` // the kernel has no Landlock and the admin said to go on
	Clock       clock.Clock    `json:"clock"`   // of the run
}

// EdgeLimits bound what one sandbox may use of the edge.
type EdgeLimits struct {
	Connections int `json:"connections"` // live, per sandbox
	Names       int `json:"names"`       // distinct, per incarnation
	Lookups     int `json:"lookups"`     // DNS queries a second
	Decisions   int `json:"decisions"`   // written down a second
}

// InwardStart is what inward is told. Files: none.
type InwardStart struct {
	Uncaged bool `json:"uncaged"`
}

// ControlStart is what control is told. Files: the API's listener.
type ControlStart struct {
	Dir          string                  `json:"dir"` // the store
	Key          string                  `json:"key"` // of an earlier start in this run; secret; empty makes one
	Exempt       []Exemption             `json:"exempt"`
	Hard         []netip.Prefix          `json:"hard"`         // ranges of ours, added to the hard floor
	Always       []netip.Prefix          `json:"always"`       // closed inside an exemption too
	UpstreamDNS  []string                `json:"upstream_dns"` // of the endpoints that orgs name
	Upstream     *UpstreamProxy          `json:"upstream,omitempty"`
	Direct       []string                `json:"direct,omitempty"`  // orgs that go without it, ids or slugs
	Sources      map[string][]netip.Addr `json:"sources,omitempty"` // where orgs' connections leave from, by id or slug
	UpstreamCA   []string                `json:"upstream_ca"`       // PEM blocks, beside the system's roots
	SystemRoots  string                  `json:"system_roots"`      // the system's roots in PEM
	Doors        ControlDoors            `json:"doors,omitzero"`
	TunnelDomain string                  `json:"tunnel_domain"`
	TunnelPort   string                  `json:"tunnel_port"`   // of the tunnels' URLs; empty is 443
	PlainTunnels bool                    `json:"plain_tunnels"` // tunnels answer on plain HTTP too
	Limits       ControlLimits           `json:"limits"`
	Egress       limits.Limits           `json:"egress"` // of each org
	Canary       time.Duration           `json:"canary"` // between two rounds; 0: none
	Clock        clock.Clock             `json:"clock"`  // of the run
}

// ControlReady is control's answer. Files: none.
type ControlReady struct {
	Key        string `json:"key"`         // secret
	SetupToken string `json:"setup_token"` // secret, one-time: registers an org
	TunnelCA   []byte `json:"tunnel_ca"`   // the development authority of tunnels, PEM
	DoorCA     []byte `json:"door_ca"`     // the authority of doors, PEM
}

// Exemption opens part of the soft floor: no Ports are all of them; Orgs are ids or slugs, and "*" is all of them.
type Exemption struct {
	CIDR  string   `json:"cidr" yaml:"cidr"`
	Ports []uint16 `json:"ports,omitempty" yaml:"ports"`
	Orgs  []string `json:"orgs,omitempty" yaml:"orgs"`
}

// ControlLimits bound what an org may ask for.
type ControlLimits struct {
	Sandboxes   int           `json:"sandboxes"`    // live, per org
	MemoryBytes int64         `json:"memory_bytes"` // of one sandbox
	CPUMillis   int64         `json:"cpu_millis"`   // of one sandbox
	Lifetime    time.Duration `json:"lifetime"`     // of one sandbox
}

// IngressStart is what ingress is told. Files: the HTTPS listener.
type IngressStart struct {
	Plain        bool        `json:"plain"` // tunnels answer on plain HTTP too, on the same port
	TunnelDomain string      `json:"tunnel_domain"`
	Clock        clock.Clock `json:"clock"` // of the run
}
