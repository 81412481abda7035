package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// EnsureMounted mounts the host's hierarchies when /sys/fs/cgroup is empty, as inside "ip netns exec", which mounts
// a fresh /sys without them, and reports whether it did. It does so only in a mount namespace of our own from which
// mounts don't spread; anywhere else an empty directory is an error.
func EnsureMounted() (bool, error) {
	entries, err := os.ReadDir(Root)
	if err != nil {
		return false, fmt.Errorf("control groups: %w", err)
	}
	if len(entries) > 0 {
		return false, nil
	}
	self, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, fmt.Errorf("reading mounts: %w", err)
	}
	text, err := os.ReadFile("/proc/1/mountinfo")
	if err != nil {
		return false, fmt.Errorf("reading the machine's mounts: %w", err)
	}
	first := parseMountinfo(string(text))
	if err := private(parseMountinfo(string(self)), first); err != nil {
		return false, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return false, fmt.Errorf("reading own control groups: %w", err)
	}
	steps, err := plan(first, string(own))
	if err != nil {
		return false, err
	}
	return true, perform(steps)
}

// private fails unless this process's mounts are its own: no mount of the machine's first process is among them (their
// numbers differ in each namespace; the namespace links themselves are closed to a root with fewer capabilities), and
// what is mounted here stays here.
func private(mounts, first []mount) error {
	if len(first) == 0 {
		return fmt.Errorf("%s is empty, and the mounts of the machine's first process can't be seen: mount the control groups first", Root)
	}
	theirs := make(map[string]bool)
	for _, m := range first {
		theirs[m.id] = true
	}
	for _, m := range mounts {
		if theirs[m.id] {
			return fmt.Errorf("%s is empty, and this is the machine's own mount namespace: mount the control groups first", Root)
		}
	}
	if m, ok := covering(mounts, Root); !ok || m.shared {
		return fmt.Errorf("%s is empty, and mounts made here would spread to other namespaces: mount the control groups first", Root)
	}
	return nil
}

// A step is one mount, or one link when fstype is empty (target points to source).
type step struct {
	target, fstype, source, data string
}

var flags = uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)

// plan says what to mount so that /sys/fs/cgroup looks as it does for the machine's first process; without sight of that,
// what this process's own membership shows.
func plan(first []mount, own string) ([]step, error) {
	if m, ok := covering(first, Root); ok && m.fstype == "cgroup2" && m.point == Root {
		return []step{{Root, "cgroup2", "cgroup2", m.options()}}, nil
	}
	steps := []step{{Root, "tmpfs", "tmpfs", "mode=755"}}
	for _, m := range first {
		rel, ok := strings.CutPrefix(m.point, Root+"/")
		if !ok || strings.Contains(rel, "/") {
			continue
		}
		switch m.fstype {
		case "cgroup":
			steps = append(steps, hierarchy(rel, m.controllers())...)
		case "cgroup2":
			steps = append(steps, step{m.point, "cgroup2", "cgroup2", m.options()})
		}
	}
	if len(steps) > 1 {
		return steps, nil
	}
	for line := range strings.Lines(own) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		list, _, ok := strings.Cut(rest, ":")
		if !ok || list == "" {
			continue
		}
		controllers := strings.Split(list, ",")
		steps = append(steps, hierarchy(strings.TrimPrefix(list, "name="), controllers)...)
	}
	if len(steps) > 1 {
		return steps, nil
	}
	if strings.Contains("\n"+own, "\n0::") {
		return []step{{Root, "cgroup2", "cgroup2", ""}}, nil
	}
	return nil, errors.New("control groups: neither the machine's first process nor our own shows any")
}

// hierarchy is one version 1 hierarchy, with a link for each controller of a joint one, as distributions have it.
func hierarchy(dir string, controllers []string) []step {
	target := filepath.Join(Root, dir)
	data := strings.Join(controllers, ",")
	if strings.HasPrefix(data, "name=") {
		data = "none," + data
	}
	steps := []step{{target, "cgroup", "cgroup", data}}
	if len(controllers) > 1 {
		for _, c := range controllers {
			if c != dir && !strings.Contains(c, "=") {
				steps = append(steps, step{filepath.Join(Root, c), "", dir, ""})
			}
		}
	}
	return steps
}

// perform does all steps or none.
func perform(steps []step) (err error) {
	var done []string
	defer func() {
		if err != nil {
			for _, target := range slices.Backward(done) {
				err = errors.Join(err, unix.Unmount(target, unix.MNT_DETACH))
			}
		}
	}()
	for _, s := range steps {
		if s.fstype == "" {
			if err := os.Symlink(s.source, s.target); err != nil {
				return fmt.Errorf("linking control group: %w", err)
			}
			continue
		}
		if s.target != Root {
			if err := os.Mkdir(s.target, 0o755); err != nil {
				return fmt.Errorf("making mount point: %w", err)
			}
		}
		if err := unix.Mount(s.source, s.target, s.fstype, flags, s.data); err != nil {
			return fmt.Errorf("mounting %s (%s) at %s: %w", s.fstype, s.data, s.target, err)
		}
		done = append(done, s.target)
	}
	return nil
}
