package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
)

// doors are the sockets through which attached sandboxes come in. They lie in a directory that only root gets into; the edge,
// which can make none in its cage, is handed each one and holds the only copy.
type doors struct {
	dir string

	mu  sync.Mutex
	all map[string]bool // by sandbox
}

func (d *doors) path(sandbox string) string { return filepath.Join(d.dir, sandbox+".sock") }

// sandboxID is what a sandbox may be called in a path.
var sandboxID = regexp.MustCompile(`^sbx_[0-9a-f-]{36}$`)

// listen makes the socket of a sandbox anew. What is there under its name is of an earlier edge or node.
func (d *doors) listen(sandbox string) (*os.File, error) {
	if !sandboxID.MatchString(sandbox) {
		return nil, fmt.Errorf("making the socket of %q: not the id of a sandbox", sandbox)
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of sockets: %w", err)
	}
	path := d.path(sandbox)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("making the socket of %q: %w", sandbox, err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, err
	}
	return l.File()
}

func (d *doors) add(sandbox string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = make(map[string]bool)
	}
	d.all[sandbox] = true
}

func (d *doors) has(sandbox string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.all[sandbox]
}

func (d *doors) list() (all []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for sandbox := range d.all {
		all = append(all, sandbox)
	}
	return all
}

// drop takes a socket away. Nobody connects to it any more; the edge closes its end when the policy no longer has the sandbox.
func (d *doors) drop(sandbox string) error {
	d.mu.Lock()
	delete(d.all, sandbox)
	d.mu.Unlock()
	if !sandboxID.MatchString(sandbox) {
		return nil
	}
	if err := os.Remove(d.path(sandbox)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// close takes all of them away.
func (d *doors) close() error { return os.RemoveAll(d.dir) }

// registerDoors is what control may ask for attached sandboxes.
func (a *Agent) registerDoors() {
	link.Handle(a.control.Mux, role.NodeDoorOpen, func(ctx context.Context, r role.SandboxRef) (role.DoorSocket, error) {
		if a.doors.has(r.Sandbox) {
			return role.DoorSocket{Path: a.doors.path(r.Sandbox)}, nil
		}
		conn, err := a.edge.Wait(ctx)
		if err != nil {
			return role.DoorSocket{}, err
		}
		if err := a.handDoor(ctx, conn, r.Sandbox); err != nil {
			return role.DoorSocket{}, err
		}
		a.doors.add(r.Sandbox)
		return role.DoorSocket{Path: a.doors.path(r.Sandbox)}, nil
	})
	link.Handle(a.control.Mux, role.NodeDoorClose, func(_ context.Context, r role.SandboxRef) (struct{}, error) {
		return struct{}{}, a.doors.drop(r.Sandbox)
	})
}

// handDoor makes a socket and gives it to the edge.
func (a *Agent) handDoor(ctx context.Context, conn *link.Conn, sandbox string) error {
	ctx, cancel := context.WithTimeout(ctx, tellLimit)
	defer cancel()
	f, err := a.doors.listen(sandbox)
	if err != nil {
		return err
	}
	defer f.Close()
	return conn.Call(ctx, role.EdgeDoor, role.SandboxRef{Sandbox: sandbox}, nil, f)
}

// handDoors gives a new edge a socket for each attached sandbox.
func (a *Agent) handDoors(ctx context.Context, conn *link.Conn) {
	for _, sandbox := range a.doors.list() {
		a.untilDone(ctx, "the socket of an attached sandbox could not be handed on", func() error { return a.handDoor(ctx, conn, sandbox) })
	}
}
