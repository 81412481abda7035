package spawn

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"portreeve.dev/nodes/netns/thread"
)

// Rights are what a child has.
type Rights struct {
	UID, GID uint32
	Keep     []uintptr // capabilities; a child that isn't root has them as ambient ones too
	Netns    *os.File  // where it lives; nil is the parent's own
}

// Start starts cmd with no more than those rights. The environment is the caller's to set: none is safest.
//
// All of it belongs to the thread that forks, and goes to the child from there, so the thread is thrown away.
func Start(cmd *exec.Cmd, r Rights) error {
	attr := &syscall.SysProcAttr{}
	if cmd.SysProcAttr != nil {
		*attr = *cmd.SysProcAttr
	}
	attr.Setsid = true
	attr.Credential = &syscall.Credential{Uid: r.UID, Gid: r.GID, Groups: []uint32{}}
	attr.AmbientCaps = nil
	if r.UID != 0 {
		attr.AmbientCaps = r.Keep
	}
	cmd.SysProcAttr = attr
	err := thread.Do(func() error {
		if r.Netns != nil {
			if err := unix.Setns(int(r.Netns.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("joining its network namespace: %w", err)
			}
		}
		if err := shed(r.Keep); err != nil {
			return err
		}
		return cmd.Start()
	})
	if err != nil {
		return fmt.Errorf("starting %q as uid %d: %w", cmd.Path, r.UID, err)
	}
	return nil
}

// shed takes from the calling thread what its children could otherwise have.
func shed(keep []uintptr) error {
	// Go sets close-on-exec on all that it opens; this is for what we inherited ourselves. ExtraFiles lose the flag
	// when the child puts them into place.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("closing inherited descriptors: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clearing ambient capabilities: %w", err)
	}
	for c := uintptr(0); ; c++ {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err == unix.EINVAL {
			break // past the last capability of this kernel
		}
		if err != nil {
			return fmt.Errorf("reading the bounding set: %w", err)
		}
		if has == 0 || slices.Contains(keep, c) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("dropping capability %d: %w", c, err)
		}
	}
	if err := inheritNothing(); err != nil {
		return fmt.Errorf("clearing inheritable capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}
	return nil
}

// inheritNothing empties the inheritable set, which execve of root would add to the permitted one.
func inheritNothing() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return err
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	return unix.Capset(&hdr, &data[0])
}
