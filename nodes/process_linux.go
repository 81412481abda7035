package nodes

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// pidStart returns when a living process started, in clock ticks since boot; with the id it names the process for as long as
// the machine runs. A zombie is not living.
func pidStart(pid int) (uint64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, fmt.Errorf("process %d: %w", pid, err)
	}
	// The name, in brackets, may hold anything.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return 0, fmt.Errorf("process %d: its stat is %q", pid, b)
	}
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 20 {
		return 0, fmt.Errorf("process %d: its stat is %q", pid, b)
	}
	if f[0] == "Z" || f[0] == "X" {
		return 0, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
	}
	return strconv.ParseUint(f[19], 10, 64)
}

func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// A watch waits for the end of a process that is not our child.
type watch struct{ pidfd *os.File }

// watchProcess watches the process with that id and start time.
func watchProcess(pid int, start uint64) (*watch, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watching process %d: %w", pid, err)
	}
	w := &watch{os.NewFile(uintptr(fd), "pidfd")}
	// Asked after the descriptor is there: it can't be another process's now.
	if got, err := pidStart(pid); err != nil || got != start {
		w.stop()
		return nil, fmt.Errorf("watching process %d: it is another one now (%w)", pid, errors.Join(err, os.ErrProcessDone))
	}
	return w, nil
}

// wait returns true when the process has ended, false after stop.
func (w *watch) wait() bool {
	c, err := w.pidfd.SyscallConn()
	if err != nil {
		return false
	}
	ended := false
	err = c.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		ended = err == nil && n > 0
		return ended
	})
	return err == nil && ended
}

func (w *watch) stop() { _ = w.pidfd.Close() }

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
