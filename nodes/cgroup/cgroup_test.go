package cgroup

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary stand in for processes that live in a group or a namespace of their own.
func TestMain(m *testing.M) {
	if role := os.Getenv("CGROUP_TEST_ROLE"); role != "" {
		if err := roles[role](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var roles map[string]func() error

func init() {
	if os.Getenv("CGROUP_TEST_ROLE") != "" {
		runtime.LockOSThread() // namespaces are a thread's; /proc/self shows the first one's
	}
	roles = map[string]func() error{
		"ensure":        roleEnsure,
		"shared":        roleShared,
		"eat":           roleEat,
		"join-and-wait": roleJoinAndWait,
	}
}

func role(t *testing.T, name string, env ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), append(env, "CGROUP_TEST_ROLE="+name)...)
	return cmd
}

func openTree(t *testing.T) *Tree {
	t.Helper()
	tree, err := Open("t" + strconv.Itoa(os.Getpid()) + strconv.FormatInt(time.Now().UnixNano()%100000, 10))
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Prepare(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := tree.Purge(ctx); err != nil {
			t.Error(err)
		}
		for _, dir := range tree.parents() {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s is left over", dir)
			}
		}
	})
	return tree
}

// group makes a group as runsc would.
func group(t *testing.T, tree *Tree, id string, memory, pids, millis int64) {
	t.Helper()
	dirs, err := tree.dirs(id)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if err := mkdir(dir); err != nil {
			t.Fatal(err)
		}
		if err := inheritCpuset(dir); err != nil {
			t.Fatal(err)
		}
	}
	set := func(controller, v1File, v2File, value string) {
		t.Helper()
		file, err := tree.file(id, controller, v1File, v2File)
		if err != nil {
			t.Fatal(err)
		}
		if err := write(file, value); err != nil {
			t.Fatal(err)
		}
	}
	if memory > 0 {
		set("memory", "memory.limit_in_bytes", "memory.max", strconv.FormatInt(memory, 10))
	}
	if pids > 0 {
		set("pids", "pids.max", "pids.max", strconv.FormatInt(pids, 10))
	}
	if millis > 0 && tree.v2 {
		set("", "", "cpu.max", strconv.FormatInt(millis*100, 10)+" 100000")
	} else if millis > 0 {
		set("cpu", "cpu.cfs_quota_us", "", strconv.FormatInt(millis*100, 10))
	}
}

func TestConfirmRefusesAMissingLimit(t *testing.T) {
	tree := openTree(t)
	want := Limits{MemoryBytes: 64 << 20, Pids: 4096, CPUMillis: 500}
	for _, tc := range []struct {
		name                 string
		memory, pids, millis int64
		wrong                string
	}{
		{"all there", 64 << 20, 4096, 500, ""},
		{"tighter than asked", 32 << 20, 100, 100, ""},
		{"no memory limit", 0, 4096, 500, "memory limit"},
		{"memory one page over", 64<<20 + 4096, 4096, 500, "memory limit"},
		{"no process limit", 64 << 20, 0, 500, "process limit is none"},
		{"one process over", 64 << 20, 4097, 500, "process limit is 4097"},
		{"no processor limit", 64 << 20, 4096, 0, "processor limit is none"},
		{"processor limit over", 64 << 20, 4096, 501, "processor limit is 501"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			id := strings.ReplaceAll(tc.name, " ", "-")
			group(t, tree, id, tc.memory, tc.pids, tc.millis)
			err := tree.Confirm(id, want)
			if tc.wrong == "" && err != nil {
				t.Fatalf("refused: %v", err)
			}
			if tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)) {
				t.Fatalf("got %v, want it to name %q", err, tc.wrong)
			}
		})
	}
	if err := tree.Confirm("nobody", want); err == nil {
		t.Fatal("a group that is not there was confirmed")
	}
}

func TestNamesCannotLeaveTheParent(t *testing.T) {
	tree, other := openTree(t), openTree(t)
	group(t, other, "victim", 64<<20, 100, 0)
	escape := "../" + filepath.Base(other.parent) + "/victim"
	for _, id := range []string{"", ".", "..", escape, "a/b", "a\x00b"} {
		if _, err := tree.OOMKills(id); err == nil {
			t.Errorf("reading %q was not refused", id)
		}
	}
	// Not with "..": if the protection were missing, this would kill every process of the machine.
	if err := tree.Remove(t.Context(), escape); err == nil {
		t.Errorf("removing %q was not refused", escape)
	}
	if names, err := other.List(); err != nil || !slices.Equal(names, []string{"victim"}) {
		t.Fatalf("the other instance now has %q, %v", names, err)
	}
	if names, err := tree.List(); err != nil || len(names) != 0 {
		t.Fatalf("sees %q, %v; none are its own", names, err)
	}
	group(t, tree, "own", 64<<20, 100, 0)
	if err := tree.Remove(t.Context(), "own"); err != nil {
		t.Fatal(err)
	}
}

func TestOutOfMemoryIsCounted(t *testing.T) {
	tree := openTree(t)
	group(t, tree, "small", 24<<20, 100, 0)
	group(t, tree, "large", 512<<20, 100, 0)
	for _, tc := range []struct {
		id     string
		killed bool
	}{{"large", false}, {"small", true}} {
		file, err := tree.file(tc.id, "memory", "cgroup.procs", "cgroup.procs")
		if err != nil {
			t.Fatal(err)
		}
		out, err := role(t, "eat", "GROUP="+file).CombinedOutput()
		n, oomErr := tree.OOMKills(tc.id)
		if oomErr != nil {
			t.Fatal(oomErr)
		}
		if (n > 0) != tc.killed {
			t.Errorf("%s: %d kills counted, process ended with %v: %s", tc.id, n, err, out)
		}
	}
	if n, err := tree.OOMKills("gone"); n != 0 || err != nil {
		t.Errorf("a group that is gone: %d, %v", n, err)
	}
}

// roleEat joins a group and touches 64 MiB.
func roleEat() error {
	if err := write(os.Getenv("GROUP"), "0"); err != nil {
		return err
	}
	b := make([]byte, 64<<20)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	return nil
}

func TestRemoveKillsWhatIsLeft(t *testing.T) {
	tree := openTree(t)
	group(t, tree, "busy", 64<<20, 100, 0)
	dirs, err := tree.dirs("busy")
	if err != nil {
		t.Fatal(err)
	}
	cmd := role(t, "join-and-wait", "GROUPS_="+strings.Join(dirs, ":"))
	ready, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	removed := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() { removed <- tree.Remove(ctx, "busy") }()
	if err := cmd.Wait(); err == nil {
		t.Error("the process in the group was not killed")
	}
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	if names, _ := tree.List(); len(names) != 0 {
		t.Errorf("left over: %q", names)
	}
}

func roleJoinAndWait() error {
	for _, dir := range filepath.SplitList(os.Getenv("GROUPS_")) {
		if err := write(filepath.Join(dir, "cgroup.procs"), "0"); err != nil {
			return err
		}
	}
	fmt.Print("1")
	_, err := os.Stdin.Read(make([]byte, 1))
	return err
}

// On a machine of version 1 the version 2 code runs on the controllerless hierarchy that mixed systems have.
func TestVersion2RemovesAndRefusesWithoutControllers(t *testing.T) {
	root := Root
	if v2, err := isV2(Root); err != nil {
		t.Fatal(err)
	} else if !v2 {
		root = filepath.Join(Root, "unified")
	}
	tree, err := openAt(root, "t"+strconv.Itoa(os.Getpid())+"v2")
	if err != nil {
		t.Fatal(err)
	}
	if !tree.V2() {
		t.Fatalf("%s was not taken for version 2", root)
	}
	if root != Root {
		err := tree.Prepare()
		if err == nil || !strings.Contains(err.Error(), "no cpu controller") {
			t.Fatalf("without controllers: %v", err)
		}
	} else if err := tree.Prepare(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, tree.parent)
	for _, d := range []string{dir, dir + "/a", dir + "/a/nested"} {
		if err := mkdir(d); err != nil {
			t.Fatal(err)
		}
	}
	if err := tree.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Fatal("the parent is left over")
	}
}

func TestVersion2Files(t *testing.T) {
	root := t.TempDir()
	tree := &Tree{root: root, v2: true, parent: "/portreeve-x"}
	dir := filepath.Join(root, "portreeve-x", "a")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	put := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{
		"memory.max": "67108864\n", "pids.max": "4096\n", "cpu.max": "50000 100000\n", "memory.oom.group": "0\n",
		"memory.events": "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n",
	} {
		put(filepath.Join(dir, file), text)
	}
	want := Limits{MemoryBytes: 64 << 20, Pids: 4096, CPUMillis: 500}
	if err := tree.Confirm("a", want); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "memory.oom.group")); strings.TrimSpace(string(b)) != "1" {
		t.Errorf("memory.oom.group is %q", b)
	}
	if n, err := tree.OOMKills("a"); n != 2 || err != nil {
		t.Errorf("kills: %d, %v", n, err)
	}
	put(filepath.Join(dir, "cpu.max"), "max 100000\n")
	if err := tree.Confirm("a", want); err == nil {
		t.Error("no processor limit was confirmed")
	}

	// Controllers are enabled on the whole way down, and only those that the machine has.
	for _, d := range []string{root, filepath.Join(root, "portreeve-x")} {
		put(filepath.Join(d, "cgroup.controllers"), "cpuset cpu io memory pids rdma\n")
		put(filepath.Join(d, "cgroup.subtree_control"), "")
	}
	if err := tree.prepareV2("/portreeve-x"); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{root, filepath.Join(root, "portreeve-x")} {
		if b, _ := os.ReadFile(filepath.Join(d, "cgroup.subtree_control")); string(b) != "+cpu +memory +pids +cpuset +io" {
			t.Errorf("%s: enabled %q", d, b)
		}
	}
}
