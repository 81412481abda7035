package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"portreeve.dev/egress/kernel"
	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/internal/clock"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/nodes"
	"portreeve.dev/nodes/cgroup"
	"portreeve.dev/nodes/images"
	"portreeve.dev/nodes/netns"
	"portreeve.dev/nodes/runsc"
)

// An Agent is the state of the process. Its parts are set by start, before any link.
type Agent struct {
	log     *slog.Logger
	edge    *child.Sibling
	inward  *child.Sibling
	control *child.Sibling
	ingress *child.Sibling

	setup   role.NodeStart
	netns   *netns.Edge
	network *network
	images  *images.Store
	groups  *cgroup.Tree
	nodes   *nodes.Node
	events  chan role.Event
	names   *names
	woken   wakes
	wire    *wire
	doors   *doors
	base    context.CancelFunc
}

// Run is the life of the process.
func Run(ctx context.Context) error {
	a := newAgent(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	return child.Run(ctx, child.Spec{Start: a.start, Stop: a.stop, Siblings: a.siblings()})
}

func (a *Agent) siblings() map[string]*child.Sibling {
	return map[string]*child.Sibling{"edge": a.edge, "inward": a.inward, "control": a.control, "ingress": a.ingress}
}

func newAgent(log *slog.Logger) *Agent {
	a := &Agent{log: log, events: make(chan role.Event, 1024)}
	// An edge that outlives a node answers with all names that its sandboxes have, under a mebibyte each. It calls nothing itself.
	a.edge = &child.Sibling{Mux: link.NewMux(), Up: a.meetEdge, Limits: link.Limits{Frame: 64 << 20, Calls: 1}}
	a.inward = &child.Sibling{Mux: link.NewMux(), Up: a.meetInward, Limits: link.Limits{Frame: 1 << 20, Calls: 16}}
	a.control = &child.Sibling{Mux: link.NewMux(), Up: a.tellEvents, Limits: link.Limits{Frame: 1 << 20}}
	a.ingress = &child.Sibling{Mux: link.NewMux(), Limits: link.Limits{Frame: 1 << 16}}
	a.wire = &wire{edge: a.edge, inward: a.inward}
	a.doors = &doors{}
	a.registerEdge()
	a.registerIngress()
	a.registerControl()
	a.registerDoors()
	return a
}

func (a *Agent) start(ctx context.Context, raw json.RawMessage, _ []*os.File) (any, []*os.File, error) {
	if err := json.Unmarshal(raw, &a.setup); err != nil {
		return nil, nil, err
	}
	if err := a.build(); err != nil {
		return nil, nil, err
	}
	if err := a.takeOver(ctx); err != nil {
		return nil, nil, err
	}
	base, err := a.prepareImages(ctx)
	if err != nil {
		return nil, nil, err
	}
	f, err := os.Open(netns.Path(a.netns.Name))
	if err != nil {
		return nil, nil, fmt.Errorf("opening the edge netns: %w", err)
	}
	return role.NodeReady{EdgeNetns: a.netns.Name, RunscRoot: a.runscRoot(), Base: base}, []*os.File{f}, nil
}

func (a *Agent) dir(parts ...string) string {
	return filepath.Join(append([]string{a.setup.StateDir, "node"}, parts...)...)
}

func (a *Agent) runscRoot() string { return a.dir("runsc") }

// wallTable is ours in the machine's own netns: other installations have other names.
func (a *Agent) wallTable() string { return "portreeve_" + a.setup.Instance }

// wall is what stands around the edge on the machine.
func (a *Agent) wall() kernel.Wall {
	w := kernel.Wall{Table: a.wallTable(), UID: a.setup.EdgeUID, Extra: []netip.Prefix{a.setup.Addresses, a.setup.Synthetic},
		Answers: a.setup.DoorPorts, Only: a.setup.Only}
	for _, r := range a.setup.Reach {
		w.Reach = append(w.Reach, kernel.Endpoint{AddrPort: r.Addr, UDP: r.UDP})
	}
	return w
}

// edgeTable says how the rules of the edge netns are written. The kernel lets more queries through than the resolver answers,
// so that what is too many is refused with an answer first.
func (a *Agent) edgeTable(found bool) kernel.EdgeOptions {
	return kernel.EdgeOptions{KeepBound: found && a.setup.Adopt, Connects: uint32(a.setup.Connects), Lookups: uint32(a.setup.Lookups * 5 / 2)}
}

// build makes the netns, the rules and the parts, in this order: the rules stand before anything could use them.
func (a *Agent) build() error {
	a.doors.dir = filepath.Join("/run", "portreeve-"+a.setup.Instance)
	edge, found, err := openEdge("portreeve-" + a.setup.Instance)
	if err != nil {
		return err
	}
	a.netns = edge
	if err := kernel.WriteEdgeTable(edge.Fd(), a.edgeTable(found)); err != nil {
		return err
	}
	if err := edge.Check(); err != nil {
		return err
	}
	if err := kernel.WriteWall(kernel.CurrentNetns, a.wall()); err != nil {
		return err
	}
	addresses, err := netns.NewAddresses(netns.AddressesConfig{Prefix: a.setup.Addresses, Now: a.setup.Clock.Line})
	if err != nil {
		return err
	}
	a.network = newNetwork(edge, addresses, "pr"+a.setup.Instance+"-", a.log)
	a.network.resting = resting{a.dir("resting.json"), addresses}
	if err := a.network.resting.load(); err != nil {
		return err
	}
	a.names = newNames(a.setup.Names)
	driver, err := runsc.New(runsc.Config{Binary: a.setup.Runsc, Root: a.runscRoot(), Upper: a.dir("upper")})
	if err != nil {
		return err
	}
	if a.groups, err = cgroup.Open(a.setup.Instance); err != nil {
		return err
	}
	if a.images, err = images.Open(images.Config{Dir: filepath.Join(a.setup.StateDir, "images"), Log: a.log}); err != nil {
		return err
	}
	a.nodes, err = nodes.New(nodes.Config{
		StateDir: a.setup.StateDir, Instance: a.setup.Instance, Init: a.setup.Init, Probe: a.setup.Probe, Driver: driver, Network: a.network,
		Firewall: kernel.NewBound(edge.Fd()), Wire: a.wire, Images: a.images, Cgroups: a.groups, Events: a.keepEvent, Clock: timers{a.setup.Clock}, Log: a.log,
	})
	return err
}

// timers are the clock by which sandboxes end.
type timers struct{ clock.Clock }

var _ nodes.Clock = timers{}

func (timers) AfterFunc(d time.Duration, f func()) nodes.Timer { return time.AfterFunc(d, f) }

func openEdge(name string) (*netns.Edge, bool, error) {
	edge, created, err := netns.OpenEdge(name)
	return edge, !created, err
}

// takeOver keeps what an earlier node left, or removes it.
func (a *Agent) takeOver(ctx context.Context) error {
	if !a.setup.Adopt {
		return a.nodes.Purge(ctx)
	}
	a.wire.adopting(true) // edge and inward are told with their first message
	defer a.wire.adopting(false)
	adopted, err := a.nodes.Adopt(ctx)
	if errors.Is(err, nodes.ErrLeft) { // one stuck sandbox must not keep all others from being run
		a.log.Error("adopting sandboxes", "err", err)
		err = nil
	}
	if err == nil {
		a.log.Info("sandboxes adopted", "sandboxes", len(adopted))
	}
	return err
}

// prepareImages imports tiny now and builds base beside the work, where it is wanted. It says how far base is.
func (a *Agent) prepareImages(ctx context.Context) (base string, err error) {
	if _, err := a.images.Resolve("tiny"); err != nil {
		if err := a.importTiny(ctx); err != nil {
			return "", err
		}
	}
	if _, err := a.images.Resolve("base"); err == nil {
		return role.BaseReady, nil
	}
	if !a.setup.Base {
		return "", nil
	}
	building, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a.base = cancel
	if err := a.images.StartBase(building); err != nil {
		a.log.Warn("the image base can't be built here; tiny is there", "err", err)
		return err.Error(), nil
	}
	return role.BaseBuilding, nil
}

func (a *Agent) importTiny(ctx context.Context) error {
	f, err := os.Open(a.setup.TinyImage)
	if err != nil {
		return fmt.Errorf("opening the image tiny: %w", err)
	}
	defer f.Close()
	_, err = a.images.Import(ctx, "tiny", f)
	return err
}

// stop ends the sandboxes where they end with the run.
func (a *Agent) stop(ctx context.Context) error {
	if a.base != nil {
		a.base()
		a.images.Wait()
	}
	if err := a.doors.close(); err != nil {
		a.log.Warn("the sockets of attached sandboxes stay", "err", err)
	}
	if !a.setup.Purge {
		a.nodes.Close()
		return nil
	}
	err := a.nodes.Purge(ctx)
	a.nodes.Close()
	return errors.Join(err, a.groups.Purge(ctx), kernel.RemoveEdgeTable(a.netns.Fd()), a.netns.Remove(),
		kernel.RemoveWall(kernel.CurrentNetns, a.wallTable()))
}
