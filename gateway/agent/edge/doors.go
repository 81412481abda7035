package edge

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/credentials"
	"portreeve.dev/egress/explicit"
	"portreeve.dev/egress/flows"
	"portreeve.dev/egress/proxy"
	"portreeve.dev/egress/socks"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/policies"
)

const (
	// strangers is how many connections at the doors may be at work at once before it is known whose they are, each its share.
	strangers     = 512
	strangersEach = 32
	// newcomers is the same for the socket of one sandbox; the next ones wait in its queue.
	newcomers       = 128
	handshakeLimit  = 10 * time.Second
	firstByteLimit  = 10 * time.Second
	acceptPauseMost = time.Second
)

// doors are the ways in for attached sandboxes: listeners on the network, which ask for a credential, and sockets, which are one.
type doors struct {
	e        *Edge
	explicit *explicit.Server
	gate     *credentials.Gate
	tls      *tls.Config
	network  map[credentials.Door]net.Listener

	mu      sync.Mutex
	sockets map[string]net.Listener // by sandbox
	busy    map[netip.Addr]int      // strangers by address
	total   int
}

func (e *Edge) newDoors() (*doors, error) {
	d := &doors{e: e, network: make(map[credentials.Door]net.Listener), sockets: make(map[string]net.Listener), busy: make(map[netip.Addr]int)}
	var err error
	if d.explicit, err = explicit.New(explicit.Config{Proxy: e.proxy, Log: e.log}); err != nil {
		return nil, err
	}
	d.gate, err = credentials.NewGate(credentials.GateConfig{Lookup: func(sandbox string) (egress.Binding, []credentials.Key, bool) {
		b, ok := e.bindings.Attached(sandbox) // looked further also if it isn't there: the time must not tell
		var keys []credentials.Key
		for _, k := range e.holder.DoorKeys(b.Org) {
			keys = append(keys, credentials.Key{Version: k.Version, Secret: k.Key})
		}
		return b, keys, ok
	}, Now: e.now})
	link.HandleFiles(e.node.Mux, role.EdgeDoor, func(_ context.Context, r role.SandboxRef, files []*os.File) (struct{}, []*os.File, error) {
		return struct{}{}, nil, d.take(r.Sandbox, files)
	})
	return d, err
}

// listen takes the listeners that came with the start, which are in the order of the doors in it.
func (d *doors) listen(start role.EdgeStart, files []*os.File) error {
	defer func() {
		for _, f := range files {
			f.Close() // the listeners made of them have copies of their own
		}
	}()
	var wanted []credentials.Door
	if start.Doors.HTTP {
		wanted = append(wanted, credentials.HTTP)
	}
	if start.Doors.SOCKS {
		wanted = append(wanted, credentials.SOCKS)
	}
	if len(files) != len(wanted) {
		return fmt.Errorf("edge takes %d listeners of doors, not %d", len(wanted), len(files))
	}
	for i, door := range wanted {
		l, err := net.FileListener(files[i])
		if err != nil {
			return fmt.Errorf("taking the listener of the door %q: %w", door, err)
		}
		d.network[door] = l
	}
	d.tls = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if start.Doors.Certificate != "" {
		pair, err := tls.X509KeyPair([]byte(start.Doors.Certificate), []byte(start.Doors.Key))
		if err != nil {
			return fmt.Errorf("egress.doors.certificate: %w", err)
		}
		d.tls.Certificates = []tls.Certificate{pair}
		return nil
	}
	d.tls.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		return d.e.issuer.Leaf(hello.Context(), role.DoorAuthority, start.Doors.Name)
	}
	return nil
}

// serve serves what there is, inside the cage.
func (d *doors) serve() {
	d.e.running.Go(func() { d.e.ended("explicit", d.explicit.Run(d.e.parts)) })
	for door, l := range d.network {
		d.e.running.Go(func() { d.accept(l, nil, func(nc net.Conn, _ func()) { d.stranger(door, nc) }) })
	}
}

// take serves the socket of an attached sandbox, in place of the one that it has.
func (d *doors) take(sandbox string, files []*os.File) error {
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if !d.e.caged.Load() {
		return errors.New("edge is not in its cage yet")
	}
	if len(files) != 1 {
		return fmt.Errorf("edge takes one socket, not %d", len(files))
	}
	l, err := net.FileListener(files[0])
	if err != nil {
		return fmt.Errorf("taking the socket of %q: %w", sandbox, err)
	}
	if _, ok := l.(*net.UnixListener); !ok {
		l.Close()
		return fmt.Errorf("taking the socket of %q: it is none of this machine's", sandbox)
	}
	d.mu.Lock()
	old := d.sockets[sandbox]
	d.sockets[sandbox] = l
	d.mu.Unlock()
	if old != nil {
		old.Close()
	}
	room := make(chan struct{}, newcomers)
	d.e.running.Go(func() { d.accept(l, room, func(nc net.Conn, leave func()) { d.plugged(sandbox, nc, leave) }) })
	return nil
}

// follow makes the table of attached sandboxes what the newest policy says. Whoever is not in it any more is cut off at once.
func (d *doors) follow() {
	there := make(map[string]bool)
	for _, a := range d.e.holder.Attached() {
		there[a.Binding.Sandbox] = true
		if err := d.e.bindings.Attach(a.Binding, a.Ends); err != nil {
			d.e.log.Error("a sandbox can't be attached", "sandbox", a.Binding.Sandbox, "err", err)
		}
	}
	for _, sandbox := range d.e.bindings.AllAttached() {
		if there[sandbox] {
			continue
		}
		d.e.bindings.Detach(sandbox)
		d.e.flows.KillSandbox(sandbox, policies.ReasonUnbound)
		d.e.denials.Drop(sandbox)
		d.e.resolver.Drop(sandbox)
		d.mu.Lock()
		l := d.sockets[sandbox]
		delete(d.sockets, sandbox)
		d.mu.Unlock()
		if l != nil {
			l.Close()
		}
	}
}

// accept hands each connection to serve, until the listener is closed or the edge ends. Where there is room for so many at work, it
// accepts the next one once one of them left.
func (d *doors) accept(l net.Listener, room chan struct{}, serve func(nc net.Conn, leave func())) {
	stop := context.AfterFunc(d.e.parts, func() { l.Close() })
	defer stop()
	var pause time.Duration
	for {
		leave := func() {}
		if room != nil {
			select {
			case room <- struct{}{}:
				leave = sync.OnceFunc(func() { <-room })
			case <-d.e.parts.Done():
				return
			}
		}
		nc, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			d.e.running.Go(func() { serve(nc, leave) })
			continue
		case errors.Is(err, net.ErrClosed):
			return
		}
		leave()
		// Out of descriptors: what is open goes on and will free some.
		pause = min(max(2*pause, 5*time.Millisecond), acceptPauseMost)
		d.e.log.Error("accepting connections", "err", err)
		wait(d.e.parts, nil, nil, pause)
	}
}

// stranger serves a connection at a door on the network: TLS, a credential, then what the door speaks.
func (d *doors) stranger(door credentials.Door, nc net.Conn) {
	from, ok := d.enter(nc)
	if !ok {
		nc.Close()
		return
	}
	leave := sync.OnceFunc(func() { d.leave(from) })
	defer leave()
	ctx, cancel := context.WithTimeout(d.e.parts, handshakeLimit)
	defer cancel()
	conn := tls.Server(nc, d.tls)
	if err := conn.HandshakeContext(ctx); err != nil {
		nc.Close()
		return
	}
	k := asking{d, door, from}
	if door == credentials.SOCKS {
		socks.Serve(d.e.parts, conn, k, socks.Config{Proxy: d.e.proxy, Entered: leave})
		return
	}
	d.explicit.ServeConn(d.e.parts, conn, k)
}

// plugged serves a connection on a sandbox's own socket: SOCKS5 begins with its version, a request of HTTP with a letter. Until the
// proxy counts it as a flow, it leaves its place to nobody, and its descriptor is out of the org's share.
func (d *doors) plugged(sandbox string, nc net.Conn, leave func()) {
	defer leave()
	k := owning{d, sandbox}
	if b, ok := k.Known(); ok {
		if !d.e.flows.TakeDescriptors(b.Org, 1) {
			d.e.proxy.RefuseDoor(d.e.parts, b, proxy.DoorTarget{}, policies.ReasonBudget, flows.ErrDescriptors.Verdict.Message)
			nc.Close()
			return
		}
		stay := leave
		leave = sync.OnceFunc(func() { d.e.flows.GiveDescriptors(b.Org, 1); stay() })
		defer leave()
	}
	_ = nc.SetReadDeadline(time.Now().Add(firstByteLimit))
	peek := &peeked{Conn: nc, r: bufio.NewReaderSize(nc, 16)}
	first, err := peek.r.Peek(1)
	if err != nil {
		nc.Close()
		return
	}
	_ = nc.SetReadDeadline(time.Time{})
	if first[0] == 5 {
		socks.Serve(d.e.parts, peek, k, socks.Config{Proxy: d.e.proxy, Entered: leave})
		return
	}
	d.explicit.ServeConn(d.e.parts, peek, k)
}

// enter counts a stranger in; false when there are too many, or too many from its address.
func (d *doors) enter(nc net.Conn) (netip.Addr, bool) {
	t, ok := nc.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	from := t.AddrPort().Addr().Unmap().WithZone("")
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.total >= strangers || d.busy[from] >= strangersEach {
		return from, false
	}
	d.total++
	d.busy[from]++
	return from, true
}

func (d *doors) leave(from netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total--
	if d.busy[from]--; d.busy[from] <= 0 {
		delete(d.busy, from)
	}
}

// asking keeps a door on the network.
type asking struct {
	d    *doors
	door credentials.Door
	from netip.Addr
}

func (k asking) Known() (egress.Binding, bool) { return egress.Binding{}, false }

func (k asking) Admit(ctx context.Context, username, password string) credentials.Admission {
	return k.d.gate.Admit(ctx, k.door, k.from, username, password)
}

// owning keeps a sandbox's own socket: whoever is connected to it is the sandbox, as long as that is there.
type owning struct {
	d       *doors
	sandbox string
}

func (k owning) Known() (egress.Binding, bool) { return k.d.e.bindings.Attached(k.sandbox) }

func (k owning) Admit(context.Context, string, string) credentials.Admission {
	b, ok := k.Known()
	if !ok {
		return credentials.Admission{Reason: policies.ReasonUnbound}
	}
	return credentials.Admission{Binding: b}
}

// A peeked connection gives back what was looked at.
type peeked struct {
	net.Conn
	r *bufio.Reader
}

func (p *peeked) Read(b []byte) (int, error) { return p.r.Read(b) }

func (p *peeked) CloseWrite() error { return p.Conn.(*net.UnixConn).CloseWrite() }
