package cgroup

import "strings"

// A mount is one line of mountinfo (proc_pid_mountinfo(5)), as far as it matters here.
type mount struct {
	id, point, fstype, super string
	shared                   bool
}

func parseMountinfo(text string) []mount {
	var mounts []mount
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		if !ok {
			continue
		}
		f, g := strings.Fields(before), strings.Fields(after)
		if len(f) < 6 || len(g) < 3 {
			continue
		}
		m := mount{id: f[0], point: f[4], fstype: g[0], super: g[2]}
		for _, tag := range f[6:] {
			m.shared = m.shared || strings.HasPrefix(tag, "shared:")
		}
		mounts = append(mounts, m)
	}
	return mounts
}

// covering returns the mount that path lies on: the deepest, and of those the last one.
func covering(mounts []mount, path string) (mount, bool) {
	var best mount
	found := false
	for _, m := range mounts {
		on := m.point == path || m.point == "/" || strings.HasPrefix(path, m.point+"/")
		if on && len(m.point) >= len(best.point) {
			best, found = m, true
		}
	}
	return best, found
}

// controllers takes the controllers and the name of a version 1 hierarchy out of its options.
func (m mount) controllers() []string {
	var list []string
	for o := range strings.SplitSeq(m.super, ",") {
		switch {
		case o == "rw", o == "ro", o == "xattr", o == "none", o == "noprefix", o == "clone_children",
			o == "cpuset_v2_mode", strings.HasPrefix(o, "release_agent="):
		case o != "":
			list = append(list, o)
		}
	}
	return list
}

// options returns those of a version 2 hierarchy. There is one in the machine, and each mount of it sets its options anew: to
// leave one out takes it away from all others.
func (m mount) options() string {
	var list []string
	for o := range strings.SplitSeq(m.super, ",") {
		if o != "rw" && o != "ro" && o != "" {
			list = append(list, o)
		}
	}
	return strings.Join(list, ",")
}

// v1Mounts returns the mount points of all version 1 hierarchies below root, once each.
func v1Mounts(mounts []mount, root string) []string {
	var points []string
	for _, m := range mounts {
		if m.fstype == "cgroup" && strings.HasPrefix(m.point, root+"/") {
			points = append(points, m.point)
		}
	}
	return points
}
