package sandboxes_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/sandboxes"
)

// sockets are those of attached sandboxes; err fails their making.
type sockets struct {
	mu   sync.Mutex
	open map[string]bool
	err  error
}

func (s *sockets) Open(_ context.Context, id string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return "", s.err
	}
	s.open[id] = true
	return "/run/" + id, nil
}

func (s *sockets) Close(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, id)
	return nil
}

func (s *sockets) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[id]
}

// attaching is a service with sockets and a clock of the test's.
func attaching(t *testing.T, w world) (*sandboxes.Service, *sockets, *time.Time) {
	t.Helper()
	now, s := time.Now(), &sockets{open: map[string]bool{}}
	svc, err := sandboxes.New(sandboxes.Config{Store: w.Store, Runner: w.Runner, Guest: w.Guest, Feed: w.Feed, Sockets: s, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	return svc, s, &now
}

var attachedOrder = sandboxes.Order{Kind: store.Attached, Spec: store.SandboxSpec{Timeout: 600}}

// fed reports whether the edges are told of it as one that may come in.
func fed(t *testing.T, w world, id string) bool {
	t.Helper()
	f, err := w.Store.FeedState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range f.Orgs {
		for _, b := range o.Sandboxes {
			if b.Sandbox == id && b.Attached {
				return true
			}
		}
	}
	return false
}

func TestAttachedNeedsNoNode(t *testing.T) {
	w := newWorld(t)
	svc, s, _ := attaching(t, w)
	before := len(w.Runner.Log())
	b, err := svc.Create(t.Context(), w.by, attachedOrder)
	if err != nil || b.Status != store.Running || b.Kind != store.Attached || b.Addr != "" || b.Incarnation != 1 || !s.has(b.ID) || !fed(t, w, b.ID) {
		t.Fatalf("created: %+v, %v", b, err)
	}
	if path, err := svc.Socket(t.Context(), b); err != nil || path != "/run/"+b.ID {
		t.Errorf("its socket: %q, %v", path, err)
	}
	for name, err := range map[string]error{
		"pause":  func() error { _, err := svc.Pause(t.Context(), w.by, b.ID); return err }(),
		"resume": func() error { _, err := svc.Resume(t.Context(), w.by, b.ID); return err }(),
	} {
		if !errors.Is(err, sandboxes.ErrAttached) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if moved, err := svc.Extend(t.Context(), w.by, b.ID, time.Minute, time.Hour); err != nil || !moved.ExpiresAt.Equal(b.ExpiresAt.Add(time.Minute)) {
		t.Errorf("extend: %v, %v", moved.ExpiresAt, err)
	}
	if err := svc.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now, err := svc.Get(t.Context(), b.Org, b.ID); err != nil || now.Status != store.Running {
		t.Errorf("after a start of the node: %s, %v", now.Status, err)
	}
	if ended, err := svc.Delete(t.Context(), w.by, b.ID, audit.SandboxDelete); err != nil || ended.Status != store.Terminated || s.has(b.ID) || fed(t, w, b.ID) {
		t.Errorf("deleted: %+v, %v", ended, err)
	}
	if log := w.Runner.Log()[before:]; slices.ContainsFunc(log, func(l string) bool { return l != "list" }) {
		t.Errorf("the node was told: %v", log)
	}
	without, err := sandboxes.New(sandboxes.Config{Store: w.Store, Runner: w.Runner, Guest: w.Guest, Feed: w.Feed})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := without.Create(t.Context(), w.by, attachedOrder); !errors.Is(err, sandboxes.ErrAttached) {
		t.Errorf("where nothing can be attached: %v", err)
	}
}

func TestAttachedWithoutASocketFails(t *testing.T) {
	w := newWorld(t)
	svc, s, _ := attaching(t, w)
	s.err = errors.New("no room")
	_, err := svc.Create(t.Context(), w.by, attachedOrder)
	failed, ok := errors.AsType[*sandboxes.Failed](err)
	if !ok || failed.Sandbox.Reason != sandboxes.ReasonNode || fed(t, w, failed.Sandbox.ID) {
		t.Errorf("%v", err)
	}
}

func TestOverdueAttachedEnds(t *testing.T) {
	w := newWorld(t)
	svc, s, now := attaching(t, w)
	b, err := svc.Create(t.Context(), w.by, attachedOrder)
	if err != nil {
		t.Fatal(err)
	}
	*now = b.ExpiresAt.Add(-time.Second)
	if err := svc.EndOverdue(t.Context()); err != nil || !s.has(b.ID) {
		t.Fatalf("a second before its end: %v", err)
	}
	*now = b.ExpiresAt
	if err := svc.EndOverdue(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended, err := svc.Get(t.Context(), b.Org, b.ID)
	if err != nil || ended.Status != store.Terminated || ended.Reason != sandboxes.ReasonExpired || s.has(b.ID) || fed(t, w, b.ID) {
		t.Errorf("%+v, %v", ended, err)
	}
}
