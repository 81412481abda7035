package node

import (
	"context"
	"sync"

	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/nodes"
)

// registerIngress is what ingress may ask: that a paused sandbox runs.
func (a *Agent) registerIngress() {
	link.Handle(a.ingress.Mux, role.NodeWake, func(ctx context.Context, r role.WakeRequest) (role.Woken, error) {
		woken, err := a.wake(ctx, r)
		return woken, coded(err)
	})
}

// wake resumes a sandbox, or finds it running already. Control is told after: nothing of the store is on the way.
func (a *Agent) wake(ctx context.Context, r role.WakeRequest) (role.Woken, error) {
	now, err := a.nodes.Get(r.Sandbox)
	if err != nil {
		return role.Woken{}, err
	}
	if now.State == nodes.Running {
		return role.Woken{Generation: now.Generation}, nil
	}
	p, err := a.nodes.Resume(ctx, r.Sandbox, 0)
	if err != nil {
		return role.Woken{}, err
	}
	if a.woken.first(p.Sandbox, p.Generation) {
		a.queue(role.Event{Sandbox: p.Sandbox, Kind: role.EventResumed, Incarnation: p.Incarnation, Generation: p.Generation})
	}
	return role.Woken{Generation: p.Generation}, nil
}

// wakes remembers which generation was last told of, so that many callers of one sleeping sandbox fill no queue. The zero value
// remembers nothing.
type wakes struct {
	mu   sync.Mutex
	told map[string]uint64 // by sandbox
}

// first reports whether nobody has told of that generation yet.
func (w *wakes) first(sandbox string, generation uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if generation <= w.told[sandbox] {
		return false
	}
	if w.told == nil {
		w.told = make(map[string]uint64)
	}
	w.told[sandbox] = generation
	return true
}

func (w *wakes) forget(sandbox string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.told, sandbox)
}
