package nodes_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"portreeve.dev/nodes"
	"portreeve.dev/nodes/nodestest"
)

// A rig is a node in a fake world.
type rig struct {
	*nodes.Node
	world  *nodestest.World
	clock  *nodestest.Clock
	config nodes.Config
	events chan nodes.Event
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{world: nodestest.New(), clock: nodestest.NewClock(), events: make(chan nodes.Event, 100)}
	t.Cleanup(r.world.Close)
	init := filepath.Join(t.TempDir(), "init")
	if err := os.WriteFile(init, []byte("stand-in"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.config = nodes.Config{StateDir: stateDir(t), Init: init, Clock: r.clock, Events: func(e nodes.Event) { r.events <- e }}
	r.config.Instance = nodes.InstanceOf(r.config.StateDir)
	r.world.Fill(&r.config)
	r.restart(t)
	t.Cleanup(func() {
		for _, v := range r.world.Violations {
			t.Error("unsafe:", v)
		}
	})
	return r
}

// restart is a new node process on the same machine.
func (r *rig) restart(t *testing.T) {
	t.Helper()
	if r.Node != nil {
		r.Close()
	}
	n, err := nodes.New(r.config)
	if err != nil {
		t.Fatal(err)
	}
	r.Node = n
	t.Cleanup(n.Close)
}

func (r *rig) create(t *testing.T, s nodes.Spec) nodes.Placement {
	t.Helper()
	p, err := r.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// wantNothing fails if anything is left anywhere.
func (r *rig) wantNothing(t *testing.T) {
	t.Helper()
	if left := r.world.Left(); len(left) != 0 {
		t.Errorf("left over: %q", left)
	}
	if left := files(t, filepath.Join(r.config.StateDir, "node", "sandboxes")); len(left) != 0 {
		t.Errorf("files left over: %q", left)
	}
	if list := r.List(); len(list) != 0 {
		t.Errorf("still listed: %v", list)
	}
}

func (r *rig) wantEvents(t *testing.T, want ...nodes.EventKind) (last nodes.Event) {
	t.Helper()
	for _, k := range want {
		select {
		case last = <-r.events:
			if last.Kind != k {
				t.Fatalf("event %q, want %q", last.Kind, k)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("no event, want %q", k)
		}
	}
	select {
	case e := <-r.events:
		t.Fatalf("another event: %v", e)
	default:
	}
	return last
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// stateDir is short (t.TempDir's names are long) and may be entered by all.
func stateDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "prn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func spec(name string) nodes.Spec {
	return nodes.Spec{Sandbox: "sbx_" + name, Org: "org_1", Image: "tiny", Incarnation: 1, Generation: 1, MinRevision: 7}
}

// steps are the calls of a create that goes well, in order.
var steps = []string{"Network.Make", "Driver.Create", "Cgroups.Confirm", "Network.Readdress", "Wire.Bind", "Firewall.Add", "Network.Up", "Driver.Start"}

func TestRulesStandBeforeTheFirstProcess(t *testing.T) {
	r := newRig(t)
	p := r.create(t, spec("a"))
	if !slices.Equal(r.world.Calls, steps) {
		t.Errorf("steps %q\nwant  %q", r.world.Calls, steps)
	}
	if len(r.world.Violations) > 0 {
		t.Errorf("unsafe: %q", r.world.Violations)
	}
	bound, ok := r.world.Bound("sbx_a")
	if !ok || bound.Addr != p.Addr || bound.Interface != p.Interface || bound.MinRevision != 7 || bound.Org != "org_1" {
		t.Errorf("bound %+v, placed %+v", bound, p)
	}
	st, err := r.Get("sbx_a")
	if err != nil || st.State != nodes.Running || st.Placement != p || st.Limits != nodes.DefaultLimits {
		t.Errorf("status %+v, %v", st, err)
	}
}

func TestFailedCreateLeavesNothing(t *testing.T) {
	for _, step := range steps {
		for _, when := range []string{"before", "after"} {
			t.Run(step+" "+when, func(t *testing.T) {
				r := newRig(t)
				r.create(t, spec("neighbour"))
				r.world.Fault = step + ":" + when
				if _, err := r.Create(t.Context(), spec("a")); !errors.Is(err, nodestest.ErrFault) {
					t.Fatalf("got %v", err)
				}
				r.world.Fault = ""
				if _, err := r.Get("sbx_a"); !errors.Is(err, nodes.ErrUnknown) {
					t.Errorf("still known: %v", err)
				}
				if _, err := r.Get("sbx_neighbour"); err != nil {
					t.Errorf("the neighbour is gone: %v", err)
				}
				if err := r.Delete(t.Context(), "sbx_neighbour"); err != nil {
					t.Fatal(err)
				}
				r.wantEvents(t, nodes.Deleted)
				r.wantNothing(t)
			})
		}
	}
}

// A cancelled create cleans up all the same.
func TestCancelledCreateLeavesNothing(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.world.Hook = func(call string) {
		if call == "Wire.Bind" {
			cancel()
		}
	}
	if _, err := r.Create(ctx, spec("a")); err == nil {
		t.Fatal("created")
	}
	r.wantNothing(t)
}

func TestUnconfirmedLimitsStopCreate(t *testing.T) {
	r := newRig(t)
	r.world.Unlimited = true
	if _, err := r.Create(t.Context(), spec("a")); err == nil || !strings.Contains(err.Error(), "memory limit is none") {
		t.Fatalf("got %v", err)
	}
	if slices.Contains(r.world.Calls, "Driver.Start") {
		t.Error("it was started")
	}
	r.wantNothing(t)
	r.world.Unlimited = false
	r.create(t, spec("a"))
}

func TestDeleteOrder(t *testing.T) {
	r := newRig(t)
	r.create(t, spec("a"))
	r.world.Calls = nil
	if err := r.Delete(t.Context(), "sbx_a"); err != nil {
		t.Fatal(err)
	}
	want := []string{"Firewall.Remove", "Wire.Unbind", "Driver.Delete", "Network.Remove", "Cgroups.Remove"}
	if !slices.Equal(r.world.Calls, want) {
		t.Errorf("steps %q\nwant  %q", r.world.Calls, want)
	}
	if e := r.wantEvents(t, nodes.Deleted); e.Reason != "" {
		t.Errorf("reason %q", e.Reason)
	}
	r.wantNothing(t)
	if err := r.Delete(t.Context(), "sbx_a"); err != nil {
		t.Errorf("again: %v", err)
	}
	r.wantEvents(t)
}

func TestAddressIsKeptWhileBound(t *testing.T) {
	for _, step := range []string{"Firewall.Remove", "Wire.Unbind", "Driver.Delete"} {
		t.Run(step, func(t *testing.T) {
			r := newRig(t)
			r.create(t, spec("a"))
			r.world.Fault = step + ":before"
			if err := r.Delete(t.Context(), "sbx_a"); !errors.Is(err, nodestest.ErrFault) {
				t.Fatalf("got %v", err)
			}
			if slices.Contains(r.world.Calls, "Network.Remove") {
				t.Error("the address was given back")
			}
			st, err := r.Get("sbx_a")
			if err != nil || st.State != nodes.Deleting {
				t.Errorf("status %v, %v", st.State, err)
			}
			if _, err := r.Resume(t.Context(), "sbx_a", 0); !errors.Is(err, nodes.ErrNotReady) {
				t.Errorf("resumed: %v", err)
			}
			if _, err := r.Create(t.Context(), spec("a")); !errors.Is(err, nodes.ErrNotReady) {
				t.Errorf("created: %v", err)
			}
			r.world.Fault = ""
			if err := r.Delete(t.Context(), "sbx_a"); err != nil {
				t.Fatal(err)
			}
			r.wantEvents(t, nodes.Deleted)
			r.wantNothing(t)
		})
	}
}

func TestCreateIsIdempotentWithinAnIncarnation(t *testing.T) {
	r := newRig(t)
	p := r.create(t, spec("a"))
	if q := r.create(t, spec("a")); q != p {
		t.Errorf("second placement %+v, first %+v", q, p)
	}
	other := spec("a")
	other.Incarnation++
	if _, err := r.Create(t.Context(), other); !errors.Is(err, nodes.ErrExists) {
		t.Errorf("another incarnation: %v", err)
	}
	for name, change := range map[string]func(*nodes.Spec){
		"no sandbox": func(s *nodes.Spec) { s.Sandbox = "" }, "path in sandbox": func(s *nodes.Spec) { s.Sandbox = "sbx_../x" },
		"no org": func(s *nodes.Spec) { s.Org = "" }, "unknown image": func(s *nodes.Spec) { s.Image = "other" },
		"no incarnation": func(s *nodes.Spec) { s.Incarnation = 0 }, "deadline passed": func(s *nodes.Spec) { s.Deadline = r.clock.Now() },
		"too little memory": func(s *nodes.Spec) { s.Limits.MemoryBytes = 1 }, "env": func(s *nodes.Spec) { s.Env = map[string]string{"A=B": "x"} },
	} {
		bad := spec("b")
		change(&bad)
		if _, err := r.Create(t.Context(), bad); err == nil {
			t.Errorf("%s: created", name)
		}
	}
	if left := r.world.Left(); len(left) != 5 {
		t.Errorf("the world holds %q, want the five things of one sandbox", left)
	}
}

func TestPauseAndResume(t *testing.T) {
	r := newRig(t)
	r.create(t, spec("a"))
	if p, err := r.Resume(t.Context(), "sbx_a", 0); err != nil || p.Generation != 1 {
		t.Fatalf("a running one: %+v, %v", p, err)
	}
	for range 2 {
		if err := r.Pause(t.Context(), "sbx_a"); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			if p, err := r.Resume(t.Context(), "sbx_a", 9); err != nil || p.Generation != 2 || p.MinRevision != 9 {
				t.Errorf("resumed %+v, %v", p, err)
			}
		})
	}
	wg.Wait()
	count := 0
	for _, c := range r.world.Calls {
		if c == "Driver.Resume" {
			count++
		}
	}
	if count != 1 {
		t.Errorf("%d resumes for 200 callers", count)
	}
	if p, _ := r.world.Bound("sbx_a"); p.Generation != 2 || p.Incarnation != 1 {
		t.Errorf("bound %+v", p)
	}
	// The listener of the first binding is still the one.
	if r.world.Listener("sbx_a") == nil {
		t.Error("no listener")
	}
	if err := r.Pause(t.Context(), "sbx_b"); !errors.Is(err, nodes.ErrUnknown) {
		t.Errorf("unknown sandbox: %v", err)
	}
}

func TestResumeWaitsForTheBinding(t *testing.T) {
	r := newRig(t)
	r.create(t, spec("a"))
	if err := r.Pause(t.Context(), "sbx_a"); err != nil {
		t.Fatal(err)
	}
	r.world.Fault = "Wire.Bind:before"
	if _, err := r.Resume(t.Context(), "sbx_a", 0); !errors.Is(err, nodestest.ErrFault) {
		t.Fatalf("got %v", err)
	}
	if slices.Contains(r.world.Calls, "Driver.Resume") {
		t.Error("resumed without an acknowledged binding")
	}
	r.world.Fault = ""
	if p, err := r.Resume(t.Context(), "sbx_a", 0); err != nil || p.Generation != 3 {
		t.Errorf("%+v, %v: a generation once given is not given again", p, err)
	}
}

func TestExitIsToldAndCleanedUp(t *testing.T) {
	for _, tc := range []struct {
		oom  bool
		want nodes.EventKind
	}{{false, nodes.Exited}, {true, nodes.OutOfMemory}} {
		t.Run(string(tc.want), func(t *testing.T) {
			r := newRig(t)
			p := r.create(t, spec("a"))
			r.world.Kill(p.RunscID, tc.oom)
			if e := r.wantEvents(t, tc.want, nodes.Deleted); e.Reason != tc.want || e.Sandbox != "sbx_a" || e.Org != "org_1" || e.Incarnation != 1 {
				t.Errorf("event %+v", e)
			}
			r.wantNothing(t)
		})
	}
}

func TestExpiry(t *testing.T) {
	r := newRig(t)
	s := spec("a")
	s.Deadline = r.clock.Now().Add(10 * time.Minute)
	r.create(t, s)
	r.create(t, spec("b")) // no deadline
	for range 9 {
		r.clock.Advance(time.Minute)
	}
	if err := r.Extend(t.Context(), "sbx_a", r.clock.Now().Add(5*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := r.Extend(t.Context(), "sbx_a", r.clock.Now()); !errors.Is(err, nodes.ErrExpired) {
		t.Errorf("extending into the past: %v", err)
	}
	r.advance(t, 5*time.Minute-time.Second)
	r.wantEvents(t)
	if _, err := r.Get("sbx_a"); err != nil {
		t.Fatal(err)
	}
	r.advance(t, 2*time.Second)
	r.wantEvents(t, nodes.Expired, nodes.Deleted)
	if _, err := r.Get("sbx_b"); err != nil {
		t.Errorf("the one without a deadline: %v", err)
	}
}

// advance moves the clock by d in the steps that the node's timers have, and lets each timer's work be done.
func (r *rig) advance(t *testing.T, d time.Duration) {
	for d > 0 {
		step := min(d, 10*time.Second)
		r.clock.Advance(step)
		_, _ = r.Resume(t.Context(), "sbx_a", 0) // waits for the box
		d -= step
	}
}

func TestNodeKeepsNoListener(t *testing.T) {
	r := newRig(t)
	p := r.create(t, spec("a"))
	control := filepath.Join(r.config.StateDir, "node", "sandboxes", p.RunscID, "control")
	for dir, want := range map[string]os.FileMode{control: 0o700, filepath.Join(r.config.StateDir, "node"): 0o700} {
		if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", dir, st.Mode(), err)
		}
	}
	sock := filepath.Join(control, "init.sock")
	c, err := net.Dial("unix", sock)
	if err != nil {
		t.Fatalf("while the wire holds the listener: %v", err)
	}
	_ = c.Close()
	if err := r.world.Listener("sbx_a").Close(); err != nil {
		t.Fatal(err)
	}
	if c, err := net.Dial("unix", sock); err == nil {
		_ = c.Close()
		t.Error("somebody else still listens")
	}
}

func TestAdoptKeepsTheLivingOnly(t *testing.T) {
	r := newRig(t)
	living := r.create(t, spec("living"))
	paused := r.create(t, spec("paused"))
	dead := r.create(t, spec("dead"))
	other := r.create(t, spec("other"))
	broken := r.create(t, spec("broken"))
	if err := r.Pause(t.Context(), "sbx_paused"); err != nil {
		t.Fatal(err)
	}
	r.Close()
	r.world.Kill(dead.RunscID, true)
	r.edit(t, other, func(rec map[string]any) { rec["pid_start"] = 1 }) // the id now belongs to another process
	if err := os.WriteFile(r.record(broken), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.restart(t)
	taken, err := r.Adopt(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range taken {
		names = append(names, p.Sandbox)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"sbx_living", "sbx_paused"}) {
		t.Errorf("adopted %q", names)
	}
	for _, p := range []nodes.Placement{living, paused} {
		if st, err := r.Get(p.Sandbox); err != nil || st.Placement != p {
			t.Errorf("now %+v, %v, was %+v", st.Placement, err, p)
		}
	}
	kinds := map[string][]nodes.EventKind{}
	for len(r.events) > 0 {
		e := <-r.events
		kinds[e.Sandbox] = append(kinds[e.Sandbox], e.Kind)
	}
	if !slices.Equal(kinds["sbx_dead"], []nodes.EventKind{nodes.OutOfMemory, nodes.Deleted}) {
		t.Errorf("of the dead one: %q", kinds["sbx_dead"])
	}
	// A new listener, as the old ones may have gone with their holders; watched again.
	if c, err := net.Dial("unix", filepath.Join(filepath.Dir(r.record(living)), "control", "init.sock")); err != nil {
		t.Error(err)
	} else {
		_ = c.Close()
	}
	if p, err := r.Resume(t.Context(), "sbx_paused", 0); err != nil || p.Generation != 2 {
		t.Errorf("resuming an adopted one: %+v, %v", p, err)
	}
	r.world.Kill(living.RunscID, false)
	r.wantEvents(t, nodes.Exited, nodes.Deleted)
	if err := r.Delete(t.Context(), "sbx_paused"); err != nil {
		t.Fatal(err)
	}
	r.wantEvents(t, nodes.Deleted)
	// The broken record named no binding; its link was removed as a stray.
	if left := r.world.Left(); !slices.Equal(left, []string{"binding sbx_broken"}) {
		t.Errorf("left over: %q", left)
	}
	r.world.Violations = slices.DeleteFunc(r.world.Violations, func(v string) bool { return strings.Contains(v, "sbx_broken") })
}

func TestAdoptRemovesTheExpired(t *testing.T) {
	r := newRig(t)
	s := spec("a")
	s.Deadline = r.clock.Now().Add(time.Minute)
	r.create(t, s)
	s.Sandbox, s.Deadline = "sbx_b", s.Deadline.Add(time.Hour)
	r.create(t, s)
	r.Close()
	r.clock.Advance(2 * time.Minute)
	r.restart(t)
	taken, err := r.Adopt(t.Context())
	if err != nil || len(taken) != 1 || taken[0].Sandbox != "sbx_b" {
		t.Fatalf("adopted %v, %v", taken, err)
	}
	r.wantEvents(t, nodes.Expired, nodes.Deleted)
}

// A create or a removal that was cut off by a crash is undone at the next start.
func TestAdoptFinishesWhatWasCutOff(t *testing.T) {
	for _, state := range []string{"creating", "deleting"} {
		t.Run(state, func(t *testing.T) {
			r := newRig(t)
			p := r.create(t, spec("a"))
			r.edit(t, p, func(rec map[string]any) { rec["state"] = state })
			r.restart(t)
			if taken, err := r.Adopt(t.Context()); err != nil || len(taken) != 0 {
				t.Fatalf("adopted %v, %v", taken, err)
			}
			r.wantNothing(t)
		})
	}
}

func TestPurgeLeavesNothing(t *testing.T) {
	r := newRig(t)
	r.create(t, spec("a"))
	lost := r.create(t, spec("lost"))
	if err := os.RemoveAll(filepath.Dir(r.record(lost))); err != nil {
		t.Fatal(err)
	}
	r.restart(t)
	r.world.Violations = nil
	if err := r.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The wire and the firewall are new at that moment, or about to go.
	left := slices.DeleteFunc(r.world.Left(), func(s string) bool { return strings.HasPrefix(s, "binding") || strings.HasPrefix(s, "element") })
	if len(left) != 0 {
		t.Errorf("left over: %q", left)
	}
	r.world.Violations = nil
	r.create(t, spec("after"))
}

func (r *rig) record(p nodes.Placement) string {
	return filepath.Join(r.config.StateDir, "node", "sandboxes", p.RunscID, "record.json")
}

func (r *rig) edit(t *testing.T, p nodes.Placement, change func(map[string]any)) {
	t.Helper()
	b, err := os.ReadFile(r.record(p))
	if err != nil {
		t.Fatal(err)
	}
	var rec map[string]any
	if err := json.Unmarshal(b, &rec); err != nil {
		t.Fatal(err)
	}
	change(rec)
	if b, err = json.Marshal(rec); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.record(p), b, 0o600); err != nil {
		t.Fatal(err)
	}
}
