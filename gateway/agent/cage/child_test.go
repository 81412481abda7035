package cage

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// act is the child: it enters the cage of its role, if any, and does the one thing it was told.
func act(action string) int {
	do, ok := actions[action]
	if !ok {
		fmt.Println("no such action:", action)
		return 2
	}
	c := Config{Role: map[string]Role{"edge": Edge, "inward": Inward}[os.Getenv(roleEnv)]}
	if dir := os.Getenv(dirEnv); dir != "" {
		c.ReadWrite = []string{dir}
	}
	if err := do(c); err != nil {
		fmt.Println("error:", err)
		return 1
	}
	return 0
}

// caged enters the cage, unless this is the twin outside of it, then does f and says so.
func caged(f func() error) func(Config) error {
	return func(c Config) error {
		if c.Role != 0 {
			if _, err := Enter(c); err != nil {
				return err
			}
		}
		fmt.Println("ready")
		err := f()
		fmt.Println("survived")
		return err
	}
}

// call makes one raw system call; its own error is no matter.
func call(nr uintptr, args ...uintptr) func(Config) error {
	return caged(func() error {
		var a [6]uintptr
		copy(a[:], args)
		_, _, _ = unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
		return nil
	})
}

var truePath, _ = unix.BytePtrFromString("/bin/true")

// forbidden are raw calls that end a caged process of either role. Outside they do little harm.
var forbidden = map[string]func(Config) error{
	"exec":           caged(func() error { return unix.Exec("/bin/true", []string{"true"}, nil) }),
	"execveat":       call(unix.SYS_EXECVEAT, ^uintptr(99), uintptr(unsafe.Pointer(truePath)), 0, 0, 0),
	"fork":           caged(fork(unix.SYS_CLONE, uintptr(unix.SIGCHLD))),
	"clone3":         call(unix.SYS_CLONE3, 0, 0),
	"unshare":        call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER),
	"setns":          call(unix.SYS_SETNS, 0, 0),
	"ptrace":         call(unix.SYS_PTRACE, unix.PTRACE_ATTACH, 1),
	"read memory":    call(unix.SYS_PROCESS_VM_READV, 1, 0, 0, 0, 0, 0),
	"io_uring":       call(unix.SYS_IO_URING_SETUP, 1, 0),
	"bpf":            call(unix.SYS_BPF, 0, 0, 0),
	"perf":           call(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0, 0, 0),
	"userfaultfd":    call(unix.SYS_USERFAULTFD, 0),
	"keys":           call(unix.SYS_KEYCTL, 0, 0, 0),
	"mount":          call(unix.SYS_MOUNT, 0, 0, 0, 0, 0),
	"memfd":          call(unix.SYS_MEMFD_CREATE, 0, 0),
	"kill":           call(unix.SYS_KILL, uintptr(unix.Getppid()), 0),
	"tgkill others":  call(unix.SYS_TGKILL, uintptr(unix.Getppid()), uintptr(unix.Getppid()), 0),
	"listen":         call(unix.SYS_LISTEN, 0, 1),
	"dumpable again": call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1),
	"netlink":        call(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0),
	"packet":         call(unix.SYS_SOCKET, unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0),
	"vsock":          call(unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0),
	"raw":            call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_ICMP),
	"ping":           call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_ICMP),
}

// actions are all that a child can be told.
var actions = map[string]func(Config) error{
	"thread": caged(threads),
	"tgkill": caged(func() error { return unix.Tgkill(unix.Getpid(), unix.Gettid(), 0) }),
	"socket": caged(func() error {
		return closed(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0))
	}),
	"udp": caged(func() error {
		return closed(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0))
	}),
	"prctl":    caged(func() error { return prctlReads(unix.PR_GET_NO_NEW_PRIVS, 1) }),
	"ioctl":    caged(func() error { _, err := unix.IoctlGetTermios(0, unix.TCGETS); return expect(err, unix.EACCES) }),
	"files":    reachFiles,
	"enter":    func(c Config) error { _, err := Enter(c); return err },
	"without":  withoutLandlock,
	"insecure": insecure,
	"wait":     waitCaged,
	"edge":     edgeWork,
	"inward":   inwardWork,
}

func init() {
	for name, f := range forbidden {
		actions["forbidden "+name] = f
	}
}

func fork(nr, flags uintptr) func() error {
	return func() error {
		runtime.LockOSThread()
		if pid, _, _ := unix.RawSyscall6(nr, flags, 0, 0, 0, 0, 0); pid == 0 {
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		return nil
	}
}

func closed(fd int, err error) error {
	if err == nil {
		err = unix.Close(fd)
	}
	return err
}

func expect(err, want error) error {
	if !errors.Is(err, want) {
		return fmt.Errorf("got %v, want %v", err, want)
	}
	return nil
}

// threads starts many at once.
func threads() error {
	const n = 40
	held, release := make(chan struct{}), make(chan struct{})
	for range n {
		go func() {
			runtime.LockOSThread()
			held <- struct{}{}
			<-release
		}()
	}
	for range n {
		<-held
	}
	close(release)
	return nil
}

// reachFiles opens what lies inside and outside of the given directory.
func reachFiles(c Config) error {
	dir := c.ReadWrite[0]
	c.ReadOnly = []string{os.Getenv("READ_FILE"), os.Getenv("READ_DIR")}
	if c.Role == 0 {
		fmt.Println("no cage")
	} else if _, err := Enter(c); err != nil {
		return err
	}
	try := func(what string, err error) {
		switch {
		case err == nil:
			fmt.Println(what, "works")
		case errors.Is(err, unix.EACCES):
			fmt.Println(what, "refused")
		default:
			fmt.Println(what, err)
		}
	}
	read := func(path string) error { _, err := os.ReadFile(path); return err }
	try("read own", read(filepath.Join(dir, "there")))
	try("write own", os.WriteFile(filepath.Join(dir, "new"), []byte("x"), 0o600))
	try("rename own", os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "newer")))
	try("remove own", os.Remove(filepath.Join(dir, "newer")))
	_, err := os.ReadDir(dir)
	try("list own", err)
	try("read given file", read(os.Getenv("READ_FILE")))
	try("write given file", os.WriteFile(os.Getenv("READ_FILE"), nil, 0o600))
	try("read given dir", read(filepath.Join(os.Getenv("READ_DIR"), "file")))
	try("write given dir", os.WriteFile(filepath.Join(os.Getenv("READ_DIR"), "new"), nil, 0o600))
	try("read neighbour", read(os.Getenv("NEIGHBOUR")))
	try("read by dots", read(dir+"/../neighbour"))
	try("read by link", read(filepath.Join(dir, "link")))
	try("read passwd", read("/etc/passwd"))
	try("read status", read("/proc/self/status"))
	return nil
}

func withoutLandlock(c Config) error {
	landlockABI = func() int { return 0 }
	_, err := Enter(c)
	return expect(err, ErrNoLandlock)
}

func insecure(c Config) error {
	landlockABI = func() int { return 0 }
	c.InsecureWithoutLandlock = true
	r, err := Enter(c)
	if err != nil {
		return err
	}
	if err := r.SelfCheck(); err != nil {
		return err
	}
	if _, err := os.ReadFile("/etc/passwd"); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// waitCaged holds many threads until file 3 closes, so that the parent can read what holds on each.
func waitCaged(c Config) error {
	if _, err := Enter(c); err != nil {
		return err
	}
	if err := threads(); err != nil {
		return err
	}
	l, err := net.FileConn(os.NewFile(3, "parent"))
	if err != nil {
		return err
	}
	if _, err := l.Write([]byte("x")); err != nil {
		return err
	}
	_, _ = l.Read(make([]byte, 1))
	return nil
}
