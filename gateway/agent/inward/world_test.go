package inward

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"portreeve.dev/egress"
	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/internal/processtest"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/nodes/guest"
	"portreeve.dev/nodes/guest/frame"
)

// patience is how long a test waits for what should take milliseconds.
const patience = processtest.Patience

// bound is a sandbox that has a loopback address.
func bound(n byte) egress.Binding {
	return egress.Binding{Sandbox: fmt.Sprintf("sbx_%d", n), Org: "org_a", Incarnation: 1, Generation: 1, Addr: netip.AddrFrom4([4]byte{127, 0, 2, 2*n + 1})}
}

// A world is an inward in this process, outside of any cage, with its siblings.
type world struct {
	*Inward
	node, control, ingress *link.Conn
	hostile                chan role.Event // what control was told
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Inward: newInward(slog.New(slog.DiscardHandler)), hostile: make(chan role.Event, 8)}
	mine, theirs := processtest.Pair(t)
	supervisor := link.NewConn(mine, nil, link.Limits{})
	go supervisor.Run(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- child.RunOn(context.Background(), theirs, child.Spec{Siblings: w.siblings()}) }()
	t.Cleanup(func() {
		supervisor.Close()
		<-ended
		w.keep(nil)
	})
	mux := link.NewMux()
	link.Handle(mux, role.InwardHostile, func(_ context.Context, e role.Event) (struct{}, error) { w.hostile <- e; return struct{}{}, nil })
	w.node, w.control, w.ingress = meet(t, supervisor, "node", nil), meet(t, supervisor, "control", mux), meet(t, supervisor, "ingress", nil)
	return w
}

// meet introduces the process to a sibling, and returns the sibling's end.
func meet(t *testing.T, supervisor *link.Conn, name string, mux *link.Mux) *link.Conn {
	t.Helper()
	a, b, err := link.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := supervisor.Notify("peer", child.Peer{Name: name}, b); err != nil {
		t.Fatal(err)
	}
	mine, err := link.Socket(a)
	if err != nil {
		t.Fatal(err)
	}
	conn := link.NewConn(mine, mux, link.Limits{})
	go conn.Run(context.Background())
	t.Cleanup(func() { conn.Close() })
	return conn
}

// call is Call that does not wait for ever.
func call(conn *link.Conn, method string, in any, files ...*os.File) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return conn.Call(ctx, method, in, nil, files...)
}

// listenInit makes the socket that an init dials; the file is the only listener.
func listenInit(t *testing.T) (path string, listener *os.File) {
	t.Helper()
	dir, err := os.MkdirTemp("", "inward-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "init.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	defer l.Close()
	f, err := l.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return path, f
}

// An initProcess plays process 1 of a sandbox: a command prints the sandbox's name, and a relay reaches an echo.
type initProcess struct {
	name string
	path string

	mu    sync.Mutex
	conns []net.Conn
	ran   int    // commands
	port  uint16 // what the echo listens on, on loopback
	over  sync.WaitGroup
}

// startInit begins to dial until the test ends.
func startInit(t *testing.T, name, path string) *initProcess {
	t.Helper()
	p := &initProcess{name: name, path: path}
	main, err := p.dial()
	if err != nil {
		t.Fatal(err)
	}
	frame.NewWriter(main).SendMessage(frame.Hello, frame.HelloMessage{Version: frame.Version, PID: 1, BootID: strings.Repeat("b", 32)})
	p.over.Go(func() { p.follow(main) })
	t.Cleanup(func() {
		p.mu.Lock()
		for _, c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.over.Wait()
	})
	return p
}

func (p *initProcess) dial() (net.Conn, error) {
	c, err := net.DialTimeout("unix", p.path, patience)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, c)
	return c, nil
}

func (p *initProcess) commands() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ran
}

func (p *initProcess) listens(port uint16) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return port == p.port
}

// follow opens a stream for each that it is asked for.
func (p *initProcess) follow(main net.Conn) {
	r := frame.NewReader(main)
	for {
		_, payload, err := r.Next(frame.MaxOpening)
		if err != nil {
			return
		}
		open, err := frame.Decode[frame.OpenMessage](payload)
		if err != nil {
			return
		}
		p.over.Go(func() { p.stream(open) })
	}
}

func (p *initProcess) stream(open frame.OpenMessage) {
	c, err := p.dial()
	if err != nil {
		return
	}
	defer c.Close()
	w := frame.NewWriter(c)
	w.SendMessage(frame.Stream, open)
	r := frame.NewReader(c)
	t, payload, err := r.Next(frame.MaxPayload)
	if err != nil {
		return
	}
	op, err := frame.DecodeOperation(t, payload)
	if err != nil {
		return
	}
	switch m := op.Message.(type) {
	case frame.ExecMessage:
		p.run(m, r, w)
	case frame.RelayMessage:
		if !p.listens(m.Port) {
			w.SendMessage(frame.Error, frame.NewError(frame.CodeRefused, ""))
			return
		}
		w.Send(frame.Ready, nil)
		io.WriteString(c, p.name+" on loopback: ")
		io.Copy(c, c)
	}
}

// run prints the sandbox's name; the command "wait" ends only when its caller goes away.
func (p *initProcess) run(m frame.ExecMessage, r *frame.Reader, w *frame.Writer) {
	p.mu.Lock()
	p.ran++
	p.mu.Unlock()
	w.SendMessage(frame.Started, frame.StartedMessage{PID: 2})
	w.Send(frame.Stdout, []byte(p.name))
	if m.Argv[0] == "wait" {
		r.Next(frame.MaxPayload)
		return
	}
	w.SendMessage(frame.Exit, frame.ExitMessage{})
}

// client runs operations as control does.
func (w *world) client(sandbox string) *guest.Client {
	return guest.NewClient(func(context.Context) (net.Conn, error) {
		mine, theirs, err := link.Pair()
		if err != nil {
			return nil, err
		}
		defer theirs.Close()
		socket, err := link.Socket(mine)
		if err != nil {
			return nil, err
		}
		if err := call(w.control, role.InwardOperation, role.SandboxRef{Sandbox: sandbox}, theirs); err != nil {
			socket.Close()
			return nil, err
		}
		return socket, nil
	})
}

// exec runs a command to its end and returns what it printed.
func (w *world) exec(t *testing.T, sandbox string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out strings.Builder
	p, err := w.client(sandbox).Exec(ctx, guest.Exec{Argv: []string{"name"}, Stdout: &out})
	if err != nil {
		return "", err
	}
	_, err = p.Wait()
	return out.String(), err
}
