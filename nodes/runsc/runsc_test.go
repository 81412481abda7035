package runsc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// TestMain lets the test binary stand in for runsc: it writes down what it was given. Its environment is empty, so the
// flags tell.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "--root=") {
		os.Exit(fake(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// A call is what the fake saw.
type call struct {
	Args  []string
	Env   []string
	Files []string // what the descriptors lead to
	Dir   string
}

func fake(args []string) int {
	c := call{Args: args, Env: os.Environ()}
	c.Dir, _ = os.Getwd()
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && !slices.ContainsFunc(
			[]string{"anon_inode", "/proc/", "/sys/fs/cgroup/"}, func(own string) bool { return strings.HasPrefix(to, own) }) { // the Go runtime's
			c.Files = append(c.Files, fd.Name()+" "+to)
		}
	}
	root := strings.TrimPrefix(args[0], "--root=")
	b, _ := json.Marshal(c)
	_ = os.WriteFile(filepath.Join(root, "call"), b, 0o600)
	for _, a := range args {
		if path, ok := strings.CutPrefix(a, "--pid-file="); ok {
			_ = os.WriteFile(path, []byte("4711"), 0o600)
		}
	}
	switch {
	case slices.Contains(args, "list"):
		fmt.Println("null")
	case slices.Contains(args, "state"):
		fmt.Println("{}")
	case slices.Contains(args, "pause") && strings.HasSuffix(args[len(args)-1], "0000"):
		<-time.After(time.Minute) // longer than anybody waits for it
	}
	return 0
}

func newFake(t *testing.T, debug string) (*CLI, func() call) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	c, err := New(Config{Binary: self, Root: filepath.Join(root, "run"), Upper: filepath.Join(root, "upper"), Debug: debug})
	if err != nil {
		t.Fatal(err)
	}
	return c, func() call {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(root, "run", "call"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(root, "run", "call")); err != nil {
			t.Fatal(err)
		}
		var seen call
		if err := json.Unmarshal(b, &seen); err != nil {
			t.Fatal(err)
		}
		return seen
	}
}

const someID = "pr0123456789abcdef0123"

// forbidden open the sandbox, or make it slow enough to hang.
var forbidden = []string{"net-raw", "allow-packet-socket-write", "allow-suid", "allow-flag-override", "network=host", "network=none", "host-uds=create",
	"host-uds=all", "host-fifo", "gso=false", "rootless", "ignore-cgroups", "directfs=false", "overlay2=none", "TESTONLY", "nvproxy", "oci-seccomp=false"}

func TestArgvHasNoForbiddenFlag(t *testing.T) {
	for _, debug := range []string{"", "/tmp/debug"} {
		c, seen := newFake(t, debug)
		bundle := t.TempDir()
		for name, do := range map[string]func() error{
			"create": func() error {
				_, err := c.Create(t.Context(), Create{ID: someID, Bundle: bundle, WorkspaceBytes: 1 << 20})
				return err
			},
			"start":  func() error { return c.Start(t.Context(), someID) },
			"pause":  func() error { return c.Pause(t.Context(), someID) },
			"resume": func() error { return c.Resume(t.Context(), someID) },
			"delete": func() error { return c.Delete(t.Context(), someID) },
			"state":  func() error { _, err := c.State(t.Context(), someID); return err },
			"list":   func() error { _, err := c.List(t.Context()); return err },
		} {
			if err := do(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			args := seen().Args
			i := slices.Index(args, name)
			if i < 0 {
				t.Fatalf("%s: %q", name, args)
			}
			want := []string{"--root=" + c.c.Root, "--platform=systrap", "--network=sandbox", "--host-uds=open"}
			if debug != "" {
				want = append(want, "--debug", "--debug-log=/tmp/debug/")
			}
			rest := map[string][]string{"list": {"--format=json"}, "delete": {"--force", someID}}[name]
			if rest == nil {
				rest = []string{someID}
			}
			if name == "create" {
				want = append(want, "--overlay2=all:dir="+c.c.Upper+",size=1048576", "--log="+bundle+"/create.log", "--log-format=json")
				rest = []string{"--bundle=" + bundle, "--pid-file=" + bundle + "/pid", someID}
			}
			if !slices.Equal(args[:i], want) || !slices.Equal(args[i+1:], rest) {
				t.Errorf("%s: %q\nwant %q ... %q", name, args, want, rest)
			}
			for _, bad := range forbidden {
				if strings.Contains(strings.Join(args, "\n"), bad) {
					t.Errorf("%s: has %q: %q", name, bad, args)
				}
			}
		}
	}
}

func TestCreateGivesNothingOfOurs(t *testing.T) {
	t.Setenv("PORTREEVE_MASTER_KEY", "secret")
	// As one that the supervisor passed to us.
	var pipe [2]int
	if err := syscall.Pipe(pipe[:]); err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(pipe[0])
	defer syscall.Close(pipe[1])
	c, seen := newFake(t, "")
	bundle := t.TempDir()
	pid, err := c.Create(t.Context(), Create{ID: someID, Bundle: bundle, WorkspaceBytes: 1 << 20})
	if err != nil || pid != 4711 {
		t.Fatal(pid, err)
	}
	got := seen()
	if want := []string{"0 /dev/null", "1 /dev/null", "2 /dev/null"}; !slices.Equal(got.Files, want) {
		t.Errorf("files %q, want %q", got.Files, want)
	}
	if len(got.Env) != 1 || !strings.HasPrefix(got.Env[0], "PATH=") {
		t.Errorf("environment %q", got.Env)
	}
	if got.Dir != "/" {
		t.Errorf("directory %q", got.Dir)
	}
	if left, _ := os.ReadDir(bundle); len(left) != 0 {
		t.Errorf("left in the bundle: %v", left)
	}
}

func TestOnlyFullIDsAreAccepted(t *testing.T) {
	c, seen := newFake(t, "")
	for _, id := range []string{"", "pr", someID[:21], someID + "0", "PR0123456789abcdef0123", "pr0123456789abcdef012g", "--all", "../" + someID, someID + "\n"} {
		for name, err := range map[string]error{
			"start": c.Start(t.Context(), id), "pause": c.Pause(t.Context(), id), "resume": c.Resume(t.Context(), id), "delete": c.Delete(t.Context(), id),
		} {
			if err == nil {
				t.Errorf("%s %q was not refused", name, id)
			}
		}
		if _, err := c.State(t.Context(), id); err == nil {
			t.Errorf("state %q was not refused", id)
		}
		if _, err := c.Create(t.Context(), Create{ID: id, Bundle: t.TempDir(), WorkspaceBytes: 1}); err == nil {
			t.Errorf("create %q was not refused", id)
		}
	}
	if _, err := os.Stat(filepath.Join(c.c.Root, "call")); err == nil {
		t.Errorf("a command ran: %q", seen().Args)
	}
	one, two := NewID(), NewID()
	if one == two || len(one) != len(someID) || !ValidID(one) {
		t.Errorf("ids %q, %q", one, two)
	}
	if err := c.Start(t.Context(), one); err != nil {
		t.Error(err)
	}
}

func TestHangingCommandIsEnded(t *testing.T) {
	c, _ := newFake(t, "")
	c.c.Timeout = 300 * time.Millisecond
	err := c.Pause(t.Context(), "pr0123456789abcdef0000")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if e, ok := errors.AsType[*Error](err); !ok || e.Command != "pause" {
		t.Errorf("got %#v", err)
	}
	c.c.Timeout = time.Minute
	if err := c.Pause(t.Context(), someID); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

// The real program's answers, as far as they don't need a sandbox.
func TestRealErrors(t *testing.T) {
	binary := os.Getenv("PORTREEVE_RUNSC")
	if binary == "" {
		binary, _ = filepath.Abs("../../bin/runsc")
	}
	dir := t.TempDir()
	c, err := New(Config{Binary: binary, Root: dir + "/run", Upper: dir + "/upper"})
	if err != nil {
		t.Fatalf("%v: make build, or set PORTREEVE_RUNSC", err)
	}
	if _, err := c.State(t.Context(), someID); !errors.Is(err, ErrNotFound) {
		t.Errorf("state of nothing: %v", err)
	}
	if err := c.Delete(t.Context(), someID); err != nil {
		t.Errorf("delete of nothing: %v", err)
	}
	if all, err := c.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("list of nothing: %v, %v", all, err)
	}
	bundle := t.TempDir()
	_, err = c.Create(t.Context(), Create{ID: someID, Bundle: bundle, WorkspaceBytes: 1 << 20})
	if e, ok := errors.AsType[*Error](err); !ok || errors.Is(err, ErrNotFound) || !strings.Contains(e.Message, "config.json") {
		t.Errorf("create without a spec: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "upper", "runsc-filestore-1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Sweep(), c.Clean(t.Context())); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
	if all, err := c.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("after cleaning: %v, %v", all, err)
	}
}

func TestNewRefuses(t *testing.T) {
	self, _ := os.Executable()
	dir := t.TempDir()
	good := Config{Binary: self, Root: dir + "/r", Upper: dir + "/u"}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"relative root": func(c *Config) { c.Root = "r" }, "comma in upper": func(c *Config) { c.Upper = dir + "/a,size=9" },
		"directory as program": func(c *Config) { c.Binary = dir }, "unclean path": func(c *Config) { c.Upper = dir + "/../u" },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s was not refused", name)
		}
	}
	missing := good
	missing.Binary = dir + "/none"
	if _, err := New(missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing program: %v", err)
	}
}

func box() Box {
	return Box{Rootfs: "/s/images/x/rootfs", Init: "/s/guest/h", Control: "/s/box/control", Workspace: "/s/box/workspace", Trust: "/s/box/trust", ResolvConf: "/s/box/resolv.conf",
		Hosts: "/s/box/hosts", Hostname: "sbx-1", Netns: "/run/netns/pr1", Cgroup: "/portreeve-1/pr2",
		Limits: Limits{MemoryBytes: 256 << 20, CPUMillis: 1500, Pids: 4096, TmpBytes: 64 << 20}, Env: map[string]string{"B": "2", "A": "1"}}
}

func TestSpecIsClosed(t *testing.T) {
	s, err := Spec(box())
	if err != nil {
		t.Fatal(err)
	}
	if !s.Root.Readonly || s.Root.Path != "/s/images/x/rootfs" {
		t.Errorf("root %+v", s.Root)
	}
	p := s.Process
	if !p.NoNewPrivileges || p.User.UID != 0 || p.User.GID != 0 || len(p.User.AdditionalGids) != 0 || !slices.Equal(p.Args, []string{"/.portreeve/init"}) {
		t.Errorf("process %+v", p)
	}
	three := []string{"CAP_KILL", "CAP_SETGID", "CAP_SETUID"}
	c := p.Capabilities
	if !slices.Equal(c.Bounding, three) || !slices.Equal(c.Effective, three) || !slices.Equal(c.Permitted, three) || len(c.Inheritable)+len(c.Ambient) != 0 {
		t.Errorf("capabilities %+v", c)
	}
	if want := []string{"PORTREEVE_ENV_A=1", "PORTREEVE_ENV_B=2"}; !slices.Equal(p.Env[1:], want) || !strings.HasPrefix(p.Env[0], "PATH=") {
		t.Errorf("environment %q", p.Env)
	}
	// Annotations change gVisor's flags and mounts; hooks and devices are the host's.
	if len(s.Annotations) != 0 || s.Hooks != nil || len(s.Linux.Devices) != 0 || s.Linux.Seccomp != nil || s.VM != nil {
		t.Error("annotations, hooks or devices")
	}
	var spaces []string
	for _, n := range s.Linux.Namespaces {
		spaces = append(spaces, string(n.Type)+n.Path)
	}
	if want := []string{"pid", "ipc", "uts", "mount", "network/run/netns/pr1"}; !slices.Equal(spaces, want) {
		t.Errorf("namespaces %q", spaces)
	}
	var host []string
	for _, m := range s.Mounts {
		switch {
		case m.Type == "bind" && m.Destination == Workspace:
			host = append(host, m.Source)
		case m.Type == "bind":
			host = append(host, m.Source)
			if !slices.Contains(m.Options, "ro") || slices.Contains(m.Options, "rw") {
				t.Errorf("%s is not read-only: %q", m.Destination, m.Options)
			}
		case m.Type == "tmpfs" && m.Destination != "/dev" && !slices.ContainsFunc(m.Options, func(o string) bool { return strings.HasPrefix(o, "size=") }):
			t.Errorf("%s has no size", m.Destination)
		case strings.HasPrefix(m.Source, "/"):
			t.Errorf("%s comes from %s", m.Destination, m.Source)
		}
		if !slices.Contains(m.Options, "nosuid") {
			t.Errorf("%s allows set-user programs", m.Destination)
		}
	}
	want := []string{"/s/box/workspace", "/s/guest/h", "/s/box/control", "/s/box/trust", "/s/box/resolv.conf", "/s/box/hosts"}
	if !slices.Equal(host, want) {
		t.Errorf("host paths %q, want %q", host, want)
	}
	r := s.Linux.Resources
	if *r.Memory.Limit != 256<<20 || r.Memory.Swap != nil || *r.CPU.Quota != 150_000 || *r.CPU.Period != 100_000 || *r.CPU.Shares != 1536 || r.Pids.Limit != 4096 {
		t.Errorf("resources %+v %+v %+v", r.Memory, r.CPU, r.Pids)
	}
	b := box()
	b.Limits.NoSwap = true
	if s, err := Spec(b); err != nil || *s.Linux.Resources.Memory.Swap != 256<<20 {
		t.Errorf("without swap: %v", err)
	}
}

func TestSpecRefuses(t *testing.T) {
	for name, change := range map[string]func(*Box){
		"relative root":         func(b *Box) { b.Rootfs = "rootfs" },
		"host's root":           func(b *Box) { b.Rootfs = "/" },
		"unclean control":       func(b *Box) { b.Control = "/s/box/../other/control" },
		"no network namespace":  func(b *Box) { b.Netns = "" },
		"relative group":        func(b *Box) { b.Cgroup = "x" },
		"host name with dot":    func(b *Box) { b.Hostname = "a.b" },
		"empty host name":       func(b *Box) { b.Hostname = "" },
		"63 MiB of memory":      func(b *Box) { b.Limits.MemoryBytes = 63 << 20 },
		"511 processes":         func(b *Box) { b.Limits.Pids = 511 },
		"no processor":          func(b *Box) { b.Limits.CPUMillis = 0 },
		"equals sign in name":   func(b *Box) { b.Env = map[string]string{"A=B": "x"} },
		"zero byte in value":    func(b *Box) { b.Env = map[string]string{"A": "x\x00y"} },
		"environment too large": func(b *Box) { b.Env = map[string]string{"A": strings.Repeat("x", 256<<10)} },
	} {
		b := box()
		change(&b)
		if _, err := Spec(b); err == nil {
			t.Errorf("%s was not refused", name)
		}
	}
	edge := box()
	edge.Limits.MemoryBytes, edge.Limits.Pids, edge.Limits.CPUMillis = 64<<20, 512, 10
	edge.Env = map[string]string{"A": "line\nbreak", "_": ""}
	if _, err := Spec(edge); err != nil {
		t.Errorf("just inside: %v", err)
	}
}

func TestWriteBundle(t *testing.T) {
	s, err := Spec(box())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := WriteBundle(dir, s); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var back specs.Spec
	if err := json.Unmarshal(b, &back); err != nil || back.Hostname != "sbx-1" {
		t.Errorf("%v, %v", back.Hostname, err)
	}
	if st, _ := os.Stat(filepath.Join(dir, "config.json")); st.Mode().Perm() != 0o600 {
		t.Errorf("mode %s", strconv.FormatUint(uint64(st.Mode()), 8))
	}
}
