package inward

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/gateway/internal/processtest"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/nodes/guest"
)

// code is the one that an error of a link carries.
func code(err error) string {
	if e, ok := errors.AsType[*link.Error](err); ok {
		return e.Code
	}
	return ""
}

// bind gives inward a sandbox whose init has dialled.
func (w *world) bindOne(t *testing.T, b egress.Binding) *initProcess {
	t.Helper()
	path, listener := listenInit(t)
	if err := call(w.node, role.InwardBind, b, listener); err != nil {
		t.Fatal(err)
	}
	listener.Close()
	p := startInit(t, b.Sandbox, path)
	if err := call(w.control, role.InwardReady, role.SandboxRef{Sandbox: b.Sandbox}); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestBindIsRefusedOutsideTheCage(t *testing.T) {
	w := newWorld(t)
	path, listener := listenInit(t)
	if err := call(w.node, role.InwardBind, bound(1), listener); err == nil || !strings.Contains(err.Error(), "once it is in its cage") {
		t.Fatalf("binding outside of the cage: %v", err)
	}
	listener.Close()
	if c, err := net.DialTimeout("unix", path, patience); !errors.Is(err, syscall.ECONNREFUSED) {
		if err == nil {
			c.Close()
		}
		t.Errorf("an init dials a socket that was refused: %v", err)
	}
	if _, err := w.exec(t, bound(1).Sandbox); code(err) != role.CodeUnknown {
		t.Errorf("a command in it: %v", err)
	}

	w.caged.Store(true)
	w.bindOne(t, bound(1))
	if said, err := w.exec(t, bound(1).Sandbox); err != nil || said != bound(1).Sandbox {
		t.Errorf("the same, inside: %q, %v", said, err)
	}
	// One listener comes with a sandbox that is new, and no more.
	_, one := listenInit(t)
	_, two := listenInit(t)
	if err := call(w.node, role.InwardBind, bound(2), one, two); err == nil {
		t.Error("two listeners were taken")
	}
}

func TestOperationNeedsABoundSandbox(t *testing.T) {
	w := newWorld(t)
	w.caged.Store(true)
	first := w.bindOne(t, bound(1))
	if _, err := w.exec(t, bound(2).Sandbox); code(err) != role.CodeUnknown {
		t.Errorf("a command in a sandbox that is not bound: %v", err)
	}
	second := w.bindOne(t, bound(2))
	for _, b := range []egress.Binding{bound(1), bound(2)} {
		if said, err := w.exec(t, b.Sandbox); err != nil || said != b.Sandbox {
			t.Errorf("a command in %s: %q, %v", b.Sandbox, said, err)
		}
	}
	if first.commands() != 1 || second.commands() != 1 {
		t.Errorf("they ran %d and %d commands", first.commands(), second.commands())
	}
	if err := call(w.control, role.InwardOperation, role.SandboxRef{Sandbox: bound(1).Sandbox}); err == nil {
		t.Error("an operation without a socket was taken")
	}

	// One that is no longer bound: what runs ends, and nothing new begins.
	running, err := w.client(bound(1).Sandbox).Exec(t.Context(), guest.Exec{Argv: []string{"wait"}, Stdout: &strings.Builder{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := call(w.node, role.InwardUnbind, role.SandboxRef{Sandbox: bound(1).Sandbox}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _, err := running.Wait(); ended <- err }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a command of a sandbox that is gone ended well")
		}
	case <-time.After(patience):
		t.Fatal("a command of a sandbox that is gone goes on")
	}
	if _, err := w.exec(t, bound(1).Sandbox); code(err) != role.CodeUnknown {
		t.Errorf("a command in a sandbox that is gone: %v", err)
	}
	if first.commands() != 2 {
		t.Errorf("%d commands were run in it", first.commands())
	}
	if said, err := w.exec(t, bound(2).Sandbox); err != nil || said != bound(2).Sandbox {
		t.Errorf("its neighbour: %q, %v", said, err)
	}
}

func TestNewLinkForgetsWhatIsGone(t *testing.T) {
	w := newWorld(t)
	w.caged.Store(true)
	w.bindOne(t, bound(1))
	w.bindOne(t, bound(2))
	if err := call(w.node, role.InwardSync, role.InwardKeep{Sandboxes: []string{bound(2).Sandbox}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.exec(t, bound(1).Sandbox); code(err) != role.CodeUnknown {
		t.Errorf("a command in one that is gone: %v", err)
	}
	if _, err := w.exec(t, bound(2).Sandbox); err != nil {
		t.Errorf("in the one that is there: %v", err)
	}
}

func TestRestartedNodeKeepsWhatRuns(t *testing.T) {
	w := newWorld(t)
	w.caged.Store(true)
	w.bindOne(t, bound(1))
	var out strings.Builder
	running, err := w.client(bound(1).Sandbox).Exec(t.Context(), guest.Exec{Argv: []string{"wait"}, Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	path, listener := listenInit(t)
	if err := call(w.node, role.InwardBind, bound(1), listener); err != nil {
		t.Fatal(err)
	}
	startInit(t, "anew", path)
	processtest.Await(t, "the new connection", func() bool { said, err := w.exec(t, bound(1).Sandbox); return err == nil && said == "anew" })
	ended := make(chan struct{})
	go func() { running.Wait(); close(ended) }()
	select {
	case <-ended:
		t.Error("a command did not outlive the node")
	default:
	}
	running.Cancel()
	<-ended

	// A new incarnation is another sandbox.
	later := bound(1)
	later.Incarnation++
	if err := call(w.node, role.InwardBind, later); err == nil {
		t.Error("an incarnation that nobody knows goes on")
	}
	w.bindOne(t, later)
}

func TestReadyWaitsForTheBinding(t *testing.T) {
	w := newWorld(t)
	w.caged.Store(true)
	ready := make(chan error, 1)
	go func() { ready <- call(w.control, role.InwardReady, role.SandboxRef{Sandbox: bound(1).Sandbox}) }()
	w.bindOne(t, bound(1))
	if err := <-ready; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.ready(ctx, bound(2).Sandbox); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for nobody: %v", err)
	}
}

func TestHostileInitIsTold(t *testing.T) {
	w := newWorld(t)
	w.caged.Store(true)
	b := bound(1)
	b.Generation = 7
	path, listener := listenInit(t)
	if err := call(w.node, role.InwardBind, b, listener); err != nil {
		t.Fatal(err)
	}
	listener.Close()
	processtest.Await(t, "the end of its session", func() bool {
		c, err := net.Dial("unix", path)
		if err != nil {
			return true // nobody listens any more
		}
		defer c.Close()
		c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		c.SetReadDeadline(time.Now().Add(patience))
		c.Read(make([]byte, 1))
		return len(w.hostile) > 0
	})
	select {
	case e := <-w.hostile:
		if e.Sandbox != b.Sandbox || e.Incarnation != 1 || e.Generation != 7 {
			t.Errorf("control was told %+v", e)
		}
	case <-time.After(patience):
		t.Error("control was told nothing")
	}
}

func TestSiblingsMayAskOnlyTheirOwn(t *testing.T) {
	w := newWorld(t)
	w.caged.Store(true)
	for name, c := range map[string]struct {
		conn    *link.Conn
		methods []string
	}{
		"node":    {w.node, []string{role.InwardOperation, role.InwardReady, role.InwardDial}},
		"control": {w.control, []string{role.InwardBind, role.InwardUnbind, role.InwardSync, role.InwardDial}},
		"ingress": {w.ingress, []string{role.InwardBind, role.InwardUnbind, role.InwardSync, role.InwardOperation, role.InwardReady}},
	} {
		for _, method := range c.methods {
			null, err := os.Open("/dev/null")
			if err != nil {
				t.Fatal(err)
			}
			if err := call(c.conn, method, struct{}{}, null); code(err) != "unknown_method" {
				t.Errorf("%s asks for %q: %v", name, method, err)
			}
			null.Close()
		}
	}
}
