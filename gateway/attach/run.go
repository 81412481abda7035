package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// InnerCommand is the word by which the program calls itself inside. Whoever uses this package makes it call Inner.
const InnerCommand = "attach-inner"

// Port is where the command finds the way out, on the loopback addresses of its namespace. Nothing else is there to hold it.
const Port = 3128

// Config of a Run.
type Config struct {
	Program string   // that calls Inner; default this one
	Socket  string   // of the sandbox
	Argv    []string // the command
	Env     []string // its environment, without what Variables adds
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
}

// maxConnections bounds what the command may hold open at once; the edge has a bound of its own.
const maxConnections = 1024

// Run runs the command and returns its exit code: 128 and the signal's number if a signal ended it. The end of ctx ends the
// command.
func Run(ctx context.Context, c Config) (code int, err error) {
	if len(c.Argv) == 0 || c.Socket == "" {
		return 0, errors.New("attaching: a command and a socket are needed")
	}
	if c.Program == "" {
		c.Program = "/proc/self/exe"
	}
	type result struct {
		code int
		err  error
	}
	done := make(chan result, 1)
	go func() {
		// The kernel ends the command with the thread that started it (Pdeathsig), so this one stays.
		runtime.LockOSThread()
		code, err := run(ctx, c)
		done <- result{code, err}
	}()
	r := <-done
	return r.code, r.err
}

func run(ctx context.Context, c Config) (int, error) {
	cmd, listeners, err := start(c)
	if err != nil {
		return 0, err
	}
	relays := &relay{socket: c.Socket, slots: make(chan struct{}, maxConnections)}
	for _, l := range listeners {
		relays.running.Go(func() { relays.serve(l) })
	}
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
		relays.end()
	}()
	stop := forwardSignals(cmd.Process)
	defer stop()
	killed := context.AfterFunc(ctx, func() { cmd.Process.Kill() })
	defer killed()
	return exitCode(cmd.Wait())
}

// exitCode reads how a command ended, as shells do.
func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	if err == nil || !errors.As(err, &exit) {
		return 0, err
	}
	if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal()), nil
	}
	return exit.ExitCode(), nil
}

// start starts the command in namespaces of its own, and returns the listeners that stand in there.
func start(c Config) (*exec.Cmd, []net.Listener, error) {
	cmd, listeners, err := startIn(c, true)
	if err != nil && os.Geteuid() == 0 && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EINVAL)) {
		return startIn(c, false) // no user namespaces here: root's dropped rights alone keep the command in
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
		err = fmt.Errorf("%w: this machine lets your user make no namespaces; run it as root", err)
	}
	return cmd, listeners, err
}

func startIn(c Config, users bool) (*exec.Cmd, []net.Listener, error) {
	mine, theirs, err := pair()
	if err != nil {
		return nil, nil, err
	}
	defer mine.Close()
	defer theirs.Close()
	cmd := exec.Command(c.Program, append([]string{InnerCommand}, c.Argv...)...)
	cmd.Args[0] = os.Args[0]
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Env, c.Stdin, c.Stdout, c.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if users {
		if err := mapUsers(cmd.SysProcAttr); err != nil {
			return nil, nil, err
		}
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("starting in a namespace without a network: %w", err)
	}
	theirs.Close()
	listeners, err := receive(mine)
	if err != nil {
		cmd.Process.Kill()
		_, werr := exitCode(cmd.Wait())
		return nil, nil, errors.Join(fmt.Errorf("preparing the namespace: %w", err), werr)
	}
	return cmd, listeners, nil
}

// pair is the way by which Inner hands over its listeners.
func pair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs := os.NewFile(uintptr(fds[1]), "attach")
	f := os.NewFile(uintptr(fds[0]), "attach")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}

// prepareLimit is how long Inner may take until its listeners are here.
const prepareLimit = 10 * time.Second

// receive takes the listeners, and lets Inner go on.
func receive(conn *net.UnixConn) (listeners []net.Listener, err error) {
	_ = conn.SetDeadline(time.Now().Add(prepareLimit))
	buf, oob := make([]byte, 512), make([]byte, unix.CmsgSpace(4*4))
	n, oobn, _, _, err := conn.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return nil, err
		}
		for _, fd := range fds {
			f := os.NewFile(uintptr(fd), "listener")
			l, err := net.FileListener(f)
			f.Close()
			if err != nil {
				return nil, err
			}
			listeners = append(listeners, l)
		}
	}
	if len(listeners) == 0 {
		return nil, errors.New(strings.TrimSpace(string(buf[:n]))) // what went wrong inside
	}
	_, err = conn.Write([]byte("go"))
	return listeners, err
}

// forwarded are the signals that are meant for the command.
var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT}

// forwardSignals passes signals on. What the terminal sends, it sends to the command as well.
func forwardSignals(p *os.Process) (stop func()) {
	ch := make(chan os.Signal, 16)
	signal.Notify(ch, forwarded...)
	terminal := term.IsTerminal(int(os.Stdin.Fd()))
	var wg sync.WaitGroup
	wg.Go(func() {
		for s := range ch {
			if terminal && slices.Contains([]os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH}, s) {
				continue
			}
			_ = p.Signal(s)
		}
	})
	return func() {
		signal.Stop(ch)
		close(ch)
		wg.Wait()
	}
}
