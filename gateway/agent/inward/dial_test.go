package inward

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portreeve.dev/egress"
	"portreeve.dev/gateway/role"
)

// dialAs asks for a connection as ingress does.
func (w *world) dialAs(t *testing.T, r role.DialRequest) (net.Conn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	files, err := w.ingress.CallFiles(ctx, role.InwardDial, r, nil)
	if err != nil {
		return nil, err
	}
	if len(files) != 1 {
		t.Fatalf("%d files came", len(files))
	}
	defer files[0].Close()
	c, err := net.FileConn(files[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c, nil
}

// echo listens at the sandbox's address and counts who came.
func echo(t *testing.T, b egress.Binding) (port uint16, came chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp4", net.JoinHostPort(b.Addr.String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	came = make(chan struct{}, 64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			came <- struct{}{}
			go func() {
				defer c.Close()
				io.WriteString(c, b.Sandbox+": ")
				io.Copy(c, c)
			}()
		}
	}()
	return uint16(l.Addr().(*net.TCPAddr).Port), came
}

// says sends a line, ends its own direction and returns all that comes back.
func says(t *testing.T, c net.Conn) string {
	t.Helper()
	io.WriteString(c, "hello")
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

func TestDialNeedsTheGeneration(t *testing.T) {
	w := newWorld(t)
	w.caged.Store(true)
	b := bound(1)
	b.Generation = 4
	port, came := echo(t, b)
	at := func(sandbox string, generation uint64, port uint16) role.DialRequest {
		return role.DialRequest{Sandbox: sandbox, Generation: generation, Port: port}
	}
	refused := func(when string, r role.DialRequest, want string) {
		t.Helper()
		if _, err := w.dialAs(t, r); code(err) != want {
			t.Errorf("%s: %v, want %s", when, err, want)
		}
		if len(came) > 0 {
			t.Errorf("%s: it was dialled", when)
			<-came
		}
	}
	refused("before it is bound", at(b.Sandbox, 4, port), role.CodeUnknown)
	w.bindOne(t, b)
	refused("by an older route", at(b.Sandbox, 3, port), role.CodeStaleRoute)
	refused("by a newer one", at(b.Sandbox, 5, port), role.CodeStaleRoute)
	refused("by one without a generation", at(b.Sandbox, 0, port), role.CodeStaleRoute)
	refused("without a port", at(b.Sandbox, 4, 0), role.CodeStaleRoute)
	refused("under another name", at(bound(2).Sandbox, 4, port), role.CodeUnknown)
	c, err := w.dialAs(t, at(b.Sandbox, 4, port))
	if err != nil {
		t.Fatal(err)
	}
	if said := says(t, c); said != b.Sandbox+": hello" {
		t.Errorf("it says %q", said)
	}
	<-came

	b.Generation = 5 // resumed
	if err := call(w.node, role.InwardBind, b); err != nil {
		t.Fatal(err)
	}
	refused("by a route of before the pause", at(b.Sandbox, 4, port), role.CodeStaleRoute)
	if c, err = w.dialAs(t, at(b.Sandbox, 5, port)); err != nil {
		t.Fatal(err)
	}
	<-came
	if err := call(w.node, role.InwardUnbind, role.SandboxRef{Sandbox: b.Sandbox}); err != nil {
		t.Fatal(err)
	}
	refused("when it is gone", at(b.Sandbox, 5, port), role.CodeUnknown)
	_ = c
}

// closedPort is one on which nothing listens at the sandbox's address.
func closedPort(t *testing.T, b egress.Binding) uint16 {
	t.Helper()
	l, err := net.Listen("tcp4", net.JoinHostPort(b.Addr.String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if raw, err := l.(*net.TCPListener).SyscallConn(); err == nil {
		// Bound and deaf until the test ends, so that nobody else gets it.
		raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_RD) })
	}
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func TestLoopbackIsReachedThroughInit(t *testing.T) {
	w := newWorld(t)
	w.caged.Store(true)
	b := bound(1)
	inside := w.bindOne(t, b)
	port, other := closedPort(t, b), closedPort(t, b)
	inside.mu.Lock()
	inside.port = port
	inside.mu.Unlock()
	c, err := w.dialAs(t, role.DialRequest{Sandbox: b.Sandbox, Generation: 1, Port: port})
	if err != nil {
		t.Fatal(err)
	}
	if said := says(t, c); said != b.Sandbox+" on loopback: hello" {
		t.Errorf("it says %q", said)
	}
	if _, err := w.dialAs(t, role.DialRequest{Sandbox: b.Sandbox, Generation: 1, Port: other}); code(err) != role.CodePortClosed || !strings.Contains(err.Error(), fmt.Sprint(other)) {
		t.Errorf("a port on which nothing listens: %v", err)
	}
}

// TestRelayEndsWithItsSandbox: what goes by way of init does not outlive the sandbox.
func TestRelayEndsWithItsSandbox(t *testing.T) {
	w := newWorld(t)
	w.caged.Store(true)
	b := bound(1)
	inside := w.bindOne(t, b)
	port := closedPort(t, b)
	inside.mu.Lock()
	inside.port = port
	inside.mu.Unlock()
	c, err := w.dialAs(t, role.DialRequest{Sandbox: b.Sandbox, Generation: 1, Port: port})
	if err != nil {
		t.Fatal(err)
	}
	greeting := make([]byte, len(b.Sandbox+" on loopback: "))
	if _, err := io.ReadFull(c, greeting); err != nil {
		t.Fatal(err)
	}
	if err := call(w.node, role.InwardUnbind, role.SandboxRef{Sandbox: b.Sandbox}); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after the sandbox was unbound: %d bytes, %v", n, err)
	}
}

// TestRelayNeedsAnInit: where init is not connected nobody can say that nothing listens.
func TestRelayNeedsAnInit(t *testing.T) {
	w := newWorld(t)
	w.caged.Store(true)
	b := bound(1)
	_, listener := listenInit(t)
	if err := call(w.node, role.InwardBind, b, listener); err != nil {
		t.Fatal(err)
	}
	if _, err := w.dialAs(t, role.DialRequest{Sandbox: b.Sandbox, Generation: 1, Port: closedPort(t, b)}); err == nil || code(err) == role.CodePortClosed || code(err) == role.CodeStaleRoute {
		t.Errorf("err = %v", err)
	}
}

// TestDialWhileTheNodeStartsAnew binds a sandbox again and again while it is dialled.
func TestDialWhileTheNodeStartsAnew(t *testing.T) {
	w := newWorld(t)
	w.caged.Store(true)
	b := bound(1)
	w.bindOne(t, b)
	port, _ := echo(t, b)
	done := make(chan error, 1)
	go func() {
		for range 20 {
			_, listener := listenInit(t)
			if err := call(w.node, role.InwardBind, b, listener); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range 20 {
		c, err := w.dialAs(t, role.DialRequest{Sandbox: b.Sandbox, Generation: 1, Port: port})
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
