package nodes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// listenInit makes the socket init.sock that the init of a sandbox dials, in its control directory, and returns the listener.
// One that is there is replaced, in one step: its listener may live on with the inward that has it, or have died with it.
func listenInit(dir string) (_ *os.File, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("listening for init: %w", err)
	}
	defer d.Close()
	const made = ".init.sock" // renamed once it listens
	if err := os.Remove(filepath.Join(dir, made)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listening for init: %w", err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("listening for init: %w", err)
	}
	f := os.NewFile(uintptr(fd), "init.sock")
	// By the directory's descriptor, as a socket's name has at most 107 bytes and a state directory may lie deep.
	name := "/proc/self/fd/" + strconv.Itoa(int(d.Fd())) + "/" + made
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		return nil, errors.Join(fmt.Errorf("listening for init: %w", err), f.Close())
	}
	if err := unix.Listen(fd, 16); err != nil {
		return nil, errors.Join(fmt.Errorf("listening for init: %w", err), f.Close())
	}
	if err := os.Rename(filepath.Join(dir, made), filepath.Join(dir, "init.sock")); err != nil {
		return nil, errors.Join(fmt.Errorf("listening for init: %w", err), f.Close())
	}
	return f, nil
}

// Listen makes the socket of a sandbox's init anew and returns its listener: whoever had the last one is gone. Init dials
// again by itself.
func (n *Node) Listen(sandbox string) (*os.File, error) {
	b, err := n.lock(sandbox)
	if err != nil {
		return nil, err
	}
	defer b.mu.Unlock()
	if b.rec.State != Running && b.rec.State != Paused {
		return nil, fmt.Errorf("listening for the init of %q: %w", sandbox, ErrNotReady)
	}
	return listenInit(n.dirs.control(b.rec.RunscID))
}
