package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"

	"portreeve.dev/nodes/cgroup"
	"portreeve.dev/nodes/images"
	"portreeve.dev/nodes/runsc"
)

// Create makes and starts a sandbox. When it returns, process 1 runs and its record is durable; on any error nothing is left,
// unless the error says so. Asked again for the same incarnation it returns the placement that there is.
func (n *Node) Create(ctx context.Context, s Spec) (Placement, error) {
	s.Limits = s.Limits.withDefaults()
	if err := s.validate(n.c.Clock.Now()); err != nil {
		return Placement{}, fmt.Errorf("creating sandbox %q: %w", s.Sandbox, err)
	}
	img, err := n.c.Images.Resolve(s.Image)
	if err != nil {
		return Placement{}, fmt.Errorf("creating sandbox %q: %w", s.Sandbox, err)
	}
	b := &box{rec: record{Version: recordVersion, RunscID: runsc.NewID(), State: Creating, Spec: s, Digest: img.Digest,
		BootID: bootID(), Created: n.c.Clock.Now().UTC()}}
	b.show()
	b.mu.Lock()
	defer b.mu.Unlock()
	if p, err := n.enter(b); err != nil || p.Sandbox != "" {
		return p, err
	}
	if err := n.build(ctx, b, img); err != nil {
		err = fmt.Errorf("creating sandbox %q: %w", s.Sandbox, err)
		return Placement{}, errors.Join(err, n.remove(ctx, b, ""))
	}
	n.c.Log.Info("sandbox created", "sandbox", s.Sandbox, "org", s.Org, "image", s.Image, "addr", b.rec.Link.Addr,
		"incarnation", s.Incarnation, "generation", s.Generation)
	return b.rec.placement(), nil
}

// enter puts the box into the table, or finds that the sandbox is there.
func (n *Node) enter(b *box) (Placement, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return Placement{}, ErrClosed
	}
	old := n.boxes[b.rec.Spec.Sandbox]
	if old == nil {
		n.boxes[b.rec.Spec.Sandbox] = b
		return Placement{}, nil
	}
	switch st := old.seenStatus(); {
	case st.Incarnation != b.rec.Spec.Incarnation:
		return Placement{}, fmt.Errorf("creating sandbox %q: %w", b.rec.Spec.Sandbox, ErrExists)
	case st.State == Running || st.State == Paused:
		return st.Placement, nil
	default:
		return Placement{}, fmt.Errorf("creating sandbox %q: %w", b.rec.Spec.Sandbox, ErrNotReady)
	}
}

// build takes the steps in the one order that is safe: what a sandbox may do is settled, and acknowledged by those who
// enforce it, before its link is up; its link is up before its first process runs.
func (n *Node) build(ctx context.Context, b *box, img images.Image) error {
	id := b.rec.RunscID
	var err error
	if b.rec.Link, err = n.c.Network.Make(ctx, b.rec.Spec.Sandbox); err != nil {
		return err
	}
	if err := n.save(b); err != nil {
		return err
	}
	if err := n.dirs.furnish(b.rec); err != nil {
		return err
	}
	if err := n.container(ctx, b, img); err != nil {
		return err
	}
	if err := n.c.Cgroups.Confirm(id, cgroup.Limits{
		MemoryBytes: b.rec.Spec.Limits.MemoryBytes, Pids: b.rec.Spec.Limits.Pids, CPUMillis: b.rec.Spec.Limits.CPUMillis,
	}); err != nil {
		return err
	}
	if err := n.c.Network.Readdress(ctx, b.rec.Link); err != nil {
		return err
	}
	if err := n.bind(ctx, b); err != nil {
		return err
	}
	if err := n.c.Network.Up(ctx, b.rec.Link); err != nil {
		return err
	}
	if err := n.c.Driver.Start(ctx, id); err != nil {
		return err
	}
	b.rec.State = Running
	if err := n.save(b); err != nil {
		return err
	}
	w, err := watchProcess(b.rec.Pid, b.rec.PidStart)
	if err != nil {
		return err
	}
	n.attend(b, w)
	return nil
}

// container writes the bundle, creates the container and records its process.
func (n *Node) container(ctx context.Context, b *box, img images.Image) error {
	id, s := b.rec.RunscID, b.rec.Spec
	own, err := readImageRoots(img.Rootfs)
	if err != nil {
		return err
	}
	if err := os.WriteFile(n.dirs.roots(id), own, 0o600); err != nil {
		return err
	}
	if err := writeTrust(n.dirs.trust(id), own, s.Trust); err != nil {
		return err
	}
	spec, err := runsc.Spec(runsc.Box{
		Rootfs: img.Rootfs, Init: n.guest, Control: n.dirs.control(id), Workspace: n.dirs.workspace(id),
		Trust: n.dirs.trust(id), ResolvConf: n.dirs.resolv(id), Hosts: n.dirs.hosts(id), Hostname: hostname(s.Sandbox),
		Netns: b.rec.Link.Netns, Cgroup: n.c.Cgroups.Path(id), Env: trustEnv(s.Env),
		Limits: runsc.Limits{MemoryBytes: s.Limits.MemoryBytes, CPUMillis: s.Limits.CPUMillis, Pids: s.Limits.Pids,
			TmpBytes: s.Limits.TmpBytes, NoSwap: n.c.Cgroups.SwapAccounting()},
	})
	if err != nil {
		return err
	}
	if err := runsc.WriteBundle(n.dirs.bundle(id), spec); err != nil {
		return err
	}
	pid, err := n.c.Driver.Create(ctx, runsc.Create{ID: id, Bundle: n.dirs.bundle(id), WorkspaceBytes: s.Limits.WorkspaceBytes})
	if err != nil {
		return err
	}
	start, err := pidStart(pid)
	if err != nil {
		return err
	}
	b.rec.Pid, b.rec.PidStart = pid, start
	return n.save(b)
}

// bind makes the sandbox known to those who handle its connections, hands them the listener of its init, and then lets
// its packets through the guard.
func (n *Node) bind(ctx context.Context, b *box) error {
	l, err := listenInit(n.dirs.control(b.rec.RunscID))
	if err != nil {
		return err
	}
	err = n.c.Wire.Bind(ctx, b.rec.placement(), l)
	if err := errors.Join(err, closed(l)); err != nil {
		return err
	}
	return n.c.Firewall.Add(ctx, b.rec.Link.Interface, b.rec.Link.Addr)
}

// closed closes our copy of a file that may have been closed by its receiver.
func closed(f *os.File) error {
	if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
