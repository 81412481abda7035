package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"portreeve.dev/egress"
	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/nodes"
)

// tellLimit is how long edge and inward may take to acknowledge, retryPause how long they are left alone after that.
const (
	tellLimit  = 10 * time.Second
	retryPause = time.Second
)

// wire tells edge and inward whose an address is.
type wire struct {
	edge, inward *child.Sibling
	quiet        atomic.Bool
	// order is held for writing while a new edge or inward is told everything, so that a list never undoes what came after it.
	order sync.RWMutex

	mu   sync.Mutex
	kept map[string]*os.File // listeners of inits that nobody has been given yet, by sandbox
}

var _ nodes.Wire = (*wire)(nil)

// adopting: both are told all at once with the first message on their links, which begin later.
func (w *wire) adopting(yes bool) { w.quiet.Store(yes) }

func (w *wire) Bind(ctx context.Context, p nodes.Placement, init *os.File) error {
	if w.quiet.Load() {
		return w.keep(p.Sandbox, init)
	}
	w.order.RLock()
	defer w.order.RUnlock()
	ctx, cancel := context.WithTimeout(ctx, tellLimit)
	defer cancel()
	if err := w.edge.Call(ctx, role.EdgeBind, binding(p), nil); err != nil {
		return fmt.Errorf("telling edge of %q: %w", p.Sandbox, err)
	}
	conn, err := w.inward.Wait(ctx)
	if err != nil {
		return fmt.Errorf("telling inward of %q: %w", p.Sandbox, err)
	}
	var files []*os.File
	if init != nil {
		files = append(files, init)
	}
	if err := conn.Call(ctx, role.InwardBind, binding(p), nil, files...); err != nil {
		return fmt.Errorf("telling inward of %q: %w", p.Sandbox, err)
	}
	return nil
}

// keep holds the listener until there is an inward: init's dials wait in its queue.
func (w *wire) keep(sandbox string, init *os.File) error {
	if init == nil {
		return nil
	}
	fd, err := unix.FcntlInt(init.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kept == nil {
		w.kept = make(map[string]*os.File)
	}
	w.kept[sandbox] = os.NewFile(uintptr(fd), init.Name())
	return nil
}

// taken returns the listener that was kept, nil if there is none.
func (w *wire) taken(sandbox string) *os.File {
	w.mu.Lock()
	defer w.mu.Unlock()
	init := w.kept[sandbox]
	delete(w.kept, sandbox)
	return init
}

// Unbind tells those that are there: one that is not has no table either.
func (w *wire) Unbind(ctx context.Context, p nodes.Placement) error {
	if init := w.taken(p.Sandbox); init != nil {
		init.Close()
	}
	w.order.RLock()
	defer w.order.RUnlock()
	ctx, cancel := context.WithTimeout(ctx, tellLimit)
	defer cancel()
	if conn := w.edge.Now(); conn != nil {
		if err := ignoreClosed(conn.Call(ctx, role.EdgeUnbind, role.Unbind{Sandbox: p.Sandbox, Addr: p.Addr}, nil)); err != nil {
			return fmt.Errorf("telling edge that %q is gone: %w", p.Sandbox, err)
		}
	}
	if conn := w.inward.Now(); conn != nil {
		if err := ignoreClosed(conn.Call(ctx, role.InwardUnbind, role.SandboxRef{Sandbox: p.Sandbox}, nil)); err != nil {
			return fmt.Errorf("telling inward that %q is gone: %w", p.Sandbox, err)
		}
	}
	return nil
}

func ignoreClosed(err error) error {
	if isClosed(err) {
		return nil
	}
	return err
}

func binding(p nodes.Placement) egress.Binding {
	return egress.Binding{Sandbox: p.Sandbox, Org: p.Org, Incarnation: p.Incarnation, Generation: p.Generation,
		Addr: p.Addr, Interface: p.Interface, MinRevision: p.MinRevision}
}

// registerEdge is what the edge may say: that it gave a name an address.
func (a *Agent) registerEdge() {
	link.Handle(a.edge.Mux, role.EdgeName, func(_ context.Context, n role.Name) (struct{}, error) {
		return struct{}{}, a.keepName(n)
	})
}

// keepName keeps what the edge says only where it can be true, so that it stays within the sandboxes and the range that there are.
func (a *Agent) keepName(n role.Name) error {
	now, err := a.nodes.Get(n.Sandbox)
	if err != nil {
		return err
	}
	if now.Incarnation != n.Incarnation || !a.setup.Synthetic.Contains(n.Addr) || len(n.Host) > 253 {
		return fmt.Errorf("name at %v of %q: not one that this sandbox can have", n.Addr, n.Sandbox)
	}
	return a.names.add(n)
}

// meetEdge brings an edge up to date and gives it the sockets if it has none.
func (a *Agent) meetEdge(ctx context.Context, conn *link.Conn) {
	a.untilDone(ctx, "the edge could not be equipped", func() error { return a.equipEdge(ctx, conn) })
	a.handDoors(ctx, conn)
}

// untilDone tries again until it is done or the link is gone: a sibling that lives is introduced only once.
func (a *Agent) untilDone(ctx context.Context, what string, do func() error) {
	for {
		err := do()
		if err == nil || ctx.Err() != nil {
			return
		}
		a.log.Error(what, "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
}

func (a *Agent) equipEdge(ctx context.Context, conn *link.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, tellLimit)
	defer cancel()
	hello, err := a.syncEdge(ctx, conn)
	if err != nil {
		return err
	}
	for _, n := range hello.Names {
		if err := a.keepName(n); err != nil {
			a.log.Warn("a name of the edge's is left out", "err", err)
		}
	}
	if hello.Serving {
		return nil
	}
	s, err := a.netns.Sockets()
	if err != nil {
		return err
	}
	defer s.Close() // the edge has the only copies: without it, connects are refused
	return conn.Call(ctx, role.EdgeSockets, struct{}{}, nil, s.Proxy, s.DNSPacket, s.DNSStream)
}

func (a *Agent) syncEdge(ctx context.Context, conn *link.Conn) (hello role.EdgeHello, err error) {
	a.wire.order.Lock()
	defer a.wire.order.Unlock()
	all := []egress.Binding{}
	for _, s := range a.bound() {
		all = append(all, binding(s.Placement))
	}
	err = conn.Call(ctx, role.EdgeSync, role.Sync{Bindings: all, Names: a.names.list()}, &hello)
	return hello, err
}

// bound is the sandboxes that edge and inward may know: those being made may have been told to ones that are gone.
func (a *Agent) bound() (all []nodes.Status) {
	for _, s := range a.nodes.List() {
		if s.State != nodes.Deleting && s.Addr.IsValid() {
			all = append(all, s)
		}
	}
	return all
}

func (a *Agent) syncInward(ctx context.Context, conn *link.Conn) ([]nodes.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, tellLimit)
	defer cancel()
	a.wire.order.Lock()
	defer a.wire.order.Unlock()
	all, names := a.bound(), role.InwardKeep{Sandboxes: []string{}}
	for _, s := range all {
		names.Sandboxes = append(names.Sandboxes, s.Sandbox)
	}
	return all, conn.Call(ctx, role.InwardSync, names, nil)
}

// meetInward tells an inward what there is, and hands it the listener of each sandbox's init.
func (a *Agent) meetInward(ctx context.Context, conn *link.Conn) {
	var all []nodes.Status
	a.untilDone(ctx, "inward could not be told what there is", func() (err error) {
		all, err = a.syncInward(ctx, conn)
		return err
	})
	for _, s := range all {
		a.untilDone(ctx, "a sandbox's init socket could not be handed on", func() error {
			err := a.handInit(ctx, conn, s.Placement)
			if errors.Is(err, nodes.ErrUnknown) || errors.Is(err, nodes.ErrNotReady) {
				return nil // ended meanwhile
			}
			return err
		})
	}
}

func (a *Agent) handInit(ctx context.Context, conn *link.Conn, p nodes.Placement) error {
	ctx, cancel := context.WithTimeout(ctx, tellLimit)
	defer cancel()
	init := a.wire.taken(p.Sandbox)
	if init == nil { // the last inward had it
		var err error
		if init, err = a.nodes.Listen(p.Sandbox); err != nil {
			return err
		}
	}
	defer init.Close()
	return conn.Call(ctx, role.InwardBind, binding(p), nil, init)
}
