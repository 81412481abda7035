package sandboxes

import (
	"context"
	"errors"

	"portreeve.dev/gateway/internal/store"
)

// attach is the start of a sandbox that somebody else runs: every edge knows it already, so all it lacks is its socket.
func (s *Service) attach(ctx context.Context, b store.Sandbox) (timed, string, error) {
	begun := s.Now()
	if _, err := s.Sockets.Open(ctx, b.ID); err != nil {
		return timed{}, ReasonNode, err
	}
	return timed{Started: Started{Incarnation: 1, Generation: 1}, ran: s.Now().Sub(begun)}, "", nil
}

// remove takes away what there is of a sandbox outside of the store.
func (s *Service) remove(ctx context.Context, b store.Sandbox) error {
	if b.Kind != store.Attached {
		return s.Runner.Delete(ctx, b.ID)
	}
	if s.Sockets == nil {
		return nil
	}
	return s.Sockets.Close(ctx, b.ID)
}

// Socket returns where an attached sandbox that runs comes in.
func (s *Service) Socket(ctx context.Context, b store.Sandbox) (path string, err error) {
	if b.Kind != store.Attached || s.Sockets == nil {
		return "", ErrAttached
	}
	if b.Status != store.Running {
		return "", ErrState
	}
	return s.Sockets.Open(ctx, b.ID)
}

// reattach gives an attached sandbox its socket again after a start of the node, or ends it if its time is up.
func (s *Service) reattach(ctx context.Context, b store.Sandbox) error {
	if !s.Now().Before(b.ExpiresAt) {
		_, err := s.finish(ctx, b, store.Terminated, ReasonExpired)
		return err
	}
	if s.Sockets == nil {
		return nil
	}
	_, err := s.Sockets.Open(ctx, b.ID)
	return err
}

// EndOverdue ends the attached sandboxes whose time is up: no node watches over them.
func (s *Service) EndOverdue(ctx context.Context) error {
	overdue, err := s.Store.OverdueAttached(ctx, s.Now())
	if err != nil {
		return err
	}
	var all error
	for _, b := range overdue {
		all = errors.Join(all, s.endOverdue(ctx, b.ID))
	}
	return all
}

func (s *Service) endOverdue(ctx context.Context, id string) error {
	unlock, err := s.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	b, err := s.Store.AnySandbox(ctx, id)
	if err != nil || b.Status.Ended() || s.Now().Before(b.ExpiresAt) { // extended meanwhile
		return err
	}
	_, err = s.finish(ctx, b, store.Terminated, ReasonExpired)
	return err
}
