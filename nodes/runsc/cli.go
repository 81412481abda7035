package runsc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Config says where runsc is and where its things are.
type Config struct {
	Binary   string        // the program, absolute
	Root     string        // its state directory, absolute, one for each instance
	Upper    string        // directory for the upper layers of workspaces, absolute, on a disk
	Debug    string        // directory for debug logs; empty for none. They hold what a sandbox does.
	Timeout  time.Duration // for one command; default one minute
	Platform string        // default "systrap"
}

// CLI drives the runsc program, a process for each command. It is safe for concurrent use.
type CLI struct{ c Config }

// New checks the configuration and makes the two directories. A missing program is an error that wraps fs.ErrNotExist.
func New(c Config) (*CLI, error) {
	if c.Timeout == 0 {
		c.Timeout = time.Minute
	}
	if c.Platform == "" {
		c.Platform = "systrap"
	}
	for _, p := range []string{c.Binary, c.Root, c.Upper} {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p {
			return nil, fmt.Errorf("runsc: path %q is not absolute and clean", p)
		}
	}
	// The overlay flag's parts are divided by these.
	if strings.ContainsAny(c.Upper, ",:=") {
		return nil, fmt.Errorf("runsc: directory %q has a character that the overlay flag can't carry", c.Upper)
	}
	if st, err := os.Stat(c.Binary); err != nil {
		return nil, fmt.Errorf("runsc: %w", err)
	} else if !st.Mode().IsRegular() || st.Mode()&0o111 == 0 {
		return nil, fmt.Errorf("runsc: %q is not a program", c.Binary)
	}
	cli := &CLI{c: c}
	return cli, cli.dirs()
}

func (c *CLI) dirs() error {
	for _, dir := range []string{c.c.Root, c.c.Upper} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("runsc: %w", err)
		}
	}
	return nil
}

// Create names what to create.
type Create struct {
	ID             string
	Bundle         string // directory with config.json, see WriteBundle
	WorkspaceBytes int64  // size of the writable layer of /workspace
}

// Create makes a container that does not run yet and returns the process id of its sandbox.
func (c *CLI) Create(ctx context.Context, r Create) (int, error) {
	// The container inherits standard input, output and error of this command, so they are /dev/null, and what went
	// wrong is read from a log.
	logFile, pidFile := filepath.Join(r.Bundle, "create.log"), filepath.Join(r.Bundle, "pid")
	defer os.Remove(logFile)
	defer os.Remove(pidFile)
	argv, err := c.createArgv(r, logFile, pidFile)
	if err != nil {
		return 0, err
	}
	if err := c.dirs(); err != nil { // Clean removes them
		return 0, err
	}
	if _, err := c.run(ctx, "create", argv, true); err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			e.Message = lastMessage(logFile)
		}
		return 0, err
	}
	b, err := os.ReadFile(pidFile)
	if err != nil {
		return 0, fmt.Errorf("runsc create: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("runsc create: process id %q", b)
	}
	return pid, nil
}

// Start runs process 1 of a created container. The network is read at this moment: address and route must be there.
func (c *CLI) Start(ctx context.Context, id string) error { return c.simple(ctx, id, "start") }

// Pause stops every task of the sandbox; its network stack goes on answering connects.
func (c *CLI) Pause(ctx context.Context, id string) error { return c.simple(ctx, id, "pause") }

// Resume undoes Pause.
func (c *CLI) Resume(ctx context.Context, id string) error { return c.simple(ctx, id, "resume") }

// Delete ends and removes a container, in whatever state. One that isn't there is no error.
func (c *CLI) Delete(ctx context.Context, id string) error {
	argv, err := c.argv(id, "delete", "--force", id)
	if err != nil {
		return err
	}
	if _, err = c.run(ctx, "delete", argv, false); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// A State is what runsc knows of a container.
type State struct {
	ID     string `json:"id"`
	Status string `json:"status"` // creating, created, running, paused, stopped
	PID    int    `json:"pid"`
	Bundle string `json:"bundle"`
}

// State returns the state of one container, or ErrNotFound.
func (c *CLI) State(ctx context.Context, id string) (State, error) {
	var s State
	argv, err := c.argv(id, "state", id)
	if err != nil {
		return s, err
	}
	out, err := c.run(ctx, "state", argv, false)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(out, &s); err != nil {
		return s, fmt.Errorf("runsc state: %w", err)
	}
	return s, nil
}

// List returns all containers below Root.
func (c *CLI) List(ctx context.Context) ([]State, error) {
	if _, err := os.Stat(c.c.Root); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	out, err := c.run(ctx, "list", append(c.flags(), "list", "--format=json"), false)
	if err != nil {
		return nil, err
	}
	var all []State
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, fmt.Errorf("runsc list: %w", err)
	}
	return all, nil
}

// Clean removes what runsc keeps for all containers of this Root, and the directories. Call it when no container is left.
// The namespace without any link that runsc mounts there stays otherwise until the machine restarts.
func (c *CLI) Clean(ctx context.Context) error {
	all, err := c.List(ctx)
	if err != nil {
		return err
	}
	if len(all) > 0 {
		return fmt.Errorf("runsc: %d containers are left", len(all))
	}
	err = unix.Unmount(filepath.Join(c.c.Root, "null-netns"), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("runsc: unmounting its namespace: %w", err)
	}
	return errors.Join(os.RemoveAll(c.c.Root), os.RemoveAll(c.c.Upper))
}

// Sweep removes upper files that a create which was cut off had not unlinked yet. Call it while no create runs.
func (c *CLI) Sweep() error {
	entries, err := os.ReadDir(c.c.Upper)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		err = errors.Join(err, os.Remove(filepath.Join(c.c.Upper, e.Name())))
	}
	return err
}

func (c *CLI) simple(ctx context.Context, id, command string, more ...string) error {
	argv, err := c.argv(id, command, append([]string{id}, more...)...)
	if err != nil {
		return err
	}
	_, err = c.run(ctx, command, argv, false)
	return err
}

// run runs one command. With detached, all three standard files are /dev/null.
func (c *CLI) run(ctx context.Context, command string, argv []string, detached bool) ([]byte, error) {
	// Descriptors that we were started with, such as the supervisor's socket, would pass through to the sandbox.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fmt.Errorf("runsc %s: closing descriptors: %w", command, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.c.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.c.Binary, argv...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.WaitDelay = 2 * time.Second
	// A session of its own: a key pressed at the terminal of a node is not for its sandboxes.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdout, stderr := &capped{max: 4 << 20}, &capped{max: 16 << 10}
	if !detached {
		cmd.Stdout, cmd.Stderr = stdout, stderr
	}
	err := cmd.Run()
	if err == nil {
		return stdout.Bytes(), nil
	}
	e := &Error{Command: command, Message: oneLine(stderr.String()), cause: err}
	if ctx.Err() != nil {
		e.cause = ctx.Err()
	}
	return nil, e
}

// capped keeps the first max bytes.
type capped struct {
	bytes.Buffer
	max int
}

func (b *capped) Write(p []byte) (int, error) {
	if room := b.max - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
