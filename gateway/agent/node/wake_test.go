package node

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"portreeve.dev/gateway/role"
)

// resumes counts what the driver was told; nothing runs meanwhile.
func (w *world) resumes() int {
	n := 0
	for _, c := range w.outside.Calls {
		if c == "Driver.Resume" {
			n++
		}
	}
	return n
}

// told takes what would go to control: there is none here that would.
func (w *world) told() (events []role.Event) {
	for {
		select {
		case e := <-w.events:
			events = append(events, e)
		default:
			return events
		}
	}
}

func TestManyCallersWakeOnce(t *testing.T) {
	w := newWorld(t)
	w.meet(t, "edge", (&edgeSide{hello: role.EdgeHello{Serving: true}}).mux())
	w.meet(t, "inward", (&inwardSide{}).mux())
	ingress := w.meet(t, "ingress", nil)
	if _, err := w.nodes.Create(t.Context(), nodeSpec(spec("one"))); err != nil {
		t.Fatal(err)
	}
	for generation := uint64(2); generation < 5; generation++ { // each pause is a new sleep
		if err := w.nodes.Pause(t.Context(), "sbx_one"); err != nil {
			t.Fatal(err)
		}
		var wait sync.WaitGroup
		begin := make(chan struct{})
		for range 200 {
			wait.Go(func() {
				<-begin
				var woken role.Woken
				if err := call(ingress, role.NodeWake, role.WakeRequest{Sandbox: "sbx_one", Generation: generation - 1}, &woken); err != nil || woken.Generation != generation {
					t.Errorf("woken as %+v, %v; want generation %d", woken, err, generation)
				}
			})
		}
		close(begin)
		wait.Wait()
		if n := w.resumes(); n != int(generation-1) {
			t.Errorf("resumed %d times after %d sleeps", n, generation-1)
		}
		if events := w.told(); len(events) != 1 || events[0] != (role.Event{Sandbox: "sbx_one", Kind: role.EventResumed, Incarnation: 1, Generation: generation}) {
			t.Errorf("control is told %+v", events)
		}
	}
}

func TestRunningSandboxIsNotWoken(t *testing.T) {
	w := newWorld(t)
	w.meet(t, "edge", (&edgeSide{hello: role.EdgeHello{Serving: true}}).mux())
	w.meet(t, "inward", (&inwardSide{}).mux())
	ingress := w.meet(t, "ingress", nil)
	if _, err := w.nodes.Create(t.Context(), nodeSpec(spec("one"))); err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(w.outside.Calls)
	var woken role.Woken
	if err := call(ingress, role.NodeWake, role.WakeRequest{Sandbox: "sbx_one", Generation: 1}, &woken); err != nil || woken.Generation != 1 {
		t.Errorf("woken as %+v, %v", woken, err)
	}
	if !slices.Equal(before, w.outside.Calls) {
		t.Errorf("the node did %q", w.outside.Calls[len(before):])
	}
	if err := call(ingress, role.NodeWake, role.WakeRequest{Sandbox: "sbx_two", Generation: 1}, &woken); code(err) != role.CodeUnknown {
		t.Errorf("a sandbox that is not here: %v", err)
	}
	// One that can't be resumed is not said to run, and nobody is told.
	if err := w.nodes.Pause(t.Context(), "sbx_one"); err != nil {
		t.Fatal(err)
	}
	w.outside.Fault = "Driver.Resume:before"
	if err := call(ingress, role.NodeWake, role.WakeRequest{Sandbox: "sbx_one", Generation: 1}, &woken); err == nil {
		t.Error("it was said to run")
	}
	w.outside.Fault = ""
	if events := w.told(); len(events) != 0 {
		t.Errorf("control is told %+v", events)
	}
	if err := call(ingress, role.NodeWake, role.WakeRequest{Sandbox: "sbx_one", Generation: 1}, &woken); err != nil || woken.Generation < 2 {
		t.Errorf("the next try: %+v, %v", woken, err)
	}
	if events := w.told(); len(events) != 1 || events[0].Generation != woken.Generation {
		t.Errorf("control is told %+v", events)
	}
	// What is gone is forgotten.
	if err := w.nodes.Delete(context.Background(), "sbx_one"); err != nil {
		t.Fatal(err)
	}
	if w.woken.told["sbx_one"] != 0 {
		t.Error("a deleted sandbox is remembered")
	}
}

// TestListShowsNoHalfResume: control must not take a sandbox that is being woken for one that sleeps as its next generation.
func TestListShowsNoHalfResume(t *testing.T) {
	w := newWorld(t)
	w.meet(t, "edge", (&edgeSide{hello: role.EdgeHello{Serving: true}}).mux())
	w.meet(t, "inward", (&inwardSide{}).mux())
	control := w.meet(t, "control", nil)
	if _, err := w.nodes.Create(t.Context(), nodeSpec(spec("one"))); err != nil {
		t.Fatal(err)
	}
	if err := w.nodes.Pause(t.Context(), "sbx_one"); err != nil {
		t.Fatal(err)
	}
	listed := make(chan []role.Placement, 1)
	w.outside.Hook = func(step string) {
		if step != "Driver.Resume" {
			return
		}
		go func() {
			var all []role.Placement
			if err := call(control, role.NodeList, struct{}{}, &all); err != nil {
				t.Error(err)
			}
			listed <- all
		}()
		select {
		case all := <-listed:
			listed <- all // an answer in the middle of it
		case <-time.After(200 * time.Millisecond):
		}
	}
	if _, err := w.nodes.Resume(t.Context(), "sbx_one", 0); err != nil {
		t.Fatal(err)
	}
	if all := <-listed; len(all) != 1 || all[0].State != "running" || all[0].Generation != 2 {
		t.Errorf("listed in the middle of a resume: %+v", all)
	}
}
