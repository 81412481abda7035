package apitest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"portreeve.dev/gateway/sandboxes"
)

// A Runner is a node that only keeps a table.
type Runner struct {
	mu    sync.Mutex
	boxes map[string]*box
	made  int
	log   []string

	// Switches. Set them before the call, under Lock if others run.
	FailCreate  error         // nothing is made
	FailLate    error         // it is made, and then the answer is this
	FailDelete  error         //
	FailPause   error         //
	FailResume  error         //
	CreateWaits chan struct{} // create waits for it, or for its context
	OnCreate    func(sandboxes.Spec)
}

type box struct {
	spec    sandboxes.Spec
	paused  bool
	started sandboxes.Started
	end     time.Time
}

var _ sandboxes.Runner = (*Runner)(nil)

// NewRunner returns an empty node.
func NewRunner() *Runner { return &Runner{boxes: map[string]*box{}} }

// Lock runs f while no command does.
func (r *Runner) Lock(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// Log returns the commands so far, as "create sbx_...".
func (r *Runner) Log() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.log)
}

// Has reports whether the node has the sandbox.
func (r *Runner) Has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.boxes[id] != nil
}

// Paused reports whether the node has the sandbox paused.
func (r *Runner) Paused(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.boxes[id] != nil && r.boxes[id].paused
}

// Spec returns what a sandbox was started with.
func (r *Runner) Spec(id string) (sandboxes.Spec, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.boxes[id]
	if b == nil {
		return sandboxes.Spec{}, false
	}
	return b.spec, true
}

// Plant puts a sandbox on the node that nobody asked for.
func (r *Runner) Plant(id string, paused bool, generation uint64) {
	r.Lock(func() {
		r.boxes[id] = &box{paused: paused, started: sandboxes.Started{Addr: "10.200.0.1", Incarnation: 1, Generation: generation}}
	})
}

// Lose takes a sandbox away, as a crash would.
func (r *Runner) Lose(id string) { r.Lock(func() { delete(r.boxes, id) }) }

func (r *Runner) Create(ctx context.Context, spec sandboxes.Spec) (sandboxes.Started, error) {
	r.mu.Lock()
	r.log = append(r.log, "create "+spec.ID)
	fail, late, waits, on := r.FailCreate, r.FailLate, r.CreateWaits, r.OnCreate
	r.mu.Unlock()
	if on != nil {
		on(spec)
	}
	if fail != nil {
		return sandboxes.Started{}, fail
	}
	if waits != nil {
		select {
		case <-waits:
		case <-ctx.Done():
			return sandboxes.Started{}, ctx.Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made++
	b := &box{spec: spec, end: spec.End, started: sandboxes.Started{
		Addr: fmt.Sprintf("10.200.0.%d", 2*r.made+1), RunscID: fmt.Sprint("runsc-", r.made), Incarnation: 1, Generation: 1,
		Phases: []sandboxes.Phase{{Name: "table", Took: time.Millisecond}},
	}}
	r.boxes[spec.ID] = b
	return b.started, late
}

func (r *Runner) Delete(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, "delete "+id)
	if r.FailDelete != nil {
		return r.FailDelete
	}
	delete(r.boxes, id)
	return nil
}

func (r *Runner) Pause(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, "pause "+id)
	switch b := r.boxes[id]; {
	case r.FailPause != nil:
		return r.FailPause
	case b == nil:
		return sandboxes.ErrNotThere
	default:
		b.paused = true
		return nil
	}
}

func (r *Runner) Resume(_ context.Context, id string, _ int64) (sandboxes.Started, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, "resume "+id)
	switch b := r.boxes[id]; {
	case r.FailResume != nil:
		return sandboxes.Started{}, r.FailResume
	case b == nil:
		return sandboxes.Started{}, sandboxes.ErrNotThere
	default:
		if b.paused {
			b.paused = false
			b.started.Generation++
		}
		return b.started, nil
	}
}

func (r *Runner) Extend(_ context.Context, id string, end time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, "extend "+id)
	b := r.boxes[id]
	if b == nil {
		return sandboxes.ErrNotThere
	}
	b.end = end
	return nil
}

// End returns when the node will end a sandbox.
func (r *Runner) End(id string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.boxes[id].end
}

func (r *Runner) List(context.Context) ([]sandboxes.Present, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []sandboxes.Present
	for id, b := range r.boxes {
		all = append(all, sandboxes.Present{ID: id, Paused: b.paused, Started: b.started})
	}
	return all, nil
}
