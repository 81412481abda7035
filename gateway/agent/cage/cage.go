package cage

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Role chooses the list of system calls. The zero value is none.
type Role uint8

const (
	Edge   Role = 1
	Inward Role = 2
)

func (r Role) String() string {
	switch r {
	case Edge:
		return "edge"
	case Inward:
		return "inward"
	}
	return "none"
}

// Config says what stays reachable.
type Config struct {
	Role      Role
	ReadOnly  []string // files and directories; each must exist
	ReadWrite []string // directories; each must exist

	// Sources lets sockets be given an address of the machine before they connect; a port of their choice they never get.
	Sources bool

	// InsecureWithoutLandlock goes on without Landlock on a kernel that has none. The seccomp filter still holds,
	// but every file that the uid may open is reachable.
	InsecureWithoutLandlock bool
}

// Report tells what holds. It is meant for the log and for "doctor".
type Report struct {
	Role        string `json:"role"`
	LandlockABI int    `json:"landlock_abi"` // 0: none
	Files       bool   `json:"files"`        // file access is restricted
	Bind        bool   `json:"bind"`         // no TCP port can be chosen (ABI 4)
	Abstract    bool   `json:"abstract"`     // no abstract unix socket of others (ABI 6)
	Signals     bool   `json:"signals"`      // no signal to others (ABI 6 and a kernel without the fault of Go's threads)
	Seccomp     bool   `json:"seccomp"`      // the filter is loaded, on all threads
	// Checked names what SelfCheck tried and saw refused.
	Checked []string `json:"checked,omitempty"`
}

// Enter locks the whole process in. Call it once, before any hostile byte is read. After an error the process may
// be half caged and must end.
func Enter(c Config) (*Report, error) {
	r := &Report{Role: c.Role.String()}
	filter, err := c.Role.filter()
	if err != nil {
		return nil, fmt.Errorf("entering the cage: %w", err)
	}
	if err := unprivileged(); err != nil {
		return nil, fmt.Errorf("entering the cage: %w", err)
	}
	if err := c.landlock(r); err != nil {
		return nil, fmt.Errorf("entering the cage: %w", err)
	}
	// Per process, and execve had set it again: nobody of this uid traces us or reads our memory.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("entering the cage: clearing dumpable: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return nil, fmt.Errorf("entering the cage: forbidding core files: %w", err)
	}
	if err := load(filter); err != nil {
		return nil, fmt.Errorf("entering the cage: loading the filter: %w", err)
	}
	r.Seccomp = true
	return r, nil
}

// unprivileged: inside, rights could no longer be dropped, and Landlock is no match for a capability.
func unprivileged() error {
	if unix.Getuid() == 0 || unix.Geteuid() == 0 {
		return errors.New("uid 0 cannot be caged")
	}
	caps, err := capabilities()
	if err != nil {
		return err
	}
	if caps != 0 {
		return fmt.Errorf("capabilities %#x are left", caps)
	}
	return nil
}

// capabilities returns the union of the permitted and effective sets of this thread.
func capabilities() (uint64, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return 0, fmt.Errorf("reading capabilities: %w", err)
	}
	return uint64(data[0].Permitted|data[0].Effective) | uint64(data[1].Permitted|data[1].Effective)<<32, nil
}
