package sandboxes_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"portreeve.dev/gateway/api/apitest"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/sandboxes"
	"portreeve.dev/sso"
)

type world struct {
	*apitest.World
	t  *testing.T
	by store.By
}

func newWorld(t *testing.T) world {
	w := apitest.New(t)
	return world{w, t, principal(w.Org("one"))}
}

func principal(c *apitest.Client) store.By {
	return store.By{Principal: sso.Principal{Kind: sso.KindKey, ID: "key_1", Org: c.Org, Scopes: sso.Scopes()}}
}

func order() sandboxes.Order {
	return sandboxes.Order{Spec: store.SandboxSpec{CPUs: "1", Memory: "128Mi", MilliCPU: 1000, MemoryBytes: 128 << 20, Timeout: 600, Template: "tiny", Env: map[string]string{"A": "b"}}}
}

func (w world) create() store.Sandbox {
	w.t.Helper()
	b, err := w.Sandboxes.Create(w.t.Context(), w.by, order())
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

func (w world) row(id string) store.Sandbox {
	w.t.Helper()
	b, err := w.Store.Sandbox(w.t.Context(), w.by.Principal.Org, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

func (w world) want(b store.Sandbox, status store.SandboxStatus, reason string) {
	w.t.Helper()
	if now := w.row(b.ID); now.Status != status || now.Reason != reason {
		w.t.Errorf("sandbox is %s %q, want %s %q", now.Status, now.Reason, status, reason)
	}
}

func (w world) actions(id string) []string {
	w.t.Helper()
	entries, _, err := w.Store.Audit(w.t.Context(), w.by.Principal.Org, store.AuditFilter{Object: id, Limit: 100})
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, string(e.Action)+" "+e.ActorKind+" "+e.Outcome)
	}
	slices.Reverse(all)
	return all
}

func TestLife(t *testing.T) {
	w := newWorld(t)
	b := w.create()
	if b.Status != store.Running || b.Addr == "" || b.RunscID == "" || b.Incarnation != 1 || b.Generation != 1 || b.MinRevision == 0 {
		t.Errorf("created: %+v", b)
	}
	spec, _ := w.Runner.Spec(b.ID)
	if spec.Org != w.by.Principal.Org || spec.MemoryBytes != 128<<20 || spec.MilliCPU != 1000 || spec.Env["A"] != "b" || spec.Template != "tiny" || spec.MinRevision != b.MinRevision || !spec.End.Equal(b.ExpiresAt) {
		t.Errorf("what the node was told: %+v", spec)
	}
	paused, err := w.Sandboxes.Pause(t.Context(), w.by, b.ID)
	if err != nil || paused.Status != store.Paused {
		t.Fatalf("pause: %s, %v", paused.Status, err)
	}
	if _, err := w.Sandboxes.Pause(t.Context(), w.by, b.ID); err != nil {
		t.Errorf("pausing twice: %v", err)
	}
	resumed, err := w.Sandboxes.Resume(t.Context(), w.by, b.ID)
	if err != nil || resumed.Status != store.Running || resumed.Generation != 2 || resumed.Incarnation != 1 {
		t.Fatalf("resume: %+v, %v", resumed, err)
	}
	extended, err := w.Sandboxes.Extend(t.Context(), w.by, b.ID, time.Hour, 24*time.Hour)
	if err != nil || !extended.ExpiresAt.Equal(b.ExpiresAt.Add(time.Hour)) || !w.Runner.End(b.ID).Equal(extended.ExpiresAt) {
		t.Fatalf("extend: %v, %v", extended.ExpiresAt, err)
	}
	if _, err := w.Sandboxes.Extend(t.Context(), w.by, b.ID, 23*time.Hour, 24*time.Hour); !errors.Is(err, store.ErrLimit) {
		t.Errorf("extending beyond the longest life: %v", err)
	}
	for range 2 { // deleting twice is no error
		if _, err := w.Sandboxes.Delete(t.Context(), w.by, b.ID, audit.SandboxDelete); err != nil {
			t.Fatal(err)
		}
	}
	w.want(b, store.Terminated, sandboxes.ReasonDeleted)
	if w.Runner.Has(b.ID) {
		t.Error("the node still has it")
	}
	want := []string{"sandbox.create key success", "sandbox.start system success", "sandbox.pause key success", "sandbox.resume key success",
		"sandbox.extend key success", "sandbox.delete key success", "sandbox.terminate system success"}
	if got := w.actions(b.ID); !slices.Equal(got, want) {
		t.Errorf("audit log:\n%s", strings.Join(got, "\n"))
	}
	for name, command := range map[string]func() error{
		"pause":  func() error { _, err := w.Sandboxes.Pause(t.Context(), w.by, b.ID); return err },
		"resume": func() error { _, err := w.Sandboxes.Resume(t.Context(), w.by, b.ID); return err },
		"extend": func() error {
			_, err := w.Sandboxes.Extend(t.Context(), w.by, b.ID, time.Minute, 24*time.Hour)
			return err
		},
	} {
		if err := command(); !errors.Is(err, sandboxes.ErrState) {
			t.Errorf("%s after the end: %v", name, err)
		}
	}
}

func TestNoStartBeforeTheEdgesKnow(t *testing.T) {
	w := newWorld(t)
	w.Runner.Lock(func() {
		w.Runner.OnCreate = func(spec sandboxes.Spec) {
			if spec.MinRevision == 0 || w.Feed.Applied() < spec.MinRevision {
				t.Errorf("the node was told to start at revision %d, the edges knew %d", spec.MinRevision, w.Feed.Applied())
			}
		}
	})
	w.create()
	w.Feed.Silent(true)
	svc, err := sandboxes.New(sandboxes.Config{Store: w.Store, Runner: w.Runner, Guest: w.Guest, Feed: w.Feed, Start: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	before := len(w.Runner.Log())
	_, err = svc.Create(t.Context(), w.by, order())
	failed, ok := errors.AsType[*sandboxes.Failed](err)
	if !ok || failed.Sandbox.Status != store.Failed || failed.Sandbox.Reason != sandboxes.ReasonPolicyNotApplied {
		t.Fatalf("err = %v", err)
	}
	for _, command := range w.Runner.Log()[before:] {
		if strings.HasPrefix(command, "create") {
			t.Error("the node was told to start although no edge had acknowledged")
		}
	}
}

func TestFailedCreateLeavesNothing(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		set    func(w world)
		reason string
	}{
		"the node refuses":            {func(w world) { w.Runner.FailCreate = boom }, sandboxes.ReasonNode},
		"the node's answer gets lost": {func(w world) { w.Runner.FailLate = boom }, sandboxes.ReasonNode},
		"the guest never answers":     {func(w world) { w.Guest.NotReady(boom, nil) }, sandboxes.ReasonGuest},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.set(w)
			_, err := w.Sandboxes.Create(t.Context(), w.by, order())
			failed, ok := errors.AsType[*sandboxes.Failed](err)
			if !ok || !errors.Is(err, boom) {
				t.Fatalf("err = %v", err)
			}
			w.want(failed.Sandbox, store.Failed, c.reason)
			if w.Runner.Has(failed.Sandbox.ID) {
				t.Error("the node has it")
			}
			if got := w.actions(failed.Sandbox.ID); !slices.Contains(got, "sandbox.start system failure") {
				t.Errorf("audit log: %v", got)
			}
		})
	}
}

func TestUnknownPolicyMakesNothing(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"web", store.Ceiling} {
		o := order()
		o.Policy = &name
		if _, err := w.Sandboxes.Create(t.Context(), w.by, o); !errors.Is(err, sandboxes.ErrPolicy) {
			t.Errorf("policy %q: %v", name, err)
		}
	}
	if len(w.Runner.Log()) != 0 {
		t.Error("the node was asked")
	}
}

func TestDeleteEndsACreateInFlight(t *testing.T) {
	w := newWorld(t)
	w.Guest.NotReady(nil, make(chan struct{})) // never
	created := make(chan error)
	begun := make(chan string)
	w.Runner.Lock(func() { w.Runner.OnCreate = func(s sandboxes.Spec) { begun <- s.ID } })
	go func() {
		_, err := w.Sandboxes.Create(t.Context(), w.by, order())
		created <- err
	}()
	id := <-begun
	b, err := w.Sandboxes.Delete(t.Context(), w.by, id, audit.SandboxDelete)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-created; err == nil {
		t.Error("the create answered that it worked")
	}
	w.want(b, store.Terminated, sandboxes.ReasonDeleted)
	if w.Runner.Has(id) {
		t.Error("the node has it")
	}
}

func TestEvents(t *testing.T) {
	for _, c := range []struct {
		kind   sandboxes.EventKind
		status store.SandboxStatus
		reason string
	}{
		{sandboxes.Exited, store.Failed, sandboxes.ReasonExited},
		{sandboxes.OOM, store.Failed, sandboxes.ReasonOOM},
		{sandboxes.Expired, store.Terminated, sandboxes.ReasonExpired},
	} {
		t.Run(string(c.kind), func(t *testing.T) {
			w := newWorld(t)
			b := w.create()
			for range 2 { // told twice is told once
				if err := w.Sandboxes.HandleEvent(t.Context(), sandboxes.Event{Sandbox: b.ID, Kind: c.kind, Incarnation: 1, Generation: 1}); err != nil {
					t.Fatal(err)
				}
			}
			w.want(b, c.status, c.reason)
			if w.Runner.Has(b.ID) {
				t.Error("the node was not told to clean up")
			}
			if n := len(w.actions(b.ID)); n != 3 {
				t.Errorf("%d entries, want 3", n)
			}
		})
	}
	w := newWorld(t)
	if err := w.Sandboxes.HandleEvent(t.Context(), sandboxes.Event{Sandbox: store.NewID("sbx"), Kind: sandboxes.OOM}); err != nil {
		t.Errorf("an event of an unknown sandbox: %v", err)
	}
	b := w.create()
	must := func(e sandboxes.Event) {
		t.Helper()
		e.Sandbox = b.ID
		if err := w.Sandboxes.HandleEvent(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	w.Runner.Plant(b.ID, true, 1)
	must(sandboxes.Event{Kind: sandboxes.Paused, Incarnation: 1, Generation: 1})
	w.want(b, store.Paused, "")
	w.Runner.Plant(b.ID, false, 2)
	must(sandboxes.Event{Kind: sandboxes.Resumed, Incarnation: 1, Generation: 2})
	w.want(b, store.Running, "")
	must(sandboxes.Event{Kind: sandboxes.Paused, Incarnation: 1, Generation: 1}) // late
	w.want(b, store.Running, "")
	must(sandboxes.Event{Kind: sandboxes.Exited, Incarnation: 1})
	must(sandboxes.Event{Kind: sandboxes.OOM, Incarnation: 1}) // the cause after the effect
	w.want(b, store.Failed, sandboxes.ReasonOOM)
	if err := w.Sandboxes.HandleEvent(t.Context(), sandboxes.Event{Sandbox: w.create().ID, Kind: "made up", Incarnation: 1}); err == nil {
		t.Error("an unknown event was taken")
	}
}

// TestLateWordOfAWakeIsNotBelieved: a caller of a tunnel wakes a sandbox, and somebody pauses it again before control has heard of it.
func TestLateWordOfAWakeIsNotBelieved(t *testing.T) {
	w := newWorld(t)
	b := w.create()
	if _, err := w.Sandboxes.Pause(t.Context(), w.by, b.ID); err != nil {
		t.Fatal(err)
	}
	w.Runner.Plant(b.ID, false, 2) // woken
	paused, err := w.Sandboxes.Pause(t.Context(), w.by, b.ID)
	if err != nil || paused.Status != store.Paused || paused.Generation != 2 {
		t.Errorf("pausing it again: %s, generation %d, %v", paused.Status, paused.Generation, err)
	}
	if !w.Runner.Paused(b.ID) {
		t.Error("it runs")
	}
	word := sandboxes.Event{Sandbox: b.ID, Kind: sandboxes.Resumed, Incarnation: 1, Generation: 2}
	if err := w.Sandboxes.HandleEvent(t.Context(), word); err != nil {
		t.Fatal(err)
	}
	if now := w.row(b.ID); now.Status != store.Paused || now.Generation != 2 {
		t.Errorf("after the late word: %s, generation %d", now.Status, now.Generation)
	}
	// The twin: nobody paused it meanwhile.
	w.Runner.Plant(b.ID, false, 3)
	word.Generation = 3
	for range 2 {
		if err := w.Sandboxes.HandleEvent(t.Context(), word); err != nil {
			t.Fatal(err)
		}
	}
	if now := w.row(b.ID); now.Status != store.Running || now.Generation != 3 {
		t.Errorf("after a wake: %s, generation %d", now.Status, now.Generation)
	}
	if got := w.actions(b.ID); !slices.Equal(got[2:], []string{"sandbox.pause key success", "sandbox.pause key success", "sandbox.resume system success"}) {
		t.Errorf("audit log: %v", got)
	}
	w.Runner.Lose(b.ID)
	if err := w.Sandboxes.HandleEvent(t.Context(), sandboxes.Event{Sandbox: b.ID, Kind: sandboxes.Paused, Incarnation: 1, Generation: 3}); err != nil {
		t.Fatal(err)
	}
	w.want(b, store.Running, "") // that it is gone is other news
}

// TestEachChangeIsPublished: ingress learns what a sandbox is from the same feed as of its tunnels.
func TestEachChangeIsPublished(t *testing.T) {
	w := newWorld(t)
	b := w.create()
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"pause", func() error { _, err := w.Sandboxes.Pause(t.Context(), w.by, b.ID); return err }},
		{"resume", func() error { _, err := w.Sandboxes.Resume(t.Context(), w.by, b.ID); return err }},
		{"extend", func() error {
			_, err := w.Sandboxes.Extend(t.Context(), w.by, b.ID, time.Minute, 24*time.Hour)
			return err
		}},
		{"word of a pause", func() error {
			w.Runner.Plant(b.ID, true, 2)
			return w.Sandboxes.HandleEvent(t.Context(), sandboxes.Event{Sandbox: b.ID, Kind: sandboxes.Paused, Incarnation: 1, Generation: 2})
		}},
		{"reconcile", func() error { w.Runner.Plant(b.ID, false, 5); return w.Sandboxes.Reconcile(t.Context()) }},
		{"end", func() error {
			return w.Sandboxes.HandleEvent(t.Context(), sandboxes.Event{Sandbox: b.ID, Kind: sandboxes.Expired, Incarnation: 1, Generation: 5})
		}},
	} {
		before, row := len(w.Feed.Published()), w.row(b.ID)
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if w.row(b.ID).Version == row.Version || len(w.Feed.Published()) == before {
			t.Errorf("%s: version %d to %d, published %d times", step.name, row.Version, w.row(b.ID).Version, len(w.Feed.Published())-before)
		}
	}
	second := w.create()
	before := len(w.Feed.Published())
	if _, err := w.Sandboxes.Delete(t.Context(), w.by, second.ID, audit.SandboxDelete); err != nil {
		t.Fatal(err)
	}
	if n := len(w.Feed.Published()) - before; n != 2 { // at its condemnation: callers must not wait for its end
		t.Errorf("a delete was published %d times, want 2", n)
	}
}

func TestStaleEventChangesNothing(t *testing.T) {
	w := newWorld(t)
	b := w.create()
	_, err := w.Store.Change(t.Context(), w.by, func(tx *store.Tx) error {
		b.Incarnation = 3
		if b, err := tx.UpdateSandbox(t.Context(), b); err != nil {
			return errors.Join(err, errors.New(b.ID))
		}
		return tx.Record(t.Context(), audit.SandboxStart, b.ID, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	event := sandboxes.Event{Sandbox: b.ID, Kind: sandboxes.OOM, Incarnation: 2}
	if err := w.Sandboxes.HandleEvent(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	w.want(b, store.Running, "")
	event.Incarnation = 3
	if err := w.Sandboxes.HandleEvent(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	w.want(b, store.Failed, sandboxes.ReasonOOM)
}

func TestAnotherOrgsSandboxIsNotFound(t *testing.T) {
	w := newWorld(t)
	b := w.create()
	other := principal(w.Org("two"))
	commands := map[string]func(by store.By) error{
		"get":    func(by store.By) error { _, err := w.Sandboxes.Get(t.Context(), by.Principal.Org, b.ID); return err },
		"pause":  func(by store.By) error { _, err := w.Sandboxes.Pause(t.Context(), by, b.ID); return err },
		"resume": func(by store.By) error { _, err := w.Sandboxes.Resume(t.Context(), by, b.ID); return err },
		"extend": func(by store.By) error {
			_, err := w.Sandboxes.Extend(t.Context(), by, b.ID, time.Minute, 24*time.Hour)
			return err
		},
		"delete": func(by store.By) error {
			_, err := w.Sandboxes.Delete(t.Context(), by, b.ID, audit.SandboxDelete)
			return err
		},
		"end": func(by store.By) error { _, err := w.Sandboxes.End(t.Context(), by.Principal.Org, b.ID); return err },
	}
	for name, do := range commands {
		if err := do(other); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s by another org: %v", name, err)
		}
	}
	w.want(b, store.Running, "")
	for _, name := range []string{"get", "pause", "resume", "extend", "delete", "end"} {
		if err := commands[name](w.by); err != nil {
			t.Errorf("%s by its own org: %v", name, err)
		}
	}
}

func TestReconcileDeletesOrphans(t *testing.T) {
	w := newWorld(t)
	running, lost, paused := w.create(), w.create(), w.create()
	w.Runner.Plant("sbx_nobody", false, 1)
	w.Runner.Lose(lost.ID)
	w.Runner.Plant(paused.ID, true, 4) // slept and woke while nobody listened
	dying := w.create()
	w.Runner.Lock(func() { w.Runner.FailDelete = errors.New("node is busy") })
	if _, err := w.Sandboxes.Delete(t.Context(), w.by, dying.ID, audit.SandboxStop); err == nil {
		t.Error("a delete that the node refused was answered as done")
	}
	w.want(dying, store.Terminating, "")
	w.Runner.Lock(func() { w.Runner.FailDelete = nil })

	if err := w.Sandboxes.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.Runner.Has("sbx_nobody") {
		t.Error("the orphan is still there")
	}
	if !w.Runner.Has(running.ID) {
		t.Error("a sandbox with a row was deleted")
	}
	w.want(running, store.Running, "")
	w.want(lost, store.Failed, sandboxes.ReasonLost)
	w.want(dying, store.Terminated, sandboxes.ReasonDeleted)
	w.want(paused, store.Paused, "")
	if now := w.row(paused.ID); now.Generation != 4 {
		t.Errorf("generation %d, want the node's 4", now.Generation)
	}
}

func TestReconcileEndsInterruptedCreates(t *testing.T) {
	w := newWorld(t)
	var b store.Sandbox
	_, err := w.Store.Change(t.Context(), w.by, func(tx *store.Tx) (err error) {
		b, err = tx.CreateSandbox(t.Context(), store.Sandbox{ID: store.NewID("sbx"), Status: store.Creating, ExpiresAt: time.Now().Add(time.Hour)}, 0)
		if err != nil {
			return err
		}
		return tx.Record(t.Context(), audit.SandboxCreate, b.ID, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Runner.Plant(b.ID, false, 1)
	if err := w.Sandboxes.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.want(b, store.Failed, sandboxes.ReasonInterrupted)
	if w.Runner.Has(b.ID) {
		t.Error("the node has it")
	}
}

func TestLostSandboxIsNoticed(t *testing.T) {
	w := newWorld(t)
	b := w.create()
	w.Runner.Lose(b.ID)
	if _, err := w.Sandboxes.Pause(t.Context(), w.by, b.ID); !errors.Is(err, sandboxes.ErrState) {
		t.Errorf("pausing what the node lost: %v", err)
	}
	w.want(b, store.Failed, sandboxes.ReasonLost)
}

func TestLimitOfSandboxes(t *testing.T) {
	w := newWorld(t)
	svc, err := sandboxes.New(sandboxes.Config{Store: w.Store, Runner: w.Runner, Guest: w.Guest, Feed: w.Feed, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	b, err := svc.Create(t.Context(), w.by, order())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := svc.Create(t.Context(), w.by, order()); !errors.Is(err, store.ErrLimit) {
		t.Errorf("the second of one: %v", err)
	}
	if _, err := svc.Create(t.Context(), principal(w.Org("two")), order()); err != nil {
		t.Errorf("another org's first: %v", err)
	}
	if _, err := svc.Delete(t.Context(), w.by, b.ID, audit.SandboxDelete); err != nil {
		t.Fatal(err)
	}
	if _, err := svc.Create(t.Context(), w.by, order()); err != nil {
		t.Errorf("after a delete: %v", err)
	}
}

func TestNewWantsEverything(t *testing.T) {
	if _, err := sandboxes.New(sandboxes.Config{}); err == nil {
		t.Error("a service without a store")
	}
}
