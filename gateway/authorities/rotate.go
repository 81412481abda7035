package authorities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"portreeve.dev/egress/ca"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

// MostWait is the longest that a new root may wait for its turn.
const MostWait = 90 * 24 * time.Hour

// ErrRotating is that the new root of an earlier rotation has not begun to sign.
var ErrRotating = errors.New("a rotation is under way")

// Rotate begins a new root of the org. It signs once no sandbox lives that was made before it, or after wait at the latest; with
// no wait it signs at once, and every other root is retired with its key: what runs in sandboxes then trusts nobody until it is
// started again. ErrRotating while another new root waits, unless there is no wait.
func (s *Service) Rotate(ctx context.Context, by store.By, wait time.Duration) (revision int64, err error) {
	if wait < 0 || wait > MostWait {
		return 0, fmt.Errorf("a wait of %v: it must be between 0 and %v", wait, MostWait)
	}
	org := by.Principal.Org
	all, err := s.roots(ctx, org)
	if err != nil {
		return 0, err
	}
	next, err := s.newRoot(ctx, org, all[0].Version+1)
	if err != nil {
		return 0, err
	}
	details := map[string]string{"root": fmt.Sprint(next.Version), "wait": wait.String()}
	revision, err = s.change(ctx, by, audit.AuthorityRotate, details, func(tx *store.Tx) error {
		if wait > 0 {
			next.State, next.ChangesAt = store.RootNext, tx.Now().Add(wait)
			return tx.CreateRoot(ctx, next)
		}
		for _, r := range all {
			if r.State.Trusted() {
				if err := tx.MoveRoot(ctx, r.Version, r.State, store.RootRetired, tx.Now()); err != nil {
					return err
				}
			}
		}
		next.State = store.RootSigning
		return tx.CreateRoot(ctx, next)
	})
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrVersion) {
		return 0, ErrRotating
	}
	if err == nil {
		s.tell(org)
	}
	return revision, err
}

// Step does what is due, for all orgs, and tells sandboxes that don't know yet whom to trust. What fails is tried at the next step.
func (s *Service) Step(ctx context.Context) error {
	err := s.begin(ctx)
	due, failed := s.Store.ChangingRoots(ctx, s.Now())
	err = errors.Join(err, failed)
	for _, r := range due {
		if r.State == store.RootNext {
			err = errors.Join(err, s.promote(ctx, r))
		} else {
			err = errors.Join(err, s.retire(ctx, r))
		}
	}
	return errors.Join(err, s.pass(ctx))
}

// begin notes once for each process that orgs which ever rotated may have sandboxes that an earlier process did not reach.
func (s *Service) begin(ctx context.Context) error {
	s.mu.Lock()
	began := s.began
	s.mu.Unlock()
	if began {
		return nil
	}
	orgs, err := s.Store.RotatedOrgs(ctx)
	if err != nil {
		return err
	}
	for _, org := range orgs {
		s.tell(org)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = true
	return nil
}

// promote lets the next root sign if nobody is left who may not trust it, or its wait is over.
func (s *Service) promote(ctx context.Context, next store.Root) error {
	waiting, err := s.waiting(ctx, next)
	if err != nil {
		return err
	}
	if waiting > 0 && s.Now().Before(next.ChangesAt) {
		return nil
	}
	all, err := s.Store.Roots(ctx, next.Org)
	if err != nil {
		return err
	}
	err = s.move(ctx, next, audit.AuthoritySwitch, func(tx *store.Tx) error {
		for _, r := range all {
			if r.State == store.RootSigning {
				if err := tx.MoveRoot(ctx, r.Version, r.State, store.RootLeaving, tx.Now().Add(ca.Lifetime)); err != nil {
					return err
				}
			}
		}
		return tx.MoveRoot(ctx, next.Version, store.RootNext, store.RootSigning, time.Time{})
	})
	if err == nil {
		s.Log.Info("a new root signs", "org", next.Org)
	}
	return err
}

func (s *Service) retire(ctx context.Context, old store.Root) error {
	return s.move(ctx, old, audit.AuthorityRetire, func(tx *store.Tx) error {
		return tx.MoveRoot(ctx, old.Version, store.RootLeaving, store.RootRetired, tx.Now())
	})
}

// move is a change that nobody asked for now.
func (s *Service) move(ctx context.Context, r store.Root, action audit.Action, fn func(*store.Tx) error) error {
	_, err := s.change(ctx, store.By{Principal: sso.System("control", r.Org)}, action, map[string]string{"root": fmt.Sprint(r.Version)}, fn)
	if errors.Is(err, store.ErrVersion) || errors.Is(err, store.ErrConflict) {
		return nil // somebody else moved it meanwhile
	}
	if err == nil {
		s.tell(r.Org)
	}
	return err
}
