package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Here the hierarchies are there: nothing to do, and nothing done.
func TestEnsureMountedDoesNothingWhereGroupsAre(t *testing.T) {
	before := groupMounts(t)
	if did, err := EnsureMounted(); did || err != nil {
		t.Fatalf("mounted %v, %v", did, err)
	}
	if after := groupMounts(t); after != before {
		t.Errorf("the mounts changed from\n%sto\n%s", before, after)
	}
}

// groupMounts returns the control groups' part of the mount table; the rest is others' business, who may be at it.
func groupMounts(t *testing.T) string {
	t.Helper()
	all, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var ours strings.Builder
	for line := range strings.Lines(string(all)) {
		if strings.Contains(line, Root) || strings.Contains(line, "cgroup") {
			ours.WriteString(line)
		}
	}
	return ours.String()
}

func TestEnsureMountedInsideANetworkNamespace(t *testing.T) {
	name := "prtest" + strconv.Itoa(os.Getpid())
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Fatalf("ip netns add: %v %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("ip", "netns", "del", name).CombinedOutput(); err != nil {
			t.Errorf("ip netns del: %v %s", err, out)
		}
	})
	before := groupMounts(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "ip", "netns", "exec", name, self)
	cmd.Env = append(os.Environ(), "CGROUP_TEST_ROLE=ensure", "INSTANCE=t"+strconv.Itoa(os.Getpid())+"ns")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if after := groupMounts(t); after != before {
		t.Errorf("the machine's mounts changed from\n%sto\n%s", before, after)
	}
}

// roleEnsure is a whole life of a tree where /sys/fs/cgroup was empty.
func roleEnsure() error {
	if entries, err := os.ReadDir(Root); err != nil || len(entries) != 0 {
		return fmt.Errorf("expected an empty %s, got %d entries, %v", Root, len(entries), err)
	}
	if did, err := EnsureMounted(); err != nil || !did {
		return fmt.Errorf("first time: %v, %w", did, err)
	}
	if did, err := EnsureMounted(); err != nil || did {
		return fmt.Errorf("second time: %v, %w", did, err)
	}
	tree, err := Open(os.Getenv("INSTANCE"))
	if err != nil {
		return err
	}
	if err := tree.Prepare(); err != nil {
		return err
	}
	for _, dir := range tree.parents() {
		if _, err := os.Stat(dir + "/cgroup.procs"); err != nil {
			return err
		}
	}
	// The same groups as outside, not a hierarchy of its own: our process is in one of them.
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(own)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || f[1] != "memory" {
			continue
		}
		pids, err := fields(Root + "/memory" + f[2] + "/cgroup.procs")
		if err != nil || !strings.Contains(" "+strings.Join(pids, " ")+" ", " "+strconv.Itoa(os.Getpid())+" ") {
			return fmt.Errorf("own process is not seen in %s: %w", f[2], err)
		}
	}
	return errors.Join(tree.Purge(timeout()))
}

func TestEnsureMountedLeavesASharedNamespaceAlone(t *testing.T) {
	for _, tc := range []struct {
		name, propagation string
		wantMounted       bool
	}{
		{"private namespace", "private", true},
		{"mounts would spread", "shared", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := role(t, "shared", "PROPAGATION="+tc.propagation).CombinedOutput()
			got := strings.TrimSpace(string(out))
			if err != nil || (got == "mounted") != tc.wantMounted {
				t.Fatalf("got %q, %v", got, err)
			}
			if !tc.wantMounted && !strings.Contains(got, "would spread") {
				t.Fatalf("refused with %q", got)
			}
		})
	}
	// The machine's own namespace, whatever its propagation.
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile("/proc/1/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if string(info) == string(first) {
		if err := private(parseMountinfo(string(info)), parseMountinfo(string(first))); err == nil {
			t.Error("the machine's own mount namespace was taken for a private one")
		}
	}
}

// roleShared hides /sys/fs/cgroup below an empty tmpfs in a mount namespace of its own, then calls EnsureMounted.
func roleShared() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", Root, "tmpfs", 0, ""); err != nil {
		return err
	}
	if os.Getenv("PROPAGATION") == "shared" {
		// A peer group of its own: nothing reaches the machine.
		if err := unix.Mount("", Root, "", unix.MS_SHARED, ""); err != nil {
			return err
		}
	}
	did, err := EnsureMounted()
	switch {
	case err != nil:
		fmt.Println(err)
	case did:
		fmt.Println("mounted")
	default:
		fmt.Println("not empty")
	}
	return nil
}

func TestPlan(t *testing.T) {
	line := func(point, fstype, super string) string {
		return "31 23 0:28 / " + point + " rw,relatime shared:9 - " + fstype + " " + fstype + " " + super + "\n"
	}
	for _, tc := range []struct {
		name, first, own string
		want             string
	}{
		{"version 2", line("/", "ext4", "rw") + line("/sys", "sysfs", "rw") + line(Root, "cgroup2", "rw,nsdelegate,memory_recursiveprot"), "0::/x\n",
			"cgroup2 /sys/fs/cgroup nsdelegate,memory_recursiveprot"},
		{"mixed", line(Root, "tmpfs", "rw") + line(Root+"/cpu,cpuacct", "cgroup", "rw,cpu,cpuacct") +
			line(Root+"/systemd", "cgroup", "rw,xattr,name=systemd,release_agent=/x") + line(Root+"/unified", "cgroup2", "rw,nsdelegate"), "",
			"tmpfs /sys/fs/cgroup mode=755; cgroup /sys/fs/cgroup/cpu,cpuacct cpu,cpuacct; link /sys/fs/cgroup/cpu cpu,cpuacct; " +
				"link /sys/fs/cgroup/cpuacct cpu,cpuacct; cgroup /sys/fs/cgroup/systemd none,name=systemd; cgroup2 /sys/fs/cgroup/unified nsdelegate"},
		{"first process unseen, version 1", "", "9:name=systemd:/a\n4:memory:/b\n1:cpu,cpuacct:/\n0::/\n",
			"tmpfs /sys/fs/cgroup mode=755; cgroup /sys/fs/cgroup/systemd none,name=systemd; cgroup /sys/fs/cgroup/memory memory; " +
				"cgroup /sys/fs/cgroup/cpu,cpuacct cpu,cpuacct; link /sys/fs/cgroup/cpu cpu,cpuacct; link /sys/fs/cgroup/cpuacct cpu,cpuacct"},
		{"first process unseen, version 2", "", "0::/user.slice\n", "cgroup2 /sys/fs/cgroup"},
		{"nothing known", "", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			steps, err := plan(parseMountinfo(tc.first), tc.own)
			var got []string
			for _, s := range steps {
				if s.fstype == "" {
					got = append(got, "link "+s.target+" "+s.source)
				} else {
					got = append(got, strings.TrimSpace(s.fstype+" "+s.target+" "+s.data))
				}
			}
			if strings.Join(got, "; ") != tc.want || (err != nil) != (tc.want == "") {
				t.Errorf("got %q, %v\nwant %q", strings.Join(got, "; "), err, tc.want)
			}
		})
	}
}
