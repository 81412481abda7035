package edge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"portreeve.dev/egress"
	"portreeve.dev/egress/resolver"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/policies"
)

// registerNode is what the node may ask.
func (e *Edge) registerNode() {
	mux := e.node.Mux
	link.Handle(mux, role.EdgeSync, func(_ context.Context, s role.Sync) (role.EdgeHello, error) { return e.sync(s) })
	link.HandleFiles(mux, role.EdgeSockets, func(_ context.Context, _ struct{}, files []*os.File) (struct{}, []*os.File, error) {
		return struct{}{}, nil, e.serve(files)
	})
	link.Handle(mux, role.EdgeBind, func(_ context.Context, b egress.Binding) (struct{}, error) {
		return struct{}{}, e.bindings.Bind(b)
	})
	link.Handle(mux, role.EdgeUnbind, func(_ context.Context, u role.Unbind) (struct{}, error) {
		e.unbind(u)
		return struct{}{}, nil
	})
}

// sync takes the node's table as the truth about addresses, and adds its names to ours. A sandbox whose names there contradict
// those here is cut off: an address of its would come to stand for two names. A table of addresses that contradicts ours ends the
// process, and the next one begins with the node's.
func (e *Edge) sync(s role.Sync) (hello role.EdgeHello, err error) {
	defer func() {
		if err != nil {
			e.log.Error("the node's table does not fit this one", "err", err)
			e.fail()
		}
	}()
	live := make(map[string]bool, len(s.Bindings))
	for _, b := range s.Bindings {
		live[b.Sandbox] = true
	}
	for _, b := range e.bindings.All() {
		if !live[b.Sandbox] {
			e.unbind(role.Unbind{Sandbox: b.Sandbox, Addr: b.Addr})
		}
	}
	entries := make(map[string][]resolver.Entry)
	for _, n := range s.Names {
		entries[n.Sandbox] = append(entries[n.Sandbox], resolver.Entry{Sandbox: n.Sandbox, Incarnation: n.Incarnation, Name: n.Host, Addr: n.Addr})
	}
	for _, b := range s.Bindings {
		if err := e.names.Import(entries[b.Sandbox]); err != nil {
			e.log.Error("a sandbox is cut off", "sandbox", b.Sandbox, "err", err)
			e.unbind(role.Unbind{Sandbox: b.Sandbox, Addr: b.Addr})
			continue
		}
		if err := e.bindings.Bind(b); err != nil {
			return role.EdgeHello{}, err
		}
	}
	hello.Serving = e.serving.Load()
	for _, n := range e.names.Export() {
		hello.Names = append(hello.Names, role.Name{Sandbox: n.Sandbox, Incarnation: n.Incarnation, Host: n.Name, Addr: n.Addr})
	}
	return hello, nil
}

// unbind takes an address away and ends what is open on it.
func (e *Edge) unbind(u role.Unbind) {
	if !e.bindings.Unbind(u.Sandbox, u.Addr) {
		return
	}
	e.flows.KillSandbox(u.Sandbox, policies.ReasonUnbound)
	e.resolver.Drop(u.Sandbox)
	e.names.Drop(u.Sandbox)
	e.denials.Drop(u.Sandbox)
}

// serve takes the sockets of the edge netns: TCP, DNS over UDP, DNS over TCP. What it can't use ends the process: nobody else
// could serve in its place.
func (e *Edge) serve(files []*os.File) error {
	defer func() {
		for _, f := range files {
			f.Close() // the listeners made of them have copies of their own
		}
	}()
	if !e.caged.Load() {
		return errors.New("edge is not in its cage yet")
	}
	if len(files) != 3 {
		return fmt.Errorf("edge takes three sockets, not %d", len(files))
	}
	if e.serving.Swap(true) {
		return errors.New("edge has its sockets already")
	}
	tcp, udp, dns, err := sockets(files)
	if err != nil {
		e.fail()
		return err
	}
	e.running.Go(func() { e.ended("resolver", e.resolver.Serve(e.parts, udp, dns)) })
	e.running.Go(func() { e.ended("proxy", e.proxy.Serve(e.parts, tcp)) })
	e.running.Go(func() { e.ended("flows", e.flows.Run(e.parts)) })
	e.running.Go(func() { e.ended("usage", e.usage.run(e.parts)) })
	return nil
}

func sockets(files []*os.File) (tcp net.Listener, udp *net.UDPConn, dns net.Listener, err error) {
	if tcp, err = net.FileListener(files[0]); err != nil {
		return nil, nil, nil, fmt.Errorf("taking the TCP socket: %w", err)
	}
	packets, err := net.FilePacketConn(files[1])
	if err != nil {
		return nil, nil, nil, fmt.Errorf("taking the UDP socket: %w", err)
	}
	udp, ok := packets.(*net.UDPConn)
	if !ok {
		return nil, nil, nil, errors.New("taking the UDP socket: it is none")
	}
	if dns, err = net.FileListener(files[2]); err != nil {
		return nil, nil, nil, fmt.Errorf("taking the TCP socket for DNS: %w", err)
	}
	return tcp, udp, dns, nil
}

// ended ends the process when a part of it ended by itself: a new one has all parts, and new sockets.
func (e *Edge) ended(part string, err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) {
		e.log.Error("a part of the edge ended", "part", part, "err", err)
		e.fail()
	}
}

// errNoNode is why there are no new names: this process alone would take them along when it dies.
var errNoNode = errors.New("the node is away")

// tellName hands a new name to the node; what it wrote outlives this process. While the node is away there are no new names.
func (e *Edge) tellName(n resolver.Entry) error {
	conn := e.node.Now()
	if conn == nil {
		return errNoNode
	}
	return conn.Notify(role.EdgeName, role.Name{Sandbox: n.Sandbox, Incarnation: n.Incarnation, Host: n.Name, Addr: n.Addr})
}
