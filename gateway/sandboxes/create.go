package sandboxes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
)

// Reasons of a sandbox in error.
const (
	ReasonPolicyNotApplied = "policy_not_applied" // an edge did not acknowledge
	ReasonNode             = "node_unavailable"   // the node refused or did not answer
	ReasonGuest            = "guest_not_ready"    // its init never answered
	ReasonInterrupted      = "interrupted"        // control ended while it was being made
	ReasonLost             = "lost"               // the node does not have it any more
	ReasonOOM              = "out_of_memory"
	ReasonExited           = "exited"
	ReasonExpired          = "expired"
	ReasonDeleted          = "deleted"
)

// An Order is what a create asks for, already checked.
type Order struct {
	Kind   store.SandboxKind // "" is Own
	Spec   store.SandboxSpec
	Policy *string         // nil: the org's default
	Own    json.RawMessage // a policy document of its own, in normal form, which only narrows; nil: none
}

// A Failed error tells which sandbox a create made in vain, and why.
type Failed struct {
	Sandbox store.Sandbox
	Err     error
}

func (f *Failed) Error() string {
	return fmt.Sprintf("starting sandbox %q: %s: %v", f.Sandbox.ID, f.Sandbox.Reason, f.Err)
}
func (f *Failed) Unwrap() error { return f.Err }

// Create makes a sandbox and returns when it runs. It goes on when ctx ends, since the row is there: a client that went away
// finds the sandbox in its list. After an error of type *Failed the row is in error and the node has nothing of it.
func (s *Service) Create(ctx context.Context, by store.By, o Order) (store.Sandbox, error) {
	begun := s.Now()
	if o.Kind == store.Attached && s.Sockets == nil {
		return store.Sandbox{}, ErrAttached
	}
	b, revision, err := s.enter(ctx, by, o)
	if err != nil {
		return store.Sandbox{}, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Start)
	defer cancel()
	s.inFlight(b.ID, cancel)
	defer s.inFlight(b.ID, nil)
	unlock, err := s.lock(ctx, b.ID)
	if err != nil {
		return b, err
	}
	defer unlock()

	s.Feed.Publish(ctx, revision)
	started, reason, err := s.start(ctx, b)
	if err != nil {
		return b, s.fail(ctx, b, reason, err)
	}
	b.Status, b.Addr, b.RunscID, b.Incarnation, b.Generation = store.Running, started.Addr, started.RunscID, started.Incarnation, started.Generation
	b.Metrics = started.metrics(s.Now().Sub(begun))
	running, err := s.update(ctx, system(b.Org), b, audit.SandboxStart, audit.Success, nil)
	if err != nil {
		// Deleted meanwhile, or the store is gone: what runs must not go on without a row that says so.
		return b, s.fail(ctx, b, ReasonInterrupted, err)
	}
	return running, nil
}

// enter writes the row; every edge must learn which policy the sandbox has.
func (s *Service) enter(ctx context.Context, by store.By, o Order) (b store.Sandbox, revision int64, err error) {
	revision, err = s.Store.Change(ctx, by, func(tx *store.Tx) error {
		policy, err := choose(ctx, tx, o.Policy)
		if err != nil {
			return err
		}
		b = store.Sandbox{ID: store.NewID("sbx"), Kind: o.Kind, Status: store.Creating, Policy: policy, Own: o.Own, Spec: o.Spec,
			ExpiresAt: tx.Now().Add(time.Duration(o.Spec.Timeout) * time.Second)}
		if err := tx.Record(ctx, audit.SandboxCreate, b.ID, created(policy, o)); err != nil {
			return err
		}
		// Last, because from here on every change of the store waits for this one.
		if b.MinRevision, err = tx.Revision(ctx); err != nil {
			return err
		}
		b, err = tx.CreateSandbox(ctx, b, s.Limit)
		return err
	})
	return b, revision, err
}

func created(policy string, o Order) map[string]string {
	if o.Kind == store.Attached {
		return map[string]string{"policy": policy, "kind": string(o.Kind)}
	}
	return map[string]string{"policy": policy, "template": o.Spec.Template}
}

func choose(ctx context.Context, tx *store.Tx, wanted *string) (string, error) {
	if wanted == nil {
		settings, err := tx.Settings(ctx, tx.Org())
		return settings.DefaultPolicy, err
	}
	_, err := tx.Policy(ctx, tx.Org(), *wanted)
	if errors.Is(err, store.ErrNotFound) || *wanted == store.Ceiling {
		return "", fmt.Errorf("policy %q: %w", *wanted, ErrPolicy)
	}
	return *wanted, err
}

type timed struct {
	Started
	ran   time.Duration
	ready time.Duration
}

func (t timed) metrics(total time.Duration) store.Metrics {
	m := store.Metrics{TotalMS: total.Milliseconds(), CreateMS: t.ran.Milliseconds(), ReadyMS: t.ready.Milliseconds()}
	for _, p := range t.Phases {
		m.Phases = append(m.Phases, store.Phase{Name: p.Name, MS: p.Took.Milliseconds()})
	}
	return m
}

func (s *Service) start(ctx context.Context, b store.Sandbox) (timed, string, error) {
	if err := s.Feed.WaitApplied(ctx, b.MinRevision); err != nil {
		return timed{}, ReasonPolicyNotApplied, err
	}
	begun := s.Now()
	if b.Kind == store.Attached {
		return s.attach(ctx, b)
	}
	started, err := s.Runner.Create(ctx, Spec{
		ID: b.ID, Org: b.Org, Template: b.Spec.Template, MilliCPU: b.Spec.MilliCPU, MemoryBytes: b.Spec.MemoryBytes,
		WorkspaceBytes: b.Spec.WorkspaceSize, Env: b.Spec.Env, End: b.ExpiresAt, MinRevision: b.MinRevision,
	})
	if err != nil {
		return timed{}, ReasonNode, err
	}
	t := timed{Started: started, ran: s.Now().Sub(begun)}
	begun = s.Now()
	if err := s.Guest.Ready(ctx, b.ID); err != nil {
		return timed{}, ReasonGuest, err
	}
	t.ready = s.Now().Sub(begun)
	return t, "", nil
}

// fail removes what the node may have and writes down why. A row that ended meanwhile keeps what it says.
func (s *Service) fail(ctx context.Context, b store.Sandbox, reason string, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Finish)
	defer cancel()
	deleted := s.remove(ctx, b)
	if deleted != nil {
		s.Log.Error("removing a sandbox that did not start", "sandbox", b.ID, "err", deleted)
	}
	now, err := s.Store.Sandbox(ctx, b.Org, b.ID)
	if err != nil {
		return errors.Join(cause, err)
	}
	if !now.Status.Ended() && now.Status != store.Terminating { // a delete in flight writes the end itself
		now.Status, now.Reason = store.Failed, reason
		if now, err = s.update(ctx, system(b.Org), now, audit.SandboxStart, audit.Failure, map[string]string{"reason": reason}); err != nil {
			return errors.Join(cause, err)
		}
	}
	return &Failed{Sandbox: now, Err: cause}
}

// inFlight notes the way to end a create; nil removes it.
func (s *Service) inFlight(id string, cancel context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel == nil {
		delete(s.starts, id)
	} else {
		s.starts[id] = cancel
	}
}

// abandon ends a create in flight, if there is one.
func (s *Service) abandon(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.starts[id]; cancel != nil {
		cancel()
	}
}
