package node

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/nodes"
)

// tellLimit is how long edge and inward may take to acknowledge.
const tellLimit = 10 * time.Second

// wire tells edge and inward whose an address is.
type wire struct {
	edge, inward *child.Sibling
	quiet        atomic.Bool
}

var _ nodes.Wire = (*wire)(nil)

// adopting: both are told all at once with the first message on their links, which begin later.
func (w *wire) adopting(yes bool) { w.quiet.Store(yes) }

func (w *wire) Bind(ctx context.Context, p nodes.Placement, init *os.File) error {
	if w.quiet.Load() {
		return nil
	}
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

// Unbind tells those that are there: one that is not has no table either.
func (w *wire) Unbind(ctx context.Context, p nodes.Placement) error {
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
		if _, err := a.nodes.Get(n.Sandbox); err == nil {
			a.names.add(n)
		}
		return struct{}{}, nil
	})
}

// meetEdge brings an edge up to date and gives it the sockets if it has none.
func (a *Agent) meetEdge(ctx context.Context, conn *link.Conn) {
	if err := a.equipEdge(ctx, conn); err != nil && ctx.Err() == nil {
		a.log.Error("the edge could not be equipped; it is told to start anew", "err", err)
		conn.Close()
	}
}

func (a *Agent) equipEdge(ctx context.Context, conn *link.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, tellLimit)
	defer cancel()
	var hello role.EdgeHello
	if err := conn.Call(ctx, role.EdgeSync, role.Sync{Bindings: a.bindings(), Names: a.names.list()}, &hello); err != nil {
		return err
	}
	a.names.add(hello.Names...)
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

func (a *Agent) bindings() []egress.Binding {
	all := []egress.Binding{}
	for _, s := range a.nodes.List() {
		if s.State == nodes.Running || s.State == nodes.Paused {
			all = append(all, binding(s.Placement))
		}
	}
	return all
}

// meetInward hands an inward the listener of each sandbox's init, made anew.
func (a *Agent) meetInward(ctx context.Context, conn *link.Conn) {
	for _, s := range a.nodes.List() {
		if s.State != nodes.Running && s.State != nodes.Paused {
			continue
		}
		if err := a.handInit(ctx, conn, s.Placement); err != nil && ctx.Err() == nil {
			a.log.Error("a sandbox's init socket could not be handed on", "sandbox", s.Sandbox, "err", err)
		}
	}
}

func (a *Agent) handInit(ctx context.Context, conn *link.Conn, p nodes.Placement) error {
	ctx, cancel := context.WithTimeout(ctx, tellLimit)
	defer cancel()
	init, err := a.nodes.Listen(p.Sandbox)
	if err != nil {
		return err
	}
	defer init.Close()
	return conn.Call(ctx, role.InwardBind, binding(p), nil, init)
}
