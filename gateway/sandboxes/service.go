package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

var (
	// ErrState says that the sandbox is in a state in which this can't be done.
	ErrState = errors.New("the sandbox is not in a state for this")
	// ErrAttached says that this can't be done to a sandbox that somebody else runs, or that nothing can be attached here.
	ErrAttached = errors.New("the sandbox is attached")
	// ErrPolicy says that the named policy does not exist.
	ErrPolicy = errors.New("there is no such policy")
)

// A Config is what a Service needs.
type Config struct {
	Store  *store.Store
	Runner Runner
	Guest  Readier
	Feed   Feed
	// Sockets may be nil: then nothing can be attached.
	Sockets Sockets
	Log     *slog.Logger  // default slog.Default()
	Limit   int           // live sandboxes of an org; default 50
	Start   time.Duration // longest start; default 90 s
	Finish  time.Duration // longest clean-up; default 30 s
	Now     func() time.Time
}

// A Service runs sandboxes. It is safe for concurrent use.
type Service struct {
	Config

	mu      sync.Mutex
	busy    map[string]*sandboxLock
	starts  map[string]context.CancelFunc // creates in flight
	changed chan struct{}                 // closed and replaced when a row changed
}

// New returns a service. It starts nothing.
func New(c Config) (*Service, error) {
	if c.Store == nil || c.Runner == nil || c.Guest == nil || c.Feed == nil {
		return nil, errors.New("sandboxes need a store, a runner, a guest and a feed")
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Limit == 0 {
		c.Limit = 50
	}
	if c.Start == 0 {
		c.Start = 90 * time.Second
	}
	if c.Finish == 0 {
		c.Finish = 30 * time.Second
	}
	return &Service{Config: c, busy: map[string]*sandboxLock{}, starts: map[string]context.CancelFunc{}, changed: make(chan struct{})}, nil
}

// Get returns one sandbox of the org.
func (s *Service) Get(ctx context.Context, org, id string) (store.Sandbox, error) {
	return s.Store.Sandbox(ctx, org, id)
}

// update writes b with an entry and tells waiters.
func (s *Service) update(ctx context.Context, by store.By, b store.Sandbox, action audit.Action, outcome string, details map[string]string) (store.Sandbox, error) {
	revision, err := s.Store.Change(ctx, by, func(tx *store.Tx) (err error) {
		if b, err = tx.UpdateSandbox(ctx, b); err != nil {
			return err
		}
		tx.Bump() // routes follow what a sandbox is
		return tx.RecordOutcome(ctx, action, b.ID, outcome, details)
	})
	if err == nil {
		s.announce()
		s.Feed.Publish(ctx, revision)
	}
	return b, err
}

// End waits until the sandbox has ended, at most until ctx is done, and returns its row as it is then.
func (s *Service) End(ctx context.Context, org, id string) (store.Sandbox, error) {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		b, err := s.Store.Sandbox(context.WithoutCancel(ctx), org, id)
		if err != nil || b.Status.Ended() {
			return b, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return b, nil
		}
	}
}

func (s *Service) announce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// by is the principal of this service, acting within an org.
func system(org string) store.By {
	return store.By{Principal: sso.System("control", org)}
}

func node(org string) store.By {
	return store.By{Principal: sso.System("node", org)}
}

// A sandboxLock makes commands about one sandbox wait for each other.
type sandboxLock struct {
	held  chan struct{} // holds one token while free
	users int
}

// lock waits for the sandbox; the returned function gives it back.
func (s *Service) lock(ctx context.Context, id string) (func(), error) {
	s.mu.Lock()
	l := s.busy[id]
	if l == nil {
		l = &sandboxLock{held: make(chan struct{}, 1)}
		l.held <- struct{}{}
		s.busy[id] = l
	}
	l.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(s.busy, id)
		}
	}
	select {
	case <-l.held:
		return func() { l.held <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("waiting for sandbox %q: %w", id, ctx.Err())
	}
}
