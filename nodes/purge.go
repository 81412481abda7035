package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Purge removes everything of this instance that is on the machine, with and without records, and what is shared by its
// sandboxes; images and the init program stay. It speaks to neither wire nor firewall: call it when bindings and packet rules
// do not exist yet, or are about to go too. The node can be used after it.
func (n *Node) Purge(ctx context.Context) error {
	n.mu.Lock()
	boxes := n.all()
	n.mu.Unlock()
	for _, b := range boxes {
		b.mu.Lock()
		b.unwatch()
		n.forget(b)
		b.mu.Unlock()
	}
	if err := n.purge(ctx); err != nil {
		return fmt.Errorf("purging: %w", err)
	}
	return nil
}

func (n *Node) purge(ctx context.Context) error {
	var errs []error
	states, err := n.c.Driver.List(ctx)
	errs = append(errs, err)
	for _, s := range states {
		errs = append(errs, n.c.Driver.Delete(ctx, s.ID))
	}
	records, err := n.dirs.load()
	errs = append(errs, err)
	for _, r := range records {
		errs = append(errs, n.c.Driver.Delete(ctx, r.RunscID))
	}
	// Not further while something may still run in there.
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, r := range records {
		errs = append(errs, n.dismantle(ctx, r))
	}
	links, err := n.c.Network.List(ctx)
	errs = append(errs, err)
	for _, l := range links {
		errs = append(errs, n.c.Network.Remove(ctx, l))
	}
	errs = append(errs, n.c.Cgroups.Purge(ctx))
	if c, ok := n.c.Driver.(Cleaner); ok {
		errs = append(errs, c.Clean(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := os.RemoveAll(n.dirs.sandboxes()); err != nil {
		return err
	}
	return n.restore()
}

// restore makes what Purge took and commands need.
func (n *Node) restore() error {
	return errors.Join(n.dirs.make(), n.c.Cgroups.Prepare())
}
