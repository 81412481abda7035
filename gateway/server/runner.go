package server

import (
	"context"
	"errors"
	"time"

	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/gateway/sandboxes"
)

// runner is the node as the sandboxes know it.
type runner struct {
	node  *link.Peer
	trust trust
}

// A trust is what knows whom an org's sandboxes trust. Check is told what a sandbox was given, once it runs.
type trust interface {
	Trust(ctx context.Context, org string) (pem []byte, err error)
	Check(ctx context.Context, org string, given []byte)
}

// trustNobody is for sandboxes of no org.
type trustNobody struct{}

func (trustNobody) Trust(context.Context, string) ([]byte, error) { return nil, nil }
func (trustNobody) Check(context.Context, string, []byte)         {}

var _ sandboxes.Runner = runner{}

// callLimit is how long a command may wait for a node that is being started again.
const callLimit = 60 * time.Second

func (r runner) call(ctx context.Context, method string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	err := r.node.Call(ctx, method, in, out)
	var e *link.Error
	if errors.As(err, &e) && e.Code == role.CodeUnknown {
		return errors.Join(sandboxes.ErrNotThere, err)
	}
	return err
}

func (r runner) Create(ctx context.Context, s sandboxes.Spec) (sandboxes.Started, error) {
	trust, err := r.trust.Trust(ctx, s.Org)
	if err != nil {
		return sandboxes.Started{}, err
	}
	var p role.Placement
	err = r.call(ctx, role.NodeCreate, role.NodeSpec{
		Sandbox: s.ID, Org: s.Org, Image: s.Template, MemoryBytes: s.MemoryBytes, CPUMillis: s.MilliCPU,
		WorkspaceBytes: s.WorkspaceBytes, Env: s.Env, Trust: trust, Deadline: s.End, Incarnation: 1, Generation: 1, MinRevision: uint64(s.MinRevision),
	}, &p)
	r.trust.Check(ctx, s.Org, trust) // a root may have come meanwhile
	return started(p), err
}

func started(p role.Placement) sandboxes.Started {
	return sandboxes.Started{Addr: p.Addr.String(), RunscID: p.RunscID, Incarnation: p.Incarnation, Generation: p.Generation}
}

func (r runner) Delete(ctx context.Context, id string) error {
	err := r.call(ctx, role.NodeDelete, role.SandboxRef{Sandbox: id}, nil)
	if errors.Is(err, sandboxes.ErrNotThere) {
		return nil
	}
	return err
}

func (r runner) Pause(ctx context.Context, id string) error {
	return r.call(ctx, role.NodePause, role.SandboxRef{Sandbox: id}, nil)
}

func (r runner) Resume(ctx context.Context, id string, minRevision int64) (sandboxes.Started, error) {
	var p role.Placement
	err := r.call(ctx, role.NodeResume, role.Resume{Sandbox: id, MinRevision: uint64(minRevision)}, &p)
	return started(p), err
}

func (r runner) Extend(ctx context.Context, id string, end time.Time) error {
	return r.call(ctx, role.NodeExtend, role.Extend{Sandbox: id, Deadline: end}, nil)
}

func (r runner) List(ctx context.Context) ([]sandboxes.Present, error) {
	var all []role.Placement
	if err := r.call(ctx, role.NodeList, struct{}{}, &all); err != nil {
		return nil, err
	}
	var present []sandboxes.Present
	for _, p := range all {
		present = append(present, sandboxes.Present{ID: p.Sandbox, Paused: p.State == "paused", Started: started(p)})
	}
	return present, nil
}

// reconcile brings rows and node together whenever a node comes.
func (c *control) reconcile(ctx context.Context, _ *link.Conn) {
	if err := c.sandboxes.Reconcile(ctx); err != nil && ctx.Err() == nil {
		c.log.Error("rows and node could not be brought together", "err", err)
	}
}

// event takes the node's notice. Ending a sandbox takes a while, and the node must not wait for it.
func (c *control) event(_ context.Context, e role.Event) (struct{}, error) {
	kind, ok := map[string]sandboxes.EventKind{"exited": sandboxes.Exited, "out_of_memory": sandboxes.OOM, "expired": sandboxes.Expired, role.EventResumed: sandboxes.Resumed}[e.Kind]
	if !ok {
		return struct{}{}, errors.New("an event of an unknown kind")
	}
	c.running.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		err := c.sandboxes.HandleEvent(ctx, sandboxes.Event{Sandbox: e.Sandbox, Kind: kind, Incarnation: e.Incarnation, Generation: e.Generation})
		if err != nil {
			c.log.Error("a sandbox's end could not be written down", "sandbox", e.Sandbox, "err", err)
		}
	})
	return struct{}{}, nil
}

// hostile takes inward's notice about an init that broke the protocol: such a sandbox is ended like one whose init exited.
func (c *control) hostile(ctx context.Context, e role.Event) (struct{}, error) {
	e.Kind = "exited"
	return c.event(ctx, e)
}

// template is tiny until base is built.
func (c *control) template() string {
	conn := c.node.Now()
	if conn == nil {
		return "base"
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var images []role.Image
	if err := conn.Call(ctx, role.NodeImages, struct{}{}, &images); err != nil {
		return "base"
	}
	for _, i := range images {
		if i.Name == "base" && i.State == "ready" {
			return "base"
		}
	}
	return "tiny"
}
