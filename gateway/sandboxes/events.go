package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
)

// HandleEvent takes a node's report. One about a sandbox that is unknown, has ended, or has begun anew is passed over.
func (s *Service) HandleEvent(ctx context.Context, e Event) error {
	b, err := s.Store.AnySandbox(ctx, e.Sandbox)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	switch e.Kind {
	case Exited, OOM, Expired:
		s.abandon(b.ID) // a create that waits for its guest waits in vain
	}
	unlock, err := s.lock(ctx, b.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if b, err = s.Store.AnySandbox(ctx, e.Sandbox); err != nil {
		return err
	}
	if b.Status.Ended() {
		if e.Kind == OOM && b.Status == store.Failed && b.Reason != ReasonOOM && e.Incarnation >= b.Incarnation {
			b.Reason = ReasonOOM // the exit was told before its cause
			_, err := s.update(ctx, node(b.Org), b, audit.SandboxEnd, audit.Failure, map[string]string{"reason": ReasonOOM})
			return err
		}
		return nil
	}
	if e.Incarnation < b.Incarnation {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Finish)
	defer cancel()
	switch e.Kind {
	case Exited:
		_, err = s.finish(ctx, b, store.Failed, ReasonExited)
	case OOM:
		_, err = s.finish(ctx, b, store.Failed, ReasonOOM)
	case Expired:
		_, err = s.finish(ctx, b, store.Terminated, ReasonExpired)
	case Paused:
		err = s.slept(ctx, b, e, audit.SandboxPause)
	case Resumed:
		err = s.slept(ctx, b, e, audit.SandboxResume)
	default:
		err = fmt.Errorf("event %q of sandbox %q is unknown", e.Kind, e.Sandbox)
	}
	return err
}

// slept takes word of a pause or a resume for a nudge: what the sandbox is now the node says, as an event may be late.
func (s *Service) slept(ctx context.Context, b store.Sandbox, e Event, action audit.Action) error {
	if b.Status != store.Running && b.Status != store.Paused || e.Generation < b.Generation {
		return nil
	}
	_, err := s.follow(ctx, node(b.Org), b, action)
	return err
}

// follow writes down what the node says of a sandbox that runs or is paused. One that the node does not have is left as it
// is: its end is another event.
func (s *Service) follow(ctx context.Context, by store.By, b store.Sandbox, action audit.Action) (store.Sandbox, error) {
	present, err := s.Runner.List(ctx)
	if err != nil {
		return b, err
	}
	i := slices.IndexFunc(present, func(p Present) bool { return p.ID == b.ID })
	if i < 0 {
		return b, nil
	}
	status := present[i].status()
	if b.Status == status && b.Generation == present[i].Started.Generation {
		return b, nil
	}
	b.Status, b.Generation = status, present[i].Started.Generation
	return s.update(ctx, by, b, action, audit.Success, nil)
}

func (p Present) status() store.SandboxStatus {
	if p.Paused {
		return store.Paused
	}
	return store.Running
}

// Reconcile brings the rows and the node together after a start of either: the node's word counts for what runs, the rows'
// for what may. Call it before the API listens.
func (s *Service) Reconcile(ctx context.Context) error {
	present, err := s.Runner.List(ctx)
	if err != nil {
		return fmt.Errorf("asking the node what it has: %w", err)
	}
	live, err := s.Store.LiveSandboxes(ctx)
	if err != nil {
		return err
	}
	on := make(map[string]Present, len(present))
	for _, p := range present {
		on[p.ID] = p
	}
	var all error
	for _, b := range live {
		p, there := on[b.ID]
		delete(on, b.ID)
		all = errors.Join(all, s.reconcile(ctx, b.ID, p, there))
	}
	for id := range on {
		s.Log.Warn("deleting a sandbox that nobody knows", "sandbox", id)
		all = errors.Join(all, s.Runner.Delete(ctx, id))
	}
	return all
}

func (s *Service) reconcile(ctx context.Context, id string, p Present, there bool) error {
	if s.isStarting(id) {
		return nil // by this process
	}
	unlock, err := s.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	b, err := s.Store.AnySandbox(ctx, id)
	if err != nil || b.Status.Ended() {
		return err
	}
	switch {
	case b.Status == store.Terminating:
		_, err = s.finish(ctx, b, store.Terminated, ReasonDeleted)
	case b.Status == store.Creating:
		_, err = s.finish(ctx, b, store.Failed, ReasonInterrupted)
	case b.Kind == store.Attached:
		err = s.reattach(ctx, b)
	case !there && !s.Now().Before(b.ExpiresAt):
		_, err = s.finish(ctx, b, store.Terminated, ReasonExpired)
	case !there:
		_, err = s.finish(ctx, b, store.Failed, ReasonLost)
	default:
		status := p.status()
		if b.Status == status && b.Generation == p.Started.Generation {
			return nil
		}
		b.Status, b.Generation, b.Incarnation, b.Addr = status, p.Started.Generation, p.Started.Incarnation, p.Started.Addr
		_, err = s.update(ctx, system(b.Org), b, audit.SandboxReconcile, audit.Success, map[string]string{"status": string(status)})
	}
	return err
}

func (s *Service) isStarting(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starts[id] != nil
}
