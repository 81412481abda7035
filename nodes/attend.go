package nodes

import (
	"context"
	"time"
)

// attend looks after a running sandbox: the end of its process and its deadline; b.mu is held.
func (n *Node) attend(b *box, w *watch) {
	b.watch = w
	n.spawn(func() {
		if w.wait() {
			n.exited(b)
		}
	})
	n.arm(b)
}

// unwatch ends attend's work; b.mu is held.
func (b *box) unwatch() {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	if b.watch != nil {
		b.watch.stop()
		b.watch = nil
	}
}

// arm sets the timer for the deadline; b.mu is held.
func (n *Node) arm(b *box) {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	if b.rec.Spec.Deadline.IsZero() {
		return
	}
	// A timer's clock stands still while the machine is suspended and knows nothing of a clock that was set: look again
	// at least every minute.
	left := b.rec.Spec.Deadline.Sub(n.c.Clock.Now())
	b.timer = n.c.Clock.AfterFunc(min(max(left, 0), time.Minute), func() {
		n.spawn(func() { n.expire(b) })
	})
}

func (n *Node) expire(b *box) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || b.timer == nil {
		return
	}
	if n.c.Clock.Now().Before(b.rec.Spec.Deadline) {
		n.arm(b)
		return
	}
	n.end(b, Expired)
}

// exited is called when the process of a sandbox has ended by itself.
func (n *Node) exited(b *box) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || b.watch == nil {
		return
	}
	n.end(b, n.causeOfDeath(b.rec))
}

// causeOfDeath must be asked before the control group goes: its count is the only trace of an out-of-memory kill.
func (n *Node) causeOfDeath(r record) EventKind {
	kills, err := n.c.Cgroups.OOMKills(r.RunscID)
	if err != nil {
		n.c.Log.Warn("reading out-of-memory kills", "sandbox", r.Spec.Sandbox, "err", err)
	}
	if kills > 0 {
		return OutOfMemory
	}
	return Exited
}

// end tells what happened and removes the sandbox; b.mu is held.
func (n *Node) end(b *box, why EventKind) {
	n.emit(b, why, "")
	if n.remove(context.Background(), b, why) == nil {
		n.emit(b, Deleted, why)
	}
}
