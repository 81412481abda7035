package runsc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Places inside a sandbox.
const (
	InitDir    = "/.portreeve"     // the directory with process 1, read-only
	InitPath   = InitDir + "/init" // process 1
	ControlDir = "/run/portreeve"  // the directory with init.sock, read-only
	TrustDir   = "/etc/portreeve"  // the directory with the certificates that sandboxes trust, read-only
	Workspace  = "/workspace"      // the user's files
	UserID     = 1001              // user and group of the user's processes
)

// EnvPrefix marks the variables that process 1 gives, without the prefix, to each user process.
const EnvPrefix = "PORTREEVE_ENV_"

// A Box says everything that the spec of one sandbox is made from. All paths are absolute, on the host.
type Box struct {
	Rootfs     string // the image's root
	Init       string // directory with the init program
	Control    string // directory with init.sock
	Workspace  string // empty directory, owned by the user
	Trust      string // directory with certificates
	ResolvConf string // file
	Hosts      string // file
	Hostname   string
	Netns      string // path of the network namespace
	Cgroup     string // cgroupsPath
	Limits     Limits
	Env        map[string]string // for user processes
}

// Limits of one sandbox.
type Limits struct {
	MemoryBytes int64
	CPUMillis   int64 // 1000 is one processor
	Pids        int64 // processes on the host, about two for each in the sandbox and forty of gVisor's own
	TmpBytes    int64 // /tmp, which counts as memory; so does /dev/shm, limited to a quarter of MemoryBytes
	NoSwap      bool  // the kernel can limit swap: allow none
}

// What process 1 may do beyond an ordinary process: become the user, end its processes.
var capabilities = []string{"CAP_KILL", "CAP_SETGID", "CAP_SETUID"}

var (
	hostname = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	envName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// Spec builds the OCI spec of a sandbox. It reads no file: what an image holds has no say in it.
func Spec(b Box) (*specs.Spec, error) {
	if err := b.validate(); err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	env, err := b.env()
	if err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	nofile := uint64(1 << 16)
	return &specs.Spec{
		Version:  "1.1.0",
		Hostname: b.Hostname,
		Root:     &specs.Root{Path: b.Rootfs, Readonly: true},
		Mounts:   b.mounts(),
		Process: &specs.Process{
			Args:            []string{InitPath},
			Cwd:             "/",
			Env:             env,
			User:            specs.User{UID: 0, GID: 0},
			NoNewPrivileges: true,
			Capabilities: &specs.LinuxCapabilities{
				Bounding: capabilities, Effective: capabilities, Permitted: capabilities,
			},
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_NOFILE", Soft: nofile, Hard: nofile},
				{Type: "RLIMIT_CORE", Soft: 0, Hard: 0},
			},
		},
		Linux: &specs.Linux{
			CgroupsPath: b.Cgroup,
			Resources:   b.resources(),
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
				{Type: specs.NetworkNamespace, Path: b.Netns},
			},
		},
	}, nil
}

func (b Box) mounts() []specs.Mount {
	size := func(n int64) string { return "size=" + strconv.FormatInt(n, 10) }
	bind := func(dst, src string, more ...string) specs.Mount {
		return specs.Mount{Destination: dst, Type: "bind", Source: src, Options: append([]string{"rbind", "nosuid", "nodev"}, more...)}
	}
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "nodev", "noexec"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "nodev", "noexec", "ro"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "nodev", "mode=1777", size(b.Limits.MemoryBytes / 4)}},
		{Destination: "/tmp", Type: "tmpfs", Source: "tmp", Options: []string{"nosuid", "nodev", "mode=1777", size(b.Limits.TmpBytes)}},
		bind(Workspace, b.Workspace, "rw"), // its writes go to the overlay, see createArgv
		bind(InitDir, b.Init, "ro"),
		bind(ControlDir, b.Control, "ro", "noexec"),
		bind(TrustDir, b.Trust, "ro", "noexec"),
		bind("/etc/resolv.conf", b.ResolvConf, "ro", "noexec"),
		bind("/etc/hosts", b.Hosts, "ro", "noexec"),
	}
}

func (b Box) resources() *specs.LinuxResources {
	memory, pids := b.Limits.MemoryBytes, b.Limits.Pids
	period := uint64(100_000)
	quota := max(b.Limits.CPUMillis*100, 1000)
	shares := uint64(max(b.Limits.CPUMillis*1024/1000, 2))
	r := &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: &memory},
		CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period, Shares: &shares},
		Pids:   &specs.LinuxPids{Limit: pids},
	}
	if b.Limits.NoSwap {
		r.Memory.Swap = &memory // memory and swap together
	}
	return r
}

func (b Box) env() ([]string, error) {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	total := 0
	for name, value := range b.Env {
		if !envName.MatchString(name) {
			return nil, fmt.Errorf("environment variable %q: not a name", name)
		}
		if strings.ContainsRune(value, 0) {
			return nil, fmt.Errorf("environment variable %q: has a zero byte", name)
		}
		total += len(name) + len(value)
		env = append(env, EnvPrefix+name+"="+value)
	}
	if total > 256<<10 {
		return nil, errors.New("environment: more than 256 KiB")
	}
	slices.Sort(env[1:])
	return env, nil
}

func (b Box) validate() error {
	for name, p := range map[string]string{
		"root": b.Rootfs, "init": b.Init, "control": b.Control, "workspace": b.Workspace, "trust": b.Trust, "resolv.conf": b.ResolvConf,
		"hosts": b.Hosts, "network namespace": b.Netns, "control group": b.Cgroup,
	} {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p || p == "/" {
			return fmt.Errorf("%s: path %q is not absolute and clean", name, p)
		}
	}
	if !hostname.MatchString(b.Hostname) {
		return fmt.Errorf("host name %q", b.Hostname)
	}
	// One runaway sandbox takes the sentry, its helpers and init with it below these.
	for _, l := range []struct {
		name       string
		value, min int64
	}{
		{"memory", b.Limits.MemoryBytes, 64 << 20}, {"processor", b.Limits.CPUMillis, 10}, {"process", b.Limits.Pids, 512}, {"/tmp", b.Limits.TmpBytes, 4096},
	} {
		if l.value < l.min {
			return fmt.Errorf("%s limit %d: at least %d", l.name, l.value, l.min)
		}
	}
	return nil
}

// WriteBundle writes the spec to config.json in an existing directory.
func WriteBundle(dir string, s *specs.Spec) error {
	b, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), b, 0o600); err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	return nil
}
