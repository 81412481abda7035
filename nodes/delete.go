package nodes

import (
	"context"
	"errors"
	"fmt"
)

// Delete removes a sandbox and everything of it. One that isn't here is no error. When not all could be removed the error
// says so, the sandbox stays in the list as deleting, and Delete may be called again.
func (n *Node) Delete(ctx context.Context, sandbox string) error {
	b, err := n.lock(sandbox)
	if errors.Is(err, ErrUnknown) {
		return nil
	} else if err != nil {
		return err
	}
	defer b.mu.Unlock()
	if err := n.remove(ctx, b, ""); err != nil {
		return err
	}
	n.emit(b, Deleted, "")
	return nil
}

// remove is the one way down, from every state; b.mu is held. It goes on when its caller has gone.
func (n *Node) remove(ctx context.Context, b *box, why EventKind) error {
	ctx, cancel := n.alone(ctx)
	defer cancel()
	b.unwatch()
	b.rec.State = Deleting
	b.show()
	if err := n.teardown(ctx, b.rec); err != nil {
		n.c.Log.Warn("removing sandbox", "sandbox", b.rec.Spec.Sandbox, "err", err)
		return fmt.Errorf("%w: %w", errLeft, errors.Join(err, n.save(b)))
	}
	n.forget(b)
	n.c.Log.Info("sandbox removed", "sandbox", b.rec.Spec.Sandbox, "org", b.rec.Spec.Org, "reason", string(why))
	return nil
}

// teardown removes what a record may stand for, in the reverse of the order in which it was made. Each step may have been
// done before, or never been reached.
//
// The address is given back only when nobody holds it any more: after a step that failed the link stays, for a sandbox
// that got the same address would be taken for the old one.
func (n *Node) teardown(ctx context.Context, r record) error {
	var errs []error
	if r.Link.Interface != "" {
		errs = append(errs,
			n.c.Firewall.Remove(ctx, r.Link.Interface, r.Link.Addr),
			n.c.Wire.Unbind(ctx, r.placement()))
	}
	errs = append(errs, n.c.Driver.Delete(ctx, r.RunscID))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return n.dismantle(ctx, r)
}

// dismantle removes what is left when nothing of the sandbox runs and nobody knows its address.
func (n *Node) dismantle(ctx context.Context, r record) error {
	if r.Link.Netns != "" {
		if err := n.c.Network.Remove(ctx, r.Link); err != nil {
			return err
		}
	}
	if err := n.c.Cgroups.Remove(ctx, r.RunscID); err != nil {
		return err
	}
	return n.dirs.remove(r.RunscID)
}
