package nodes

import (
	"context"
	"net/netip"
	"os"
	"time"

	"portreeve.dev/nodes/cgroup"
	"portreeve.dev/nodes/images"
	"portreeve.dev/nodes/runsc"
)

// A Driver runs containers. All methods are safe for concurrent use and return when the thing is done. After an error the
// container is in an unknown state; Delete is the way out.
type Driver interface {
	// Create makes a container that doesn't run yet and returns the process id of its sandbox.
	Create(ctx context.Context, r runsc.Create) (pid int, err error)
	Start(ctx context.Context, id string) error
	Pause(ctx context.Context, id string) error
	Resume(ctx context.Context, id string) error
	// Delete ends and removes a container in any state; one that isn't there is no error.
	Delete(ctx context.Context, id string) error
	// State returns runsc.ErrNotFound for a container that isn't there.
	State(ctx context.Context, id string) (runsc.State, error)
	List(ctx context.Context) ([]runsc.State, error)
}

// A Cleaner is a Driver that keeps things for all containers: Clean removes them when no container is left, Sweep what
// a create that was cut off may have left.
type Cleaner interface {
	Clean(ctx context.Context) error
	Sweep() error
}

// A Link is a sandbox's way onto the wire.
type Link struct {
	Netns     string     `json:"netns"`     // path
	Interface string     `json:"interface"` // the edge netns' end
	Gateway   netip.Addr `json:"gateway"`   // its address
	Addr      netip.Addr `json:"addr"`      // the sandbox's
}

// A Network makes links between sandboxes and the edge netns.
type Network interface {
	// Make reserves an address and makes a netns with a link that carries nothing before Up. On error nothing is left.
	Make(ctx context.Context, sandbox string) (Link, error)
	// Readdress puts the sandbox's address and route back, which runsc takes at every start and restore.
	Readdress(ctx context.Context, l Link) error
	// Up lets packets flow.
	Up(ctx context.Context, l Link) error
	// Remove ends the link and the netns and gives the address back (into its quarantine). One that is gone is no error.
	Remove(ctx context.Context, l Link) error
	// List returns all links of this instance that are on the machine, whoever made them, with their addresses kept reserved.
	List(ctx context.Context) ([]Link, error)
}

// A Firewall keeps the set of (interface, address) pairs that may speak. Both methods are durable in the kernel when they
// return and may be repeated.
type Firewall interface {
	Add(ctx context.Context, iface string, addr netip.Addr) error
	Remove(ctx context.Context, iface string, addr netip.Addr) error
}

// A Wire tells those who handle a sandbox's connections whose they are.
type Wire interface {
	// Bind returns when edge and inward have both acknowledged the placement. init is the listener that the sandbox's init
	// will dial; Bind sends it on and the node closes its own copy after. It is nil when only the generation has grown.
	Bind(ctx context.Context, p Placement, init *os.File) error
	// Unbind returns when both have forgotten it. One that was never bound is no error.
	Unbind(ctx context.Context, p Placement) error
}

// Images finds root filesystems; images.Store is one.
type Images interface {
	Resolve(name string) (images.Image, error)
}

// Cgroups keeps the control groups of this instance; cgroup.Tree is one.
type Cgroups interface {
	Prepare() error
	Path(id string) string
	SwapAccounting() bool
	Confirm(id string, want cgroup.Limits) error
	OOMKills(id string) (uint64, error)
	Remove(ctx context.Context, id string) error // one that isn't there is no error
	List() ([]string, error)
	Purge(ctx context.Context) error
}

// A Clock tells the time and wakes up.
type Clock interface {
	Now() time.Time
	AfterFunc(d time.Duration, f func()) Timer
}

// A Timer can be stopped.
type Timer interface{ Stop() bool }

type realClock struct{}

func (realClock) Now() time.Time                            { return time.Now() }
func (realClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

var (
	_ Driver  = (*runsc.CLI)(nil)
	_ Cleaner = (*runsc.CLI)(nil)
	_ Images  = (*images.Store)(nil)
	_ Cgroups = (*cgroup.Tree)(nil)
)
