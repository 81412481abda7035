package nodes

import (
	"context"
	"fmt"
	"time"
)

// Pause stops all processes of a sandbox where they are. Its network stack goes on answering, so callers must know the state
// from the placement, not from a connect. One that is paused already is no error.
func (n *Node) Pause(ctx context.Context, sandbox string) error {
	b, err := n.lock(sandbox)
	if err != nil {
		return err
	}
	defer b.mu.Unlock()
	switch b.rec.State {
	case Paused:
		return nil
	case Running:
	default:
		return fmt.Errorf("pausing sandbox %q: %w", sandbox, ErrNotReady)
	}
	if err := n.c.Driver.Pause(ctx, b.rec.RunscID); err != nil && !n.is(ctx, b, "paused") {
		return fmt.Errorf("pausing sandbox %q: %w", sandbox, err)
	}
	b.rec.State = Paused
	return n.save(b)
}

// Resume lets a paused sandbox go on, as its next generation: routes and checks made for the one before are stale. One that
// runs already is no error; however many callers come at once, the generation grows once.
func (n *Node) Resume(ctx context.Context, sandbox string, minRevision uint64) (Placement, error) {
	b, err := n.lock(sandbox)
	if err != nil {
		return Placement{}, err
	}
	defer b.mu.Unlock()
	switch b.rec.State {
	case Running:
		return b.rec.placement(), nil
	case Paused:
	default:
		return Placement{}, fmt.Errorf("resuming sandbox %q: %w", sandbox, ErrNotReady)
	}
	b.rec.Spec.Generation++
	b.rec.Spec.MinRevision = max(b.rec.Spec.MinRevision, minRevision)
	if err := n.save(b); err != nil { // a number once given is never given again
		return Placement{}, err
	}
	if err := n.c.Wire.Bind(ctx, b.rec.placement(), nil); err != nil {
		return Placement{}, fmt.Errorf("resuming sandbox %q: %w", sandbox, err)
	}
	if err := n.c.Driver.Resume(ctx, b.rec.RunscID); err != nil && !n.is(ctx, b, "running") {
		return Placement{}, fmt.Errorf("resuming sandbox %q: %w", sandbox, err)
	}
	b.rec.State = Running
	return b.rec.placement(), n.save(b)
}

// Extend moves the deadline of a sandbox; the zero time takes it away. A time that has passed is ErrExpired and changes nothing.
func (n *Node) Extend(ctx context.Context, sandbox string, deadline time.Time) error {
	b, err := n.lock(sandbox)
	if err != nil {
		return err
	}
	defer b.mu.Unlock()
	if b.rec.State != Running && b.rec.State != Paused {
		return fmt.Errorf("extending sandbox %q: %w", sandbox, ErrNotReady)
	}
	if !deadline.IsZero() && !deadline.After(n.c.Clock.Now()) {
		return fmt.Errorf("extending sandbox %q: %w", sandbox, ErrExpired)
	}
	old := b.rec.Spec.Deadline
	b.rec.Spec.Deadline = deadline
	if err := n.save(b); err != nil {
		b.rec.Spec.Deadline = old
		b.show()
		return err
	}
	n.arm(b)
	return nil
}

// is asks the driver for the state of a sandbox: a command that was cut off may have done its work.
func (n *Node) is(ctx context.Context, b *box, status string) bool {
	ctx, cancel := n.alone(ctx)
	defer cancel()
	st, err := n.c.Driver.State(ctx, b.rec.RunscID)
	return err == nil && st.Status == status
}
