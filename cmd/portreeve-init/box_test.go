package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portreeve.dev/nodes/guest"
)

const stageName = "portreeve-init-test-stage"

// box is a root filesystem with a live init, and the host's side of it.
type box struct {
	root    string // on the host
	sockets string // the folder of the init socket
	session *guest.Session
	client  *guest.Client
	stop    context.CancelFunc // ends the session, not init
	served  chan error
}

// eachBox runs f in plain namespaces and in gVisor.
func eachBox(t *testing.T, f func(*testing.T, *box)) {
	t.Run("namespaces", func(t *testing.T) { f(t, get(t, plainBox)) })
	t.Run("gvisor", func(t *testing.T) { f(t, get(t, gvisorBox)) })
}

var plainBox, gvisorBox = sync.OnceValues(startPlain), sync.OnceValues(startGvisor)

func get(t testing.TB, start func() (*box, error)) *box {
	t.Helper()
	b, err := start()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newBox fills a root filesystem: busybox, and things that the tests look at. The caller starts init in it.
func newBox() (*box, error) {
	dir, err := os.MkdirTemp("/var/tmp", "portreeve-box")
	if err != nil {
		return nil, err
	}
	atEnd(func() { os.RemoveAll(dir) })
	b := &box{root: filepath.Join(dir, "root"), sockets: filepath.Join(dir, "sockets")}
	for _, folder := range []string{"bin", "proc", "dev", "sys", "tmp", "etc", "run/portreeve", "workspace", "outside"} {
		if err := os.MkdirAll(filepath.Join(b.root, folder), 0o755); err != nil {
			return nil, err
		}
	}
	if out, err := exec.Command("cp", "/bin/busybox", filepath.Join(b.root, "bin/busybox")).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copying busybox: %s", out)
	}
	if out, err := exec.Command("chroot", b.root, "/bin/busybox", "--install", "-s", "/bin").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("installing busybox: %s", out)
	}
	w := filepath.Join(b.root, "workspace")
	return b, errors.Join(
		os.MkdirAll(b.sockets, 0o700),
		os.Chmod(filepath.Join(b.root, "tmp"), 0o1777),
		os.Chown(w, userID, userID),
		os.WriteFile(filepath.Join(w, "rootonly"), []byte("init's"), 0o600),
		os.WriteFile(filepath.Join(b.root, "outside/file"), []byte("outside"), 0o644),
		os.WriteFile(filepath.Join(b.root, "etc/passwd"), []byte("root:x:0:0::/:/bin/sh\nsandbox:x:1001:1001::/workspace:/bin/sh\n"), 0o644),
		os.MkdirAll(filepath.Join(b.root, "workspacex"), 0o777),
	)
}

// serve starts the host's side; init dials it sooner or later.
func (b *box) serve() error {
	path := filepath.Join(b.sockets, "init.sock")
	os.Remove(path)
	ln, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	ctx, cancel := context.WithCancel(context.Background())
	b.session = guest.NewSession(guest.Config{Sandbox: "sbx_test"})
	b.stop, b.served = cancel, make(chan error, 1)
	go func() { b.served <- b.session.Serve(ctx, ln) }()
	b.client = guest.NewClient(func(ctx2 context.Context) (net.Conn, error) {
		control, inward, err := socketPair()
		if err == nil {
			go guest.ServeOperation(ctx, inward, b.session)
		}
		return control, err
	})
	return nil
}

func (b *box) ready() error {
	select {
	case <-b.session.Ready():
		return nil
	case <-time.After(20 * time.Second):
		return errors.New("init did not say hello")
	}
}

func socketPair() (net.Conn, net.Conn, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		ends[i], err = net.FileConn(f)
		f.Close()
		if err != nil {
			return nil, nil, err
		}
	}
	return ends[0], ends[1], nil
}

// startPlain runs init in namespaces of its own, with the capabilities that the node's spec gives it.
func startPlain() (*box, error) {
	b, err := newBox()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	program, err := initProgram()
	if err != nil {
		return nil, err
	}
	if err := b.serve(); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(b.root, "portreeve-init"), nil, 0o755); err != nil { // to be mounted over
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Args = []string{stageName, b.root}
	cmd.Env = []string{"BOX_PROGRAM=" + program, "BOX_SOCKETS=" + b.sockets, "PORTREEVE_ENV_FLAVOUR=plain"}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	atEnd(func() {
		cmd.Process.Kill()
		cmd.Wait()
		b.stop()
		<-b.served
	})
	return b, b.ready()
}

// stage is process 1 of the new namespaces until it becomes init. It returns only on failure.
func stage(root string) error {
	at := func(name string) string { return filepath.Join(root, name) }
	steps := []func() error{
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return unix.Mount(os.Getenv("BOX_PROGRAM"), at("portreeve-init"), "", unix.MS_BIND, "") },
		func() error { return unix.Mount(os.Getenv("BOX_SOCKETS"), at("run/portreeve"), "", unix.MS_BIND, "") },
		func() error { return unix.Mount("proc", at("proc"), "proc", 0, "") },
		func() error { return unix.Mount("tmpfs", at("dev"), "tmpfs", 0, "mode=755") },
		func() error { return os.Mkdir(at("dev/pts"), 0o755) },
		func() error {
			return unix.Mount("devpts", at("dev/pts"), "devpts", 0, "newinstance,ptmxmode=0666,mode=0620")
		},
		func() error { return os.Symlink("pts/ptmx", at("dev/ptmx")) },
		func() error { return mknod(at("dev/null"), 1, 3) },
		func() error { return mknod(at("dev/zero"), 1, 5) },
		func() error { return mknod(at("dev/urandom"), 1, 9) },
		func() error { return unix.Chroot(root) },
		func() error { return os.Chdir("/") },
		boundCapabilities,
		func() error { return unix.Exec("/portreeve-init", []string{"/portreeve-init"}, os.Environ()) },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

func mknod(path string, major, minor uint32) error {
	return errors.Join(unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor))), os.Chmod(path, 0o666))
}

// boundCapabilities leaves what uid 0 has after its next exec: the three of the node's spec.
func boundCapabilities() error {
	for c := 0; c <= unix.CAP_LAST_CAP; c++ {
		if c == unix.CAP_SETUID || c == unix.CAP_SETGID || c == unix.CAP_KILL {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && err != unix.EINVAL {
			return err
		}
	}
	return nil
}
