package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// needed must be there for every sandbox; wanted are enabled where the machine has them.
var (
	needed = []string{"cpu", "memory", "pids"}
	wanted = []string{"cpuset", "io", "hugetlb"}
)

// Prepare makes the parent group. It may be called again at each start.
//
// On version 2 it enables the controllers on the way down. The parent sits at the root of the hierarchy,
// beside systemd's slices: there it survives a restart of our service, which a group inside the service's
// own would not, and systemd can't take the controllers back while our parent passes them on. Where the
// root is closed to us (a read-only view, a namespace) it goes below our own group.
func (t *Tree) Prepare() error {
	if !t.v2 {
		for _, dir := range t.parents() {
			if err := mkdir(dir); err != nil {
				return err
			}
			if err := inheritCpuset(dir); err != nil {
				return err
			}
		}
		return nil
	}
	first := t.prepareV2(t.parent)
	if first == nil {
		return nil
	}
	own, err := ownV2()
	if err != nil || own == "/" {
		return errors.Join(first, err)
	}
	below := filepath.Join(own, filepath.Base(t.parent))
	if err := t.prepareV2(below); err != nil {
		return fmt.Errorf("%w (and at the root: %w)", err, first)
	}
	t.parent = below
	return nil
}

// prepareV2 makes the group at path and enables the controllers in it and in all groups above, as runsc
// will insist on.
func (t *Tree) prepareV2(path string) error {
	dir := t.root
	steps := strings.Split(strings.Trim(path, "/"), "/")
	for _, s := range append([]string{""}, steps...) {
		dir = filepath.Join(dir, s)
		if err := mkdir(dir); err != nil {
			return err
		}
		if err := t.enable(dir); err != nil {
			return err
		}
	}
	return nil
}

// enable passes the controllers on to the children of dir. A group other than the true root can't do so
// while it has processes; if they are ours (we are among them), they move into a leaf beside the sandboxes.
func (t *Tree) enable(dir string) error {
	have, err := fields(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	on, err := fields(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	var add []string
	for _, c := range needed {
		if !slices.Contains(have, c) {
			return fmt.Errorf("control group %s: no %s controller; is it enabled in the groups above?", dir, c)
		}
	}
	for _, c := range append(slices.Clone(needed), wanted...) {
		if slices.Contains(have, c) && !slices.Contains(on, c) {
			add = append(add, "+"+c)
		}
	}
	if len(add) == 0 {
		return nil
	}
	err = write(filepath.Join(dir, "cgroup.subtree_control"), strings.Join(add, " "))
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	if moveErr := t.moveOwn(dir); moveErr != nil {
		return errors.Join(err, moveErr)
	}
	return write(filepath.Join(dir, "cgroup.subtree_control"), strings.Join(add, " "))
}

// moveOwn moves the processes of our own group into a leaf of it, "portreeve-processes". It refuses any
// other group: those processes belong to somebody else.
func (t *Tree) moveOwn(dir string) error {
	own, err := ownV2()
	if err != nil {
		return err
	}
	if filepath.Join(t.root, own) != filepath.Clean(dir) {
		return fmt.Errorf("control group %s has processes that are not ours", dir)
	}
	leaf := filepath.Join(dir, "portreeve-processes")
	if err := mkdir(leaf); err != nil {
		return err
	}
	// Processes may be forked while we move; a few rounds settle it.
	for range 5 {
		pids, err := fields(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			err := write(filepath.Join(leaf, "cgroup.procs"), pid)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	return fmt.Errorf("control group %s: processes appear faster than they can be moved", dir)
}

// inheritCpuset fills an empty cpuset: on version 1 a group without processors and memory nodes takes no process.
func inheritCpuset(dir string) error {
	for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
		have, err := os.ReadFile(filepath.Join(dir, f))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		if strings.TrimSpace(string(have)) != "" {
			continue
		}
		up, err := os.ReadFile(filepath.Join(filepath.Dir(dir), f))
		if err != nil {
			return err
		}
		if err := write(filepath.Join(dir, f), strings.TrimSpace(string(up))); err != nil {
			return err
		}
	}
	return nil
}

// ownV2 returns the version 2 group of this process.
func ownV2() (string, error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path, nil
		}
	}
	return "", errors.New("this process has no version 2 control group")
}

func mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making control group: %w", err)
	}
	return nil
}

func fields(file string) ([]string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading control group: %w", err)
	}
	return strings.Fields(string(b)), nil
}

// write writes one value in one call and never creates a file: in a control group there is nothing to create.
func write(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("setting control group: %w", err)
	}
	_, err = f.WriteString(value)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing %q: %w", value, err)
	}
	return nil
}
