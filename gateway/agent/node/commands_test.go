package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/nodes"
	"portreeve.dev/nodes/images"
	"portreeve.dev/nodes/netns"
)

// nodeSpec is what the agent makes of control's words.
func nodeSpec(s role.NodeSpec) nodes.Spec {
	return nodes.Spec{Sandbox: s.Sandbox, Org: s.Org, Image: s.Image, Incarnation: s.Incarnation, Generation: s.Generation, MinRevision: s.MinRevision}
}

func TestErrorsKeepTheirCode(t *testing.T) {
	for want, err := range map[string]error{
		role.CodeUnknown: nodes.ErrUnknown, role.CodeExists: nodes.ErrExists, role.CodeNotReady: nodes.ErrNotReady, role.CodeExpired: nodes.ErrExpired,
		role.CodeImageUnknown: images.ErrUnknown, role.CodeImageBuilding: images.ErrBuilding, role.CodeImageFailed: images.ErrFailed,
	} {
		if got := code(coded(fmt.Errorf("wrapped: %w", err))); got != want {
			t.Errorf("%v has the code %q, want %q", err, got, want)
		}
	}
	if err := coded(errSibling); err != errSibling {
		t.Errorf("another one became %v", err)
	}
	if err := coded(nil); err != nil {
		t.Errorf("none became %v", err)
	}
}

func TestControlHearsHowASandboxEnds(t *testing.T) {
	w := newWorld(t)
	w.meet(t, "edge", (&edgeSide{hello: role.EdgeHello{Serving: true}}).mux())
	w.meet(t, "inward", (&inwardSide{}).mux())
	heard := make(chan role.Event, 8)
	mux := link.NewMux()
	link.Handle(mux, role.NodeEvent, func(_ context.Context, e role.Event) (struct{}, error) { heard <- e; return struct{}{}, nil })
	control := w.meet(t, "control", mux)
	for kind, oom := range map[string]bool{"exited": false, "out_of_memory": true} {
		var made role.Placement
		if err := call(control, role.NodeCreate, spec(strings.ReplaceAll(kind, "_", "-")), &made); err != nil {
			t.Fatal(err)
		}
		w.outside.Kill(made.RunscID, oom)
		select {
		case e := <-heard:
			if e.Sandbox != made.Sandbox || e.Kind != kind || e.Generation != 1 {
				t.Errorf("control was told %+v, want %s of %s", e, kind, made.Sandbox)
			}
		case <-time.After(patience):
			t.Fatalf("control was not told of %s", kind)
		}
	}
}

func TestPausedSandboxIsWoken(t *testing.T) {
	w := newWorld(t)
	edge := &edgeSide{hello: role.EdgeHello{Serving: true}}
	w.meet(t, "edge", edge.mux())
	w.meet(t, "inward", (&inwardSide{}).mux())
	heard := make(chan role.Event, 8)
	mux := link.NewMux()
	link.Handle(mux, role.NodeEvent, func(_ context.Context, e role.Event) (struct{}, error) { heard <- e; return struct{}{}, nil })
	control, ingress := w.meet(t, "control", mux), w.meet(t, "ingress", nil)
	if err := call(control, role.NodeCreate, spec("one"), nil); err != nil {
		t.Fatal(err)
	}
	if err := call(control, role.NodePause, role.SandboxRef{Sandbox: "sbx_one"}, nil); err != nil {
		t.Fatal(err)
	}
	var woken role.Woken
	if err := call(ingress, role.NodeWake, role.WakeRequest{Sandbox: "sbx_one"}, &woken); err != nil || woken.Generation != 2 {
		t.Fatalf("woken as %+v, %v", woken, err)
	}
	select {
	case e := <-heard:
		if e.Kind != role.EventResumed || e.Generation != 2 {
			t.Errorf("control was told %+v", e)
		}
	case <-time.After(patience):
		t.Error("control was told nothing")
	}
	edge.mu.Lock()
	defer edge.mu.Unlock()
	if last := edge.bound[len(edge.bound)-1]; last.Generation != 2 || last.MinRevision != 7 {
		t.Errorf("edge knows it as %+v", last)
	}
}

// TestLinksAreAdopted uses real namespaces.
func TestLinksAreAdopted(t *testing.T) {
	edge := newEdgeNetns(t)
	prefix := edge.Name + "s-"
	open := func() *network {
		addresses, err := netns.NewAddresses(netns.AddressesConfig{})
		if err != nil {
			t.Fatal(err)
		}
		return newNetwork(edge, addresses, prefix, slog.New(slog.DiscardHandler))
	}
	n := open()
	made, err := n.Make(t.Context(), "sbx_one")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Remove(context.Background(), made)
	if err := n.Up(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	next := open()
	if err := next.Up(t.Context(), made); err == nil {
		t.Error("a link that nobody looked for is known")
	}
	found, err := next.List(t.Context())
	if err != nil || len(found) != 1 || found[0] != made {
		t.Fatalf("found %+v, want %+v: %v", found, made, err)
	}
	if other, err := next.Make(t.Context(), "sbx_two"); err != nil || other.Addr == made.Addr {
		t.Errorf("another one has its address: %+v, %v", other, err)
	} else if err := next.Remove(t.Context(), other); err != nil {
		t.Error(err)
	}
	if err := errors.Join(next.Readdress(t.Context(), made), next.Remove(t.Context(), made)); err != nil {
		t.Error(err)
	}
	if left, err := netns.List(prefix); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := next.Remove(t.Context(), made); err != nil {
		t.Errorf("removing what is gone: %v", err)
	}
}
