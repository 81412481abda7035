package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/nodes/netns"
)

func TestBindNeedsBoth(t *testing.T) {
	w := newWorld(t)
	edge, inward := &edgeSide{hello: role.EdgeHello{Serving: true}}, &inwardSide{}
	w.meet(t, "edge", edge.mux())
	in := w.meet(t, "inward", inward.mux())
	control := w.meet(t, "control", nil)
	create := func(name string) error { return call(control, role.NodeCreate, spec(name), nil) }

	edge.setRefuse(true)
	if err := create("one"); err == nil || !strings.Contains(err.Error(), "telling edge") {
		t.Fatalf("edge does not acknowledge: %v", err)
	}
	edge.setRefuse(false)
	inward.setRefuse(true)
	if err := create("two"); err == nil || !strings.Contains(err.Error(), "telling inward") {
		t.Fatalf("inward does not acknowledge: %v", err)
	}
	in.Close()
	await(t, "inward's death", func() bool { return w.inward.Now() == nil })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	alone := spec("three")
	if _, err := w.nodes.Create(ctx, nodeSpec(alone)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("inward is away: %v", err)
	}
	if w.started() {
		t.Fatal("a sandbox was started that not both knew")
	}
	if left := w.outside.Left(); len(left) > 0 {
		t.Errorf("left of them: %v", left)
	}

	again := &inwardSide{}
	w.meet(t, "inward", again.mux())
	var made role.Placement
	if err := call(control, role.NodeCreate, spec("four"), &made); err != nil {
		t.Fatal(err)
	}
	if !w.started() || !edge.has("sbx_four") || again.listener("sbx_four") == nil || made.State != "running" {
		t.Errorf("made as %+v", made)
	}
	w.dialled(t, again, "sbx_four")
}

// newEdgeNetns is one that ends with the test.
func newEdgeNetns(t *testing.T) *netns.Edge {
	t.Helper()
	e, _, err := netns.OpenEdge("prtest-" + strings.ToLower(rand.Text()[:10]))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Remove(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// connect tries both TCP ports of the edge netns from within.
func connect(t *testing.T, e *netns.Edge) error {
	t.Helper()
	return e.Do(func() error {
		for _, port := range []int{netns.ProxyPort, netns.DNSPort} {
			c, err := net.DialTimeout("tcp4", fmt.Sprintf("127.0.0.1:%d", port), patience)
			if err != nil {
				return err
			}
			c.Close()
		}
		return nil
	})
}

func TestSocketsAreNotKept(t *testing.T) {
	w := newWorld(t)
	w.netns = newEdgeNetns(t)
	edge := &edgeSide{}
	conn := w.meet(t, "edge", edge.mux())
	var files = edge.takeSockets()
	await(t, "the sockets", func() bool { files = append(files, edge.takeSockets()...); return len(files) == 3 })
	if err := connect(t, w.netns); err != nil {
		t.Fatalf("while the edge has them: %v", err)
	}
	conn.Close()
	await(t, "the edge's death", func() bool { return w.edge.Now() == nil })
	for _, f := range files {
		f.Close() // as they close when it dies
	}
	if err := connect(t, w.netns); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("when it is dead: %v, want a refusal", err)
	}

	// The next one gets its own, and one that has some gets none.
	w.meet(t, "edge", edge.mux())
	await(t, "new sockets", func() bool { files = edge.takeSockets(); return len(files) == 3 })
	has := &edgeSide{hello: role.EdgeHello{Serving: true}}
	w.meet(t, "edge", has.mux())
	await(t, "the list", func() bool { return has.syncCount() == 1 })
	if err := connect(t, w.netns); err != nil {
		t.Errorf("the new ones: %v", err)
	}
	for _, f := range files {
		f.Close()
	}
	if n := len(has.takeSockets()); n != 0 {
		t.Errorf("%d sockets came to one that has its own", n)
	}
}

func TestEdgeThatRefusesIsToldAgain(t *testing.T) {
	w := newWorld(t)
	edge := &edgeSide{hello: role.EdgeHello{Serving: true}, refuse: true}
	w.meet(t, "edge", edge.mux())
	await(t, "the list", func() bool { return edge.syncCount() == 1 })
	edge.setRefuse(false)
	await(t, "the list, again", func() bool { return edge.syncCount() == 2 })
}

func TestRestartedSiblingsAreToldWhatThereIs(t *testing.T) {
	w := newWorld(t)
	edge, inward := &edgeSide{hello: role.EdgeHello{Serving: true}}, &inwardSide{}
	conn := w.meet(t, "edge", edge.mux())
	w.meet(t, "inward", inward.mux())
	control := w.meet(t, "control", nil)
	for _, name := range []string{"one", "two"} {
		if err := call(control, role.NodeCreate, spec(name), nil); err != nil {
			t.Fatal(err)
		}
	}
	name := role.Name{Sandbox: "sbx_one", Incarnation: 1, Host: "a.test", Addr: w.setup.Synthetic.Addr().Next()}
	if err := conn.Notify(role.EdgeName, name); err != nil {
		t.Fatal(err)
	}
	await(t, "the name", func() bool { return len(w.names.list()) == 1 })
	if err := call(control, role.NodePause, role.SandboxRef{Sandbox: "sbx_one"}, nil); err != nil {
		t.Fatal(err)
	}
	if err := call(control, role.NodeDelete, role.SandboxRef{Sandbox: "sbx_two"}, nil); err != nil {
		t.Fatal(err)
	}

	newEdge, newInward := &edgeSide{hello: role.EdgeHello{Serving: true}}, &inwardSide{}
	w.meet(t, "edge", newEdge.mux())
	w.meet(t, "inward", newInward.mux())
	await(t, "the list at edge", func() bool { return newEdge.syncCount() == 1 })
	if s := newEdge.syncs[0]; len(s.Bindings) != 1 || s.Bindings[0].Sandbox != "sbx_one" || len(s.Names) != 1 || s.Names[0] != name {
		t.Errorf("edge was told %+v", s)
	}
	await(t, "the listener at inward", func() bool { return newInward.listener("sbx_one") != nil })
	w.dialled(t, newInward, "sbx_one")
	if newInward.listener("sbx_two") != nil {
		t.Error("inward was given the listener of one that is gone")
	}

	// Names of an edge that outlived a node come back with its first answer.
	w.names.drop("sbx_one")
	back := &edgeSide{hello: role.EdgeHello{Serving: true, Names: []role.Name{name, {Sandbox: "sbx_two", Incarnation: 1, Host: "b.test", Addr: name.Addr.Next()}}}}
	w.meet(t, "edge", back.mux())
	await(t, "the names of the edge", func() bool { return len(w.names.list()) > 0 })
	if all := w.names.list(); len(all) != 1 || all[0] != name {
		t.Errorf("kept %v", all)
	}
	if err := call(control, role.NodeDelete, role.SandboxRef{Sandbox: "sbx_one"}, nil); err != nil {
		t.Fatal(err)
	}
	if left := w.names.list(); len(left) > 0 {
		t.Errorf("names of one that is gone: %v", left)
	}
}

func TestSiblingsAskForNothing(t *testing.T) {
	w := newWorld(t)
	edge := w.meet(t, "edge", (&edgeSide{hello: role.EdgeHello{Serving: true}}).mux())
	inward := w.meet(t, "inward", (&inwardSide{}).mux())
	ingress, control := w.meet(t, "ingress", nil), w.meet(t, "control", nil)
	for name, conn := range map[string]*link.Conn{"edge": edge, "inward": inward, "ingress": ingress} {
		for _, method := range []string{role.NodeCreate, role.NodeDelete, role.NodePause, role.NodeResume, role.NodeExtend, role.NodeList, role.NodeImages} {
			if err := call(conn, method, struct{}{}, nil); code(err) != "unknown_method" {
				t.Errorf("%s asks for %q: %v", name, method, err)
			}
		}
	}
	for name, conn := range map[string]*link.Conn{"edge": edge, "inward": inward, "control": control} {
		if err := call(conn, role.NodeWake, role.WakeRequest{Sandbox: "sbx_one"}, nil); code(err) != "unknown_method" {
			t.Errorf("%s asks for %q: %v", name, role.NodeWake, err)
		}
	}
	if err := call(inward, role.EdgeName, role.Name{}, nil); code(err) != "unknown_method" {
		t.Errorf("inward tells a name: %v", err)
	}
	var all []role.Placement
	if err := call(control, role.NodeList, struct{}{}, &all); err != nil || len(all) != 0 {
		t.Errorf("control asks for the list: %v, %v", all, err)
	}
	if err := call(control, role.NodeCreate, spec("one"), nil); err != nil {
		t.Errorf("control asks for a sandbox: %v", err)
	}
	var woken role.Woken
	if err := call(ingress, role.NodeWake, role.WakeRequest{Sandbox: "sbx_one"}, &woken); err != nil || woken.Generation != 1 {
		t.Errorf("ingress asks for one that runs: %+v, %v", woken, err)
	}
	if err := call(ingress, role.NodeWake, role.WakeRequest{Sandbox: "sbx_two"}, nil); code(err) != role.CodeUnknown {
		t.Errorf("ingress asks for one that is not here: %v", err)
	}
}
