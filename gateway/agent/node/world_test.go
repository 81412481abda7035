package node

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/nodes"
	"portreeve.dev/nodes/images"
	"portreeve.dev/nodes/nodestest"
)

// patience is how long a test waits for what should take milliseconds.
const patience = 15 * time.Second

// A world is a node in this process: its sandboxes, links and rules are fakes, its siblings are at real sockets.
type world struct {
	*Agent
	outside    *nodestest.World
	supervisor *link.Conn
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Agent: newAgent(slog.New(slog.DiscardHandler)), outside: nodestest.New()}
	t.Cleanup(w.outside.Close)
	w.names = newNames(4)
	state, err := os.MkdirTemp("/var/tmp", "portreeve-node-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(state) })
	w.setup = role.NodeStart{StateDir: state, Synthetic: netip.MustParsePrefix("198.18.0.0/15")}
	init := filepath.Join(state, "init")
	if err := errors.Join(os.Chmod(state, 0o755), os.WriteFile(init, []byte("init"), 0o755)); err != nil {
		t.Fatal(err)
	}
	config := nodes.Config{StateDir: state, Instance: nodes.InstanceOf(state), Init: init, Events: w.keepEvent}
	w.outside.Fill(&config)
	config.Wire = w.wire
	if w.images, err = images.Open(images.Config{Dir: filepath.Join(state, "images"), Log: w.log}); err != nil {
		t.Fatal(err)
	}
	if w.nodes, err = nodes.New(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.nodes.Close)

	mine, theirs := pair(t)
	w.supervisor = link.NewConn(mine, nil, link.Limits{})
	go w.supervisor.Run(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- child.RunOn(context.Background(), theirs, child.Spec{Siblings: w.siblings()}) }()
	t.Cleanup(func() {
		w.supervisor.Close()
		<-ended
	})
	return w
}

func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fa, fb, err := link.Pair()
	if err != nil {
		t.Fatal(err)
	}
	if a, err = link.Socket(fa); err != nil {
		t.Fatal(err)
	}
	if b, err = link.Socket(fb); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// meet introduces the node to a sibling, and returns the sibling's end.
func (w *world) meet(t *testing.T, name string, mux *link.Mux) *link.Conn {
	t.Helper()
	a, b, err := link.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	mine, err := link.Socket(a)
	if err != nil {
		t.Fatal(err)
	}
	conn := link.NewConn(mine, mux, link.Limits{})
	go conn.Run(context.Background())
	t.Cleanup(func() { conn.Close() })
	if err := w.supervisor.Notify("peer", child.Peer{Name: name}, b); err != nil {
		t.Fatal(err)
	}
	return conn
}

// errSibling is what a sibling says that does not want to.
var errSibling = errors.New("not now")

// An edgeSide is what an edge is told, and what it answers.
type edgeSide struct {
	mu      sync.Mutex
	refuse  bool
	hello   role.EdgeHello
	bound   []egress.Binding
	unbound []role.Unbind
	syncs   []role.Sync
	sockets []*os.File
}

func (e *edgeSide) mux() *link.Mux {
	mux := link.NewMux()
	link.Handle(mux, role.EdgeSync, func(_ context.Context, s role.Sync) (role.EdgeHello, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.syncs = append(e.syncs, s)
		return e.hello, e.answer()
	})
	link.Handle(mux, role.EdgeBind, func(_ context.Context, b egress.Binding) (struct{}, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.bound = append(e.bound, b)
		return struct{}{}, e.answer()
	})
	link.Handle(mux, role.EdgeUnbind, func(_ context.Context, u role.Unbind) (struct{}, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.unbound = append(e.unbound, u)
		return struct{}{}, nil
	})
	link.HandleFiles(mux, role.EdgeSockets, func(_ context.Context, _ struct{}, files []*os.File) (struct{}, []*os.File, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.sockets = append(e.sockets, files...)
		return struct{}{}, nil, e.answer()
	})
	return mux
}

func (e *edgeSide) answer() error {
	if e.refuse {
		return errSibling
	}
	return nil
}

func (e *edgeSide) setRefuse(yes bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refuse = yes
}

func (e *edgeSide) syncCount() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.syncs)
}

func (e *edgeSide) takeSockets() []*os.File {
	e.mu.Lock()
	defer e.mu.Unlock()
	files := e.sockets
	e.sockets = nil
	return files
}

func (e *edgeSide) has(sandbox string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.bound, func(b egress.Binding) bool { return b.Sandbox == sandbox })
}

// An inwardSide is what an inward is told, and what it answers.
type inwardSide struct {
	mu     sync.Mutex
	refuse bool
	kept   [][]string
	inits  map[string]*os.File // listeners, by sandbox
}

func (i *inwardSide) mux() *link.Mux {
	i.inits = make(map[string]*os.File)
	mux := link.NewMux()
	link.HandleFiles(mux, role.InwardBind, func(_ context.Context, b egress.Binding, files []*os.File) (struct{}, []*os.File, error) {
		i.mu.Lock()
		defer i.mu.Unlock()
		if len(files) > 0 {
			i.inits[b.Sandbox] = files[0]
		}
		if i.refuse {
			return struct{}{}, nil, errSibling
		}
		return struct{}{}, nil, nil
	})
	link.Handle(mux, role.InwardUnbind, func(context.Context, role.SandboxRef) (struct{}, error) { return struct{}{}, nil })
	link.Handle(mux, role.InwardSync, func(_ context.Context, k role.InwardKeep) (struct{}, error) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.kept = append(i.kept, k.Sandboxes)
		return struct{}{}, nil
	})
	return mux
}

func (i *inwardSide) setRefuse(yes bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.refuse = yes
}

func (i *inwardSide) listener(sandbox string) *os.File {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.inits[sandbox]
}

// spec asks for a sandbox.
func spec(name string) role.NodeSpec {
	return role.NodeSpec{Sandbox: "sbx_" + name, Org: "org_1", Image: "tiny", MemoryBytes: 64 << 20, CPUMillis: 1000, Incarnation: 1, Generation: 1, MinRevision: 7}
}

// call is Call that does not wait for ever.
func call(conn *link.Conn, method string, in, out any) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return conn.Call(ctx, method, in, out)
}

// code is the one that an error of a link carries.
func code(err error) string {
	if e, ok := errors.AsType[*link.Error](err); ok {
		return e.Code
	}
	return ""
}

// started reports whether the first process of any sandbox was started.
func (w *world) started() bool { return slices.Contains(w.outside.Calls, "Driver.Start") }

// await asks again and again.
func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !f() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s did not come", what)
		}
	}
}

// dialled wants that the listener that inward was given last is what the one sandbox's init dials. One that was made while
// inward came may be given twice.
func (w *world) dialled(t *testing.T, i *inwardSide, sandbox string) {
	t.Helper()
	await(t, "a connection of init's", func() bool {
		f := i.listener(sandbox)
		if f == nil {
			return false
		}
		l, err := net.FileListener(f)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		paths, err := filepath.Glob(filepath.Join(w.setup.StateDir, "node/sandboxes/*/control/init.sock"))
		if err != nil || len(paths) != 1 {
			t.Fatalf("the sockets of inits: %v, %v", paths, err)
		}
		c, err := net.DialTimeout("unix", paths[0], patience)
		if err != nil {
			return false
		}
		defer c.Close()
		l.(*net.UnixListener).SetDeadline(time.Now().Add(100 * time.Millisecond))
		init, err := l.Accept()
		if err != nil {
			return false
		}
		init.Close() // nobody else dials, so it is this one, or one of an earlier try
		return true
	})
}
