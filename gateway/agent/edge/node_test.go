package edge

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"portreeve.dev/egress"
	"portreeve.dev/egress/proxy"
	"portreeve.dev/gateway/internal/processtest"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/policies"
)

// waiting returns what lies in the socket unread, without waiting for more.
func waiting(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 1<<16)
	var n int
	if err := raw.Control(func(fd uintptr) {
		n, _, err = unix.Recvfrom(int(fd), buffer, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	}); err != nil {
		t.Fatal(err)
	}
	return string(buffer[:max(n, 0)])
}

// serving is a world whose sockets are served.
func serving(t *testing.T, change ...func(*role.EdgeStart)) (*world, *set) {
	t.Helper()
	w := newWorld(t, change...)
	w.caged.Store(true)
	s := newSet(t)
	if err := w.serve(s.files); err != nil {
		t.Fatal(err)
	}
	if err := w.bindings.Bind(boxA); err != nil {
		t.Fatal(err)
	}
	if err := w.holder.Apply(policy(1, "good.test", "fine.test", "late.test")); err != nil {
		t.Fatal(err)
	}
	return w, s
}

func TestNameGoesToTheNodeFirst(t *testing.T) {
	w, s := serving(t)
	node := meet(t, w.supervisor, "node")
	processtest.Await(t, "the link", func() bool { return w.node.Now() != nil })
	first := addressIn(t, lookup(t, s.tcp, boxA, "good.test"))
	// The sandbox has its answer. Whatever becomes of the edge now, the name lies in the node's socket.
	if said := waiting(t, node); !strings.Contains(said, `"host":"good.test"`) || !strings.Contains(said, first.String()) {
		t.Fatalf("the sandbox has %v, the node has %q", first, said)
	}
	again := addressIn(t, lookup(t, s.tcp, boxA, "good.test"))
	if said := waiting(t, node); again != first || strings.Count(said, "good.test") != 1 {
		t.Errorf("asked again: %v, the node has %q", again, said)
	}
	if lookup(t, s.tcp, boxA, "evil.test").Rcode != dns.RcodeNameError || strings.Contains(waiting(t, node), "evil.test") {
		t.Error("the node has a name that was denied")
	}

	told := make(chan role.Name, 8)
	mux := link.NewMux()
	link.Handle(mux, role.EdgeName, func(_ context.Context, n role.Name) (struct{}, error) {
		told <- n
		return struct{}{}, nil
	})
	conn := link.NewConn(node, mux, link.Limits{})
	go conn.Run(t.Context())
	if n := next(t, told); n != (role.Name{Sandbox: sbx, Incarnation: 1, Host: "good.test", Addr: first}) {
		t.Errorf("the node was told %+v", n)
	}

	// With nobody to remember it, a name gets no address; one that was remembered keeps its own.
	conn.Close()
	processtest.Await(t, "the end of the link", func() bool { return w.node.Now() == nil })
	if r := lookup(t, s.tcp, boxA, "fine.test"); r.Rcode != dns.RcodeServerFailure {
		t.Errorf("a new name while the node is away: %v", r)
	}
	if known := addressIn(t, lookup(t, s.tcp, boxA, "good.test")); known != first {
		t.Errorf("a known name while the node is away is at %v, it was at %v", known, first)
	}
	talk(t, w.supervisor, "node", mux)
	processtest.Await(t, "the new link", func() bool { return w.node.Now() != nil })
	if addr := addressIn(t, lookup(t, s.tcp, boxA, "fine.test")); addr == first {
		t.Errorf("two names at %v", addr)
	}
	if n := next(t, told); n.Host != "fine.test" {
		t.Errorf("the new node was told %+v", n)
	}
}

func next(t *testing.T, told <-chan role.Name) role.Name {
	t.Helper()
	select {
	case n := <-told:
		return n
	case <-time.After(patience):
		t.Fatal("the node was told nothing")
	}
	return role.Name{}
}

func TestRestartedEdgeHasTheNamesOfTheNode(t *testing.T) {
	w, s := serving(t)
	node := talk(t, w.supervisor, "node", nil)
	there := role.Name{Sandbox: sbx, Incarnation: 1, Host: "late.test", Addr: netip.MustParseAddr("198.18.0.16")}
	other := egress.Binding{Sandbox: "sbx_b", Org: org, Incarnation: 1, Generation: 1, Addr: netip.MustParseAddr("127.0.1.3")}
	var hello role.EdgeHello
	sync := role.Sync{Bindings: []egress.Binding{boxA, other}, Names: []role.Name{there}}
	if err := node.Call(t.Context(), role.EdgeSync, sync, &hello); err != nil || !hello.Serving || len(hello.Names) != 1 || hello.Names[0] != there {
		t.Fatalf("it answers %+v, %v", hello, err)
	}
	if addr := addressIn(t, lookup(t, s.tcp, boxA, "good.test")); addr == there.Addr {
		t.Errorf("%v stands for two names", addr)
	}
	if addr := addressIn(t, lookup(t, s.tcp, boxA, "late.test")); addr != there.Addr {
		t.Errorf("late.test is at %v, it was at %v", addr, there.Addr)
	}

	// What the node has no longer is nobody's, and ends.
	killed := make(chan policies.Reason, 1)
	remove, err := flowTable{w.flows}.Add(proxy.Flow{ID: "flo_1", Binding: boxA, Kill: func(r policies.Reason) { killed <- r }})
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	if err := node.Call(t.Context(), role.EdgeSync, role.Sync{Bindings: []egress.Binding{other}}, &hello); err != nil {
		t.Fatal(err)
	}
	expect(t, killed, policies.ReasonUnbound)
	if _, ok := w.bindings.Lookup(boxA.Addr); ok {
		t.Error("its address is bound")
	}
	if _, ok := w.bindings.Lookup(other.Addr); !ok {
		t.Error("the other one's address is not bound")
	}
	if len(hello.Names) != 0 {
		t.Errorf("its names are left: %v", hello.Names)
	}
}

func TestSandboxWhoseNamesContradictIsCutOff(t *testing.T) {
	w, s := serving(t)
	node := talk(t, w.supervisor, "node", nil)
	processtest.Await(t, "the link", func() bool { return w.node.Now() != nil })
	addr := addressIn(t, lookup(t, s.tcp, boxA, "good.test"))
	other := egress.Binding{Sandbox: "sbx_b", Org: org, Incarnation: 1, Generation: 1, Addr: netip.MustParseAddr("127.0.1.3")}
	killed := make(chan policies.Reason, 1)
	remove, err := flowTable{w.flows}.Add(proxy.Flow{ID: "flo_1", Binding: boxA, Kill: func(r policies.Reason) { killed <- r }})
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	stranger := role.Name{Sandbox: sbx, Incarnation: 1, Host: "fine.test", Addr: addr}
	sync := role.Sync{Bindings: []egress.Binding{boxA, other}, Names: []role.Name{stranger}}
	if err := node.Call(t.Context(), role.EdgeSync, sync, nil); err != nil {
		t.Fatal(err)
	}
	expect(t, killed, policies.ReasonUnbound)
	if _, ok := w.bindings.Lookup(boxA.Addr); ok {
		t.Error("an address of its stands for two names, and it goes on")
	}
	if _, ok := w.bindings.Lookup(other.Addr); !ok {
		t.Error("its neighbour is cut off, too")
	}
}

func TestTableThatContradictsEndsTheProcess(t *testing.T) {
	w, _ := serving(t)
	node := talk(t, w.supervisor, "node", nil)
	twice := []egress.Binding{boxA, {Sandbox: "sbx_b", Org: org, Incarnation: 1, Addr: boxA.Addr}}
	if err := node.Call(t.Context(), role.EdgeSync, role.Sync{Bindings: twice}, nil); err == nil {
		t.Fatal("one address came to be two sandboxes'")
	}
	processtest.Await(t, "the end of the process", func() bool { return w.supervisor.Notify("x", struct{}{}) != nil })
}

func TestUnboundSandboxIsForgotten(t *testing.T) {
	w, s := serving(t)
	node := talk(t, w.supervisor, "node", nil)
	processtest.Await(t, "the link", func() bool { return w.node.Now() != nil })
	lookup(t, s.tcp, boxA, "good.test")
	if err := node.Call(t.Context(), role.EdgeUnbind, role.Unbind{Sandbox: "sbx_b", Addr: boxA.Addr}, nil); err != nil {
		t.Fatal(err)
	}
	if len(w.names.Export()) != 1 {
		t.Fatal("another one's name took its names away")
	}
	if err := node.Call(t.Context(), role.EdgeUnbind, role.Unbind{Sandbox: sbx, Addr: boxA.Addr}, nil); err != nil {
		t.Fatal(err)
	}
	if left := w.names.Export(); len(left) != 0 {
		t.Errorf("its names are left: %v", left)
	}
	if err := node.Call(t.Context(), role.EdgeBind, egress.Binding{Sandbox: "sbx_b", Org: org, Incarnation: 1, Addr: boxA.Addr}, nil); err != nil {
		t.Errorf("its address can't be given to another: %v", err)
	}
}
