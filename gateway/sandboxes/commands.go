package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
)

// Delete ends a sandbox. Ending one that has ended is no error. action tells a stop from a delete in the audit log.
func (s *Service) Delete(ctx context.Context, by store.By, id string, action audit.Action) (store.Sandbox, error) {
	b, err := s.condemn(ctx, by, id, action)
	if err != nil || b.Status.Ended() {
		return b, err
	}
	s.abandon(id)
	// From here on it happens, whether or not the client waits.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Finish)
	defer cancel()
	unlock, err := s.lock(ctx, id)
	if err != nil {
		return b, err
	}
	defer unlock()
	if b, err = s.Store.Sandbox(ctx, by.Principal.Org, id); err != nil || b.Status.Ended() {
		return b, err
	}
	return s.finish(ctx, b, store.Terminated, ReasonDeleted)
}

// condemn marks a live sandbox as terminating. It takes no lock: a command in flight finds the row changed and gives up.
func (s *Service) condemn(ctx context.Context, by store.By, id string, action audit.Action) (store.Sandbox, error) {
	for {
		b, err := s.Store.Sandbox(ctx, by.Principal.Org, id)
		if err != nil || b.Status.Ended() || b.Status == store.Terminating {
			return b, err
		}
		b.Status = store.Terminating
		if b, err = s.update(ctx, by, b, action, audit.Success, nil); !errors.Is(err, store.ErrVersion) {
			return b, err
		}
	}
}

// finish removes the sandbox from the node and writes its end.
func (s *Service) finish(ctx context.Context, b store.Sandbox, status store.SandboxStatus, reason string) (store.Sandbox, error) {
	if err := s.remove(ctx, b); err != nil {
		return b, fmt.Errorf("deleting sandbox %q on the node: %w", b.ID, err)
	}
	b.Status, b.Reason = status, reason
	outcome := audit.Success
	if status == store.Failed {
		outcome = audit.Failure
	}
	return s.update(ctx, node(b.Org), b, audit.SandboxEnd, outcome, map[string]string{"reason": reason})
}

// with locks a live sandbox and hands its row to f.
func (s *Service) with(ctx context.Context, by store.By, id string, f func(ctx context.Context, b store.Sandbox) (store.Sandbox, error)) (store.Sandbox, error) {
	if _, err := s.Store.Sandbox(ctx, by.Principal.Org, id); err != nil {
		return store.Sandbox{}, err
	}
	unlock, err := s.lock(ctx, id)
	if err != nil {
		return store.Sandbox{}, err
	}
	defer unlock()
	b, err := s.Store.Sandbox(ctx, by.Principal.Org, id)
	if err != nil {
		return b, err
	}
	// A command to the node and the row that tells of it belong together.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Finish)
	defer cancel()
	return f(ctx, b)
}

// Pause stops a running sandbox's processes; a paused one stays so. The node is asked in any case: the caller of a tunnel may
// have woken the sandbox without the row saying so yet.
func (s *Service) Pause(ctx context.Context, by store.By, id string) (store.Sandbox, error) {
	return s.with(ctx, by, id, func(ctx context.Context, b store.Sandbox) (store.Sandbox, error) {
		if b.Kind == store.Attached {
			return b, ErrAttached
		}
		if b.Status != store.Running && b.Status != store.Paused {
			return b, ErrState
		}
		if err := s.Runner.Pause(ctx, id); err != nil {
			return b, s.gone(ctx, b, err)
		}
		if b.Status == store.Paused {
			return s.follow(ctx, by, b, audit.SandboxPause)
		}
		b.Status = store.Paused
		return s.update(ctx, by, b, audit.SandboxPause, audit.Success, nil)
	})
}

// Resume lets a paused sandbox go on, under a policy that is no older than the newest now; a running one stays so.
func (s *Service) Resume(ctx context.Context, by store.By, id string) (store.Sandbox, error) {
	return s.with(ctx, by, id, func(ctx context.Context, b store.Sandbox) (store.Sandbox, error) {
		if b.Kind == store.Attached {
			return b, ErrAttached
		}
		if b.Status == store.Running {
			return b, nil
		}
		if b.Status != store.Paused {
			return b, ErrState
		}
		revision, err := s.Store.Revision(ctx)
		if err != nil {
			return b, err
		}
		started, err := s.Runner.Resume(ctx, id, revision)
		if err != nil {
			return b, s.gone(ctx, b, err)
		}
		b.Status, b.Generation, b.MinRevision = store.Running, max(b.Generation, started.Generation), revision
		return s.update(ctx, by, b, audit.SandboxResume, audit.Success, nil)
	})
}

// Extend moves the end of a live sandbox by d, at most to limit after now.
func (s *Service) Extend(ctx context.Context, by store.By, id string, d, limit time.Duration) (store.Sandbox, error) {
	return s.with(ctx, by, id, func(ctx context.Context, b store.Sandbox) (store.Sandbox, error) {
		if b.Status != store.Running && b.Status != store.Paused {
			return b, ErrState
		}
		end := b.ExpiresAt.Add(d)
		if end.After(b.CreatedAt.Add(limit)) {
			return b, fmt.Errorf("extending sandbox %q: %w", id, store.ErrLimit)
		}
		if b.Kind != store.Attached { // of one that is, the edge learns by the feed
			if err := s.Runner.Extend(ctx, id, end); err != nil {
				return b, s.gone(ctx, b, err)
			}
		}
		b.ExpiresAt = end
		return s.update(ctx, by, b, audit.SandboxExtend, audit.Success, map[string]string{"expires_at": end.Format(time.RFC3339)})
	})
}

// gone writes down that the node has lost a sandbox, and passes other errors on.
func (s *Service) gone(ctx context.Context, b store.Sandbox, err error) error {
	if !errors.Is(err, ErrNotThere) {
		return err
	}
	b.Status, b.Reason = store.Failed, ReasonLost
	if _, err := s.update(ctx, node(b.Org), b, audit.SandboxEnd, audit.Failure, map[string]string{"reason": ReasonLost}); err != nil {
		return err
	}
	return ErrState
}
