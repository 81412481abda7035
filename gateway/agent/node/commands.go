package node

import (
	"context"
	"errors"

	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/nodes"
	"portreeve.dev/nodes/images"
)

// registerControl is what control may ask.
func (a *Agent) registerControl() {
	mux := a.control.Mux
	link.Handle(mux, role.NodeCreate, func(ctx context.Context, s role.NodeSpec) (role.Placement, error) {
		p, err := a.nodes.Create(ctx, nodes.Spec{
			Sandbox: s.Sandbox, Org: s.Org, Image: s.Image, Env: s.Env, Trust: s.Trust, Deadline: s.Deadline,
			Limits:      nodes.Limits{MemoryBytes: s.MemoryBytes, CPUMillis: s.CPUMillis, WorkspaceBytes: s.WorkspaceBytes},
			Incarnation: s.Incarnation, Generation: s.Generation, MinRevision: s.MinRevision,
		})
		if err != nil {
			return role.Placement{}, coded(err)
		}
		return a.placement(p.Sandbox)
	})
	link.Handle(mux, role.NodeDelete, func(ctx context.Context, r role.SandboxRef) (struct{}, error) {
		return struct{}{}, coded(a.nodes.Delete(ctx, r.Sandbox))
	})
	link.Handle(mux, role.NodePause, func(ctx context.Context, r role.SandboxRef) (struct{}, error) {
		return struct{}{}, coded(a.nodes.Pause(ctx, r.Sandbox))
	})
	link.Handle(mux, role.NodeResume, func(ctx context.Context, r role.Resume) (role.Placement, error) {
		if _, err := a.nodes.Resume(ctx, r.Sandbox, r.MinRevision); err != nil {
			return role.Placement{}, coded(err)
		}
		return a.placement(r.Sandbox)
	})
	link.Handle(mux, role.NodeExtend, func(ctx context.Context, e role.Extend) (struct{}, error) {
		return struct{}{}, coded(a.nodes.Extend(ctx, e.Sandbox, e.Deadline))
	})
	link.Handle(mux, role.NodeList, func(context.Context, struct{}) ([]role.Placement, error) {
		all := []role.Placement{}
		for _, s := range a.nodes.List() {
			if s.State == nodes.Paused { // or just being woken: control is told what came of it, not how it stands in between
				var err error
				if s, err = a.nodes.Settled(s.Sandbox); err != nil {
					continue // gone meanwhile
				}
			}
			all = append(all, placed(s))
		}
		return all, nil
	})
	link.Handle(mux, role.NodeTrust, func(_ context.Context, t role.OrgTrust) (struct{}, error) {
		return struct{}{}, a.nodes.Trust(t.Org, t.Roots)
	})
	link.Handle(mux, role.NodeImages, func(context.Context, struct{}) ([]role.Image, error) { return a.listImages() })
}

func (a *Agent) placement(sandbox string) (role.Placement, error) {
	s, err := a.nodes.Get(sandbox)
	if err != nil {
		return role.Placement{}, coded(err)
	}
	return placed(s), nil
}

func placed(s nodes.Status) role.Placement {
	return role.Placement{Sandbox: s.Sandbox, Org: s.Org, Addr: s.Addr, RunscID: s.RunscID, Incarnation: s.Incarnation,
		Generation: s.Generation, State: string(s.State), Deadline: s.Deadline}
}

func (a *Agent) listImages() ([]role.Image, error) {
	list, err := a.images.List()
	if err != nil {
		return nil, err
	}
	all := []role.Image{}
	for _, s := range list {
		all = append(all, role.Image{Name: s.Name, Digest: s.Digest, State: s.State, Error: s.Error})
	}
	return all, nil
}

// coded gives the errors that control tells apart their code.
func coded(err error) error {
	for code, sentinel := range map[string]error{
		role.CodeUnknown: nodes.ErrUnknown, role.CodeExists: nodes.ErrExists, role.CodeNotReady: nodes.ErrNotReady, role.CodeExpired: nodes.ErrExpired,
		role.CodeImageUnknown: images.ErrUnknown, role.CodeImageBuilding: images.ErrBuilding, role.CodeImageFailed: images.ErrFailed,
	} {
		if errors.Is(err, sentinel) {
			return &link.Error{Code: code, Message: err.Error()}
		}
	}
	return err
}

func isClosed(err error) bool { return errors.Is(err, link.ErrClosed) }

// keepEvent queues what happened by itself; it is called under the sandbox's lock. What doesn't fit is dropped: control asks
// for the whole list whenever it comes back, and what a list doesn't show is over.
func (a *Agent) keepEvent(e nodes.Event) {
	if e.Kind == nodes.Deleted {
		a.names.drop(e.Sandbox)
		a.woken.forget(e.Sandbox)
		return
	}
	a.queue(role.Event{Sandbox: e.Sandbox, Kind: string(e.Kind), Incarnation: e.Incarnation, Generation: e.Generation})
}

func (a *Agent) queue(e role.Event) {
	select {
	case a.events <- e:
	default:
		a.log.Warn("an event is dropped: control does not take any", "sandbox", e.Sandbox, "kind", e.Kind)
	}
}

// tellEvents passes the queue on to one control.
func (a *Agent) tellEvents(ctx context.Context, conn *link.Conn) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-a.events:
			if err := conn.Notify(role.NodeEvent, e); err != nil {
				a.log.Warn("an event did not reach control", "sandbox", e.Sandbox, "kind", e.Kind, "err", err)
			}
		}
	}
}
