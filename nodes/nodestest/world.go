package nodestest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"portreeve.dev/nodes"
	"portreeve.dev/nodes/cgroup"
	"portreeve.dev/nodes/images"
	"portreeve.dev/nodes/runsc"
)

// ErrFault is the error that a fault gives.
var ErrFault = errors.New("injected fault")

// A World is everything outside the node. Its methods are safe for concurrent use; its fields are for before and after.
type World struct {
	mu         sync.Mutex
	Fault      string            // "Driver.Start:after"
	Calls      []string          // in order
	Hook       func(call string) // called at the begin of each call; must not call back
	Violations []string          // steps that were unsafe when they were taken

	links      map[nodes.Link]bool // true: up
	elements   map[string]bool
	bound      map[string]nodes.Placement
	listeners  map[string]*os.File
	containers map[string]*container
	groups     map[string]bool
	kills      map[string]uint64
	next       byte
	// Unlimited makes Confirm fail, as if a limit were not in the kernel.
	Unlimited bool
}

type container struct {
	status string
	cmd    *exec.Cmd
	once   sync.Once
}

// New returns an empty world.
func New() *World {
	return &World{links: map[nodes.Link]bool{}, elements: map[string]bool{}, bound: map[string]nodes.Placement{}, listeners: map[string]*os.File{},
		containers: map[string]*container{}, groups: map[string]bool{}, kills: map[string]uint64{}}
}

// Fill puts the fakes into a config.
func (w *World) Fill(c *nodes.Config) {
	c.Driver, c.Network, c.Firewall, c.Wire, c.Images, c.Cgroups = driver{w}, network{w}, firewall{w}, wire{w}, store{w}, groups{w}
}

// Left lists everything that exists.
func (w *World) Left() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var left []string
	for l := range w.links {
		left = append(left, "link "+l.Interface)
	}
	for e := range w.elements {
		left = append(left, "element "+e)
	}
	for s := range w.bound {
		left = append(left, "binding "+s)
	}
	for id := range w.containers {
		left = append(left, "container "+id)
	}
	for id := range w.groups {
		left = append(left, "group "+id)
	}
	slices.Sort(left)
	return left
}

// Kill ends the process of a sandbox from outside; with oom as the kernel does it for want of memory.
func (w *World) Kill(runscID string, oom bool) {
	w.mu.Lock()
	c := w.containers[runscID]
	if oom {
		w.kills[runscID]++
	}
	w.mu.Unlock()
	c.stop()
}

// Listener returns the listener that Bind was given for a sandbox; it is the test's.
func (w *World) Listener(sandbox string) *os.File {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listeners[sandbox]
}

// Bound returns what the wire knows of a sandbox.
func (w *World) Bound(sandbox string) (nodes.Placement, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := w.bound[sandbox]
	return p, ok
}

// Close ends all processes.
func (w *World) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.containers {
		c.stop()
	}
	for _, l := range w.listeners {
		_ = l.Close()
	}
}

// do takes one step, with its faults; effect runs under the lock.
func (w *World) do(ctx context.Context, name string, effect func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Calls = append(w.Calls, name)
	if w.Hook != nil {
		w.Hook(name)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.Fault == name+":before" {
		return fmt.Errorf("%s: %w", name, ErrFault)
	}
	if err := effect(); err != nil {
		return err
	}
	if w.Fault == name+":after" {
		return fmt.Errorf("%s: %w", name, ErrFault)
	}
	return nil
}

func (w *World) unsafe(format string, args ...any) {
	w.Violations = append(w.Violations, fmt.Sprintf(format, args...))
}

func element(iface string, a netip.Addr) string { return iface + " " + a.String() }

// ready notes if a sandbox with that link may not send or run yet.
func (w *World) ready(step string, l nodes.Link) {
	if !w.elements[element(l.Interface, l.Addr)] {
		w.unsafe("%s of %s without its firewall element", step, l.Interface)
	}
	for _, p := range w.bound {
		if p.Interface == l.Interface && p.Addr == l.Addr {
			return
		}
	}
	w.unsafe("%s of %s without a binding", step, l.Interface)
}

type driver struct{ w *World }

func (d driver) Create(ctx context.Context, r runsc.Create) (pid int, err error) {
	err = d.w.do(ctx, "Driver.Create", func() error {
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			return err
		}
		d.w.containers[r.ID], d.w.groups[r.ID] = &container{status: "created", cmd: cmd}, true
		pid = cmd.Process.Pid
		return nil
	})
	return pid, err
}

func (d driver) Start(ctx context.Context, id string) error {
	return d.w.do(ctx, "Driver.Start", func() error {
		up := false
		for l, isUp := range d.w.links {
			if isUp {
				up = true
				d.w.ready("start", l)
			}
		}
		if !up {
			d.w.unsafe("start without a link that is up")
		}
		return d.change(id, "created", "running")
	})
}

func (d driver) Pause(ctx context.Context, id string) error {
	return d.w.do(ctx, "Driver.Pause", func() error { return d.change(id, "running", "paused") })
}

func (d driver) Resume(ctx context.Context, id string) error {
	return d.w.do(ctx, "Driver.Resume", func() error { return d.change(id, "paused", "running") })
}

func (d driver) change(id, from, to string) error {
	c := d.w.containers[id]
	if c == nil {
		return runsc.ErrNotFound
	}
	if c.status != from {
		return fmt.Errorf("container %s is %s", id, c.status)
	}
	c.status = to
	return nil
}

func (d driver) Delete(ctx context.Context, id string) error {
	return d.w.do(ctx, "Driver.Delete", func() error {
		if c := d.w.containers[id]; c != nil {
			c.stop()
			delete(d.w.containers, id)
		}
		return nil
	})
}

func (d driver) State(ctx context.Context, id string) (s runsc.State, err error) {
	err = d.w.do(ctx, "Driver.State", func() error {
		c := d.w.containers[id]
		if c == nil {
			return runsc.ErrNotFound
		}
		s = runsc.State{ID: id, Status: c.status, PID: c.cmd.Process.Pid}
		return nil
	})
	return s, err
}

func (d driver) List(ctx context.Context) (all []runsc.State, err error) {
	err = d.w.do(ctx, "Driver.List", func() error {
		for id, c := range d.w.containers {
			all = append(all, runsc.State{ID: id, Status: c.status})
		}
		return nil
	})
	return all, err
}

func (c *container) stop() {
	c.once.Do(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
}

type network struct{ w *World }

func (n network) Make(ctx context.Context, _ string) (l nodes.Link, err error) {
	err = n.w.do(ctx, "Network.Make", func() error {
		n.w.next += 2
		l = nodes.Link{Netns: fmt.Sprintf("/run/netns/fake%d", n.w.next), Interface: fmt.Sprintf("prfake%d", n.w.next),
			Gateway: netip.AddrFrom4([4]byte{10, 200, 0, n.w.next}), Addr: netip.AddrFrom4([4]byte{10, 200, 0, n.w.next + 1})}
		if n.w.Fault != "Network.Make:after" { // its contract: on error nothing is left
			n.w.links[l] = false
		}
		return nil
	})
	if err != nil {
		return nodes.Link{}, err
	}
	return l, nil
}

func (n network) Readdress(ctx context.Context, l nodes.Link) error {
	return n.w.do(ctx, "Network.Readdress", func() error { return n.has(l) })
}

func (n network) Up(ctx context.Context, l nodes.Link) error {
	return n.w.do(ctx, "Network.Up", func() error {
		n.w.ready("up", l)
		err := n.has(l)
		n.w.links[l] = true
		return err
	})
}

func (n network) Remove(ctx context.Context, l nodes.Link) error {
	return n.w.do(ctx, "Network.Remove", func() error {
		if n.w.elements[element(l.Interface, l.Addr)] {
			n.w.unsafe("link %s removed while its element is set", l.Interface)
		}
		for s, p := range n.w.bound {
			if p.Addr == l.Addr {
				n.w.unsafe("address of %s given back while it is bound", s)
			}
		}
		delete(n.w.links, l)
		return nil
	})
}

func (n network) List(ctx context.Context) (all []nodes.Link, err error) {
	err = n.w.do(ctx, "Network.List", func() error {
		for l := range n.w.links {
			all = append(all, l)
		}
		return nil
	})
	return all, err
}

func (n network) has(l nodes.Link) error {
	if _, ok := n.w.links[l]; !ok {
		return fmt.Errorf("no link %s", l.Interface)
	}
	return nil
}

type firewall struct{ w *World }

func (f firewall) Add(ctx context.Context, iface string, a netip.Addr) error {
	return f.w.do(ctx, "Firewall.Add", func() error { f.w.elements[element(iface, a)] = true; return nil })
}

func (f firewall) Remove(ctx context.Context, iface string, a netip.Addr) error {
	return f.w.do(ctx, "Firewall.Remove", func() error { delete(f.w.elements, element(iface, a)); return nil })
}

type wire struct{ w *World }

func (x wire) Bind(ctx context.Context, p nodes.Placement, init *os.File) error {
	return x.w.do(ctx, "Wire.Bind", func() error {
		if init != nil {
			fd, err := unix.FcntlInt(init.Fd(), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				return err
			}
			if old := x.w.listeners[p.Sandbox]; old != nil {
				_ = old.Close()
			}
			x.w.listeners[p.Sandbox] = os.NewFile(uintptr(fd), "init.sock")
		}
		x.w.bound[p.Sandbox] = p
		return nil
	})
}

func (x wire) Unbind(ctx context.Context, p nodes.Placement) error {
	return x.w.do(ctx, "Wire.Unbind", func() error { delete(x.w.bound, p.Sandbox); return nil })
}

type store struct{ w *World }

func (s store) Resolve(name string) (images.Image, error) {
	if name != "tiny" {
		return images.Image{}, images.ErrUnknown
	}
	return images.Image{Name: name, Digest: "sha256:fake", Rootfs: "/fake/rootfs"}, nil
}

type groups struct{ w *World }

func (g groups) Prepare() error        { return nil }
func (g groups) Path(id string) string { return "/portreeve-fake/" + id }
func (g groups) SwapAccounting() bool  { return true }
func (g groups) List() ([]string, error) {
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	var ids []string
	for id := range g.w.groups {
		ids = append(ids, id)
	}
	return ids, nil
}

func (g groups) Confirm(id string, _ cgroup.Limits) error {
	return g.w.do(context.Background(), "Cgroups.Confirm", func() error {
		if g.w.Unlimited || !g.w.groups[id] {
			return errors.New("memory limit is none")
		}
		return nil
	})
}

func (g groups) OOMKills(id string) (n uint64, err error) {
	err = g.w.do(context.Background(), "Cgroups.OOMKills", func() error {
		if g.w.groups[id] { // the count goes with the group
			n = g.w.kills[id]
		}
		return nil
	})
	return n, err
}

func (g groups) Remove(ctx context.Context, id string) error {
	return g.w.do(ctx, "Cgroups.Remove", func() error { delete(g.w.groups, id); return nil })
}

func (g groups) Purge(ctx context.Context) error {
	return g.w.do(ctx, "Cgroups.Purge", func() error { clear(g.w.groups); return nil })
}
