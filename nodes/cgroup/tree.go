package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Root is where hierarchies are mounted by convention; runsc looks there too.
const Root = "/sys/fs/cgroup"

// A Tree is the part of the machine's control groups that belongs to one instance.
// It has no state of its own beside paths and is safe for concurrent use.
type Tree struct {
	root   string
	v2     bool
	mounts []string // version 1: one directory for each mounted hierarchy
	parent string   // "/portreeve-ab12cd", or below our own group where the root is closed to us
}

var instanceName = regexp.MustCompile(`^[a-z0-9]{1,32}$`)

// Open returns the tree of an instance. It mounts the hierarchies if this process lives in a mount
// namespace of its own that has none (see EnsureMounted), and changes nothing else.
func Open(instance string) (*Tree, error) {
	if !instanceName.MatchString(instance) {
		return nil, fmt.Errorf("control groups of instance %q: not a name", instance)
	}
	if _, err := EnsureMounted(); err != nil {
		return nil, err
	}
	return openAt(Root, instance)
}

func openAt(root, instance string) (*Tree, error) {
	t := &Tree{root: root, parent: "/portreeve-" + instance}
	var err error
	if t.v2, err = isV2(root); err != nil {
		return nil, err
	}
	if t.v2 {
		return t, nil
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading mounts: %w", err)
	}
	t.mounts = v1Mounts(parseMountinfo(string(info)), root)
	for _, c := range []string{"memory", "pids", "cpu"} {
		if _, err := os.Stat(filepath.Join(root, c)); err != nil {
			return nil, fmt.Errorf("control groups: no %s controller below %s", c, root)
		}
	}
	return t, nil
}

func isV2(root string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err != nil {
		return false, fmt.Errorf("control groups at %s: %w", root, err)
	}
	return st.Type == unix.CGROUP2_SUPER_MAGIC, nil
}

// V2 reports whether the machine uses version 2 alone.
func (t *Tree) V2() bool { return t.v2 }

// Path returns the cgroupsPath of a sandbox, for the OCI spec.
func (t *Tree) Path(id string) string { return filepath.Join(t.parent, id) }

// SwapAccounting reports whether a limit on swap can be set below the parent.
func (t *Tree) SwapAccounting() bool {
	file := filepath.Join(t.root, "memory", t.parent, "memory.memsw.limit_in_bytes")
	if t.v2 {
		file = filepath.Join(t.root, t.parent, "memory.swap.max")
	}
	_, err := os.Stat(file)
	return err == nil
}

// List returns the names of all groups below the parent.
func (t *Tree) List() ([]string, error) {
	var names []string
	for _, dir := range t.parents() {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("listing control groups: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// parents returns the parent's directory in each hierarchy.
func (t *Tree) parents() []string {
	if t.v2 {
		return []string{filepath.Join(t.root, t.parent)}
	}
	dirs := make([]string, 0, len(t.mounts))
	for _, m := range t.mounts {
		dirs = append(dirs, filepath.Join(m, t.parent))
	}
	return dirs
}

// dirs returns the group's directory in each hierarchy. A name is one path element: what a record or
// a directory listing says can't lead out of the parent.
func (t *Tree) dirs(id string) ([]string, error) {
	if id == "" || id == "." || id == ".." || strings.ContainsAny(id, "/\x00") {
		return nil, fmt.Errorf("control group %q: not a name", id)
	}
	dirs := t.parents()
	for i := range dirs {
		dirs[i] = filepath.Join(dirs[i], id)
	}
	return dirs, nil
}

// file names a control file of a group: v1 lives under its controller's hierarchy.
func (t *Tree) file(id, v1Controller, v1File, v2File string) (string, error) {
	if _, err := t.dirs(id); err != nil {
		return "", err
	}
	if t.v2 {
		return filepath.Join(t.root, t.parent, id, v2File), nil
	}
	return filepath.Join(t.root, v1Controller, t.parent, id, v1File), nil
}
