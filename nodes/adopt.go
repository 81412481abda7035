package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"portreeve.dev/nodes/runsc"
)

// Adopt takes over the sandboxes that an earlier process left running and removes everything else of this instance. Call it
// once, before any command, when edge, inward and the packet rules are there: it binds each one anew and hands over a new
// listener for its init, which dials again.
//
// It returns what it has taken over. After an error that is ErrLeft the node is usable all the same.
func (n *Node) Adopt(ctx context.Context) ([]Placement, error) {
	if c, ok := n.c.Driver.(Cleaner); ok {
		if err := c.Sweep(); err != nil {
			return nil, fmt.Errorf("adopting: %w", err)
		}
	}
	records, err := n.dirs.load()
	if err != nil {
		return nil, fmt.Errorf("adopting: %w", err)
	}
	links, err := n.c.Network.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("adopting: %w", err)
	}
	var errs []error
	var taken []Placement
	for _, r := range records {
		b := &box{rec: r}
		b.show()
		b.mu.Lock()
		p, err := n.adopt(ctx, b, links)
		b.mu.Unlock()
		if err != nil {
			errs = append(errs, err)
		} else if p.Sandbox != "" {
			taken = append(taken, p)
		}
	}
	if err := errors.Join(append(errs, n.removeStrays(ctx))...); err != nil {
		return taken, fmt.Errorf("adopting: %w: %w", ErrLeft, err)
	}
	return taken, nil
}

// adopt takes over or removes one; b.mu is held.
func (n *Node) adopt(ctx context.Context, b *box, links []Link) (Placement, error) {
	if b.rec.Spec.Sandbox != "" {
		n.mu.Lock()
		if n.boxes[b.rec.Spec.Sandbox] != nil {
			n.mu.Unlock()
			return Placement{}, fmt.Errorf("adopting sandbox %q: %w", b.rec.Spec.Sandbox, ErrExists)
		}
		n.boxes[b.rec.Spec.Sandbox] = b
		n.mu.Unlock()
	}
	why, err := n.takeOver(ctx, b, links)
	if err == nil && why == "" {
		n.c.Log.Info("sandbox adopted", "sandbox", b.rec.Spec.Sandbox, "org", b.rec.Spec.Org, "state", string(b.rec.State))
		return b.rec.placement(), nil
	}
	if err != nil {
		n.c.Log.Warn("adopting sandbox", "sandbox", b.rec.Spec.Sandbox, "err", err)
		why = Exited
	}
	if b.rec.State == Deleting || b.rec.State == Creating {
		return Placement{}, n.remove(ctx, b, why)
	}
	n.emit(b, why, "")
	if err := n.remove(ctx, b, why); err != nil {
		return Placement{}, err
	}
	n.emit(b, Deleted, why)
	return Placement{}, nil
}

// takeOver puts a sandbox that lives back on the wire. If it says why, or fails, the sandbox must go.
func (n *Node) takeOver(ctx context.Context, b *box, links []Link) (EventKind, error) {
	r := &b.rec
	if r.State != Running && r.State != Paused {
		return Exited, nil // cut off while it was made or removed
	}
	if !slices.Contains(links, r.Link) || r.BootID != bootID() {
		return Exited, nil
	}
	w, err := watchProcess(r.Pid, r.PidStart)
	if err != nil {
		return n.causeOfDeath(*r), nil
	}
	why, err := n.rejoin(ctx, b)
	if why != "" || err != nil {
		w.stop()
		return why, err
	}
	n.attend(b, w)
	return "", nil
}

// rejoin does so for one whose process is the recorded one.
func (n *Node) rejoin(ctx context.Context, b *box) (EventKind, error) {
	r := &b.rec
	if !r.Spec.Deadline.IsZero() && !r.Spec.Deadline.After(n.c.Clock.Now()) {
		return Expired, nil
	}
	st, err := n.c.Driver.State(ctx, r.RunscID)
	if errors.Is(err, runsc.ErrNotFound) {
		return n.causeOfDeath(*r), nil
	} else if err != nil {
		return "", err
	}
	// What runsc says wins: a crash may have come between the act and the record of it.
	switch st.Status {
	case "running":
		r.State = Running
	case "paused":
		r.State = Paused
	default:
		return n.causeOfDeath(*r), nil
	}
	if err := n.bind(ctx, b); err != nil {
		return "", err
	}
	return "", n.save(b)
}

// removeStrays removes what no record stands for.
func (n *Node) removeStrays(ctx context.Context) error {
	n.mu.Lock()
	ids, links := make(map[string]bool), make(map[Link]bool)
	for _, b := range n.boxes {
		p := b.seenStatus().Placement
		ids[p.RunscID] = true
		links[Link{Netns: p.Netns, Interface: p.Interface, Gateway: p.Gateway, Addr: p.Addr}] = true
	}
	n.mu.Unlock()
	var errs []error
	states, err := n.c.Driver.List(ctx)
	errs = append(errs, err)
	for _, s := range states {
		if !ids[s.ID] {
			errs = append(errs, n.c.Driver.Delete(ctx, s.ID))
		}
	}
	found, err := n.c.Network.List(ctx)
	errs = append(errs, err)
	for _, l := range found {
		if links[l] {
			continue
		}
		// Without a record it was never bound; an element may be there all the same.
		if err := n.c.Firewall.Remove(ctx, l.Interface, l.Addr); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, n.c.Network.Remove(ctx, l))
	}
	groups, err := n.c.Cgroups.List()
	errs = append(errs, err)
	for _, id := range groups {
		if !ids[id] {
			errs = append(errs, n.c.Cgroups.Remove(ctx, id))
		}
	}
	return errors.Join(errs...)
}
