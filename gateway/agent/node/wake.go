package node

import (
	"context"

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
	a.queue(role.Event{Sandbox: p.Sandbox, Kind: role.EventResumed, Incarnation: p.Incarnation, Generation: p.Generation})
	return role.Woken{Generation: p.Generation}, nil
}
