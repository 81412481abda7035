package cage

import (
	"errors"
	"fmt"
	"os"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// ErrNoLandlock: the kernel has no Landlock, or it isn't among its active security modules.
var ErrNoLandlock = errors.New("this kernel has no Landlock (Linux 5.13, and lsm=...,landlock)")

const (
	readFile  = landlock.AccessFSSet(ll.AccessFSReadFile)
	readDir   = landlock.AccessFSSet(ll.AccessFSReadDir)
	writeFile = landlock.AccessFSSet(ll.AccessFSWriteFile | ll.AccessFSTruncate)
	changeDir = landlock.AccessFSSet(ll.AccessFSMakeReg | ll.AccessFSMakeDir | ll.AccessFSRemoveFile | ll.AccessFSRemoveDir)
)

// landlockABI is a variable so that a test can take Landlock away.
var landlockABI = func() int {
	v, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	return v
}

// landlock restricts as much as this kernel can. Best effort as the library has it would do nothing, silently,
// where there is no Landlock: here every step is chosen by the ABI and reported.
func (c Config) landlock(r *Report) error {
	r.LandlockABI = landlockABI()
	if r.LandlockABI < 1 {
		if c.InsecureWithoutLandlock {
			return nil
		}
		return ErrNoLandlock
	}
	files := []landlock.Config{1: landlock.V1, 2: landlock.V2, 3: landlock.V3, 4: landlock.V4, 5: landlock.V5}
	set := landlock.Config{HandledAccessFS: files[min(r.LandlockABI, 5)].HandledAccessFS}
	rules, err := c.rules(set.HandledAccessFS)
	if err != nil {
		return err
	}
	r.Files = true
	if r.LandlockABI >= 4 {
		set.HandledAccessNet, r.Bind = landlock.AccessNetSet(ll.AccessNetBindTCP), true // connects stay free: ports are policy's business
		if c.Sources {
			rules = append(rules, landlock.BindTCP(0)) // an address, and a port that the kernel chooses
		}
	}
	if r.LandlockABI >= 6 {
		set.Scoped, r.Abstract = landlock.ScopedSet(ll.ScopeAbstractUnixSocket), true
		if signalsAreSound() {
			set.Scoped, r.Signals = set.Scoped|landlock.ScopedSet(ll.ScopeSignal), true
		}
	}
	if err := set.Restrict(rules...); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	return nil
}

// rules opens what the configuration names, never for execution.
func (c Config) rules(handled landlock.AccessFSSet) ([]landlock.Rule, error) {
	var rules []landlock.Rule
	for _, list := range []struct {
		paths       []string
		file, extra landlock.AccessFSSet
		only        bool // directories only
	}{
		{c.ReadOnly, readFile, readDir, false},
		{c.ReadWrite, readFile | writeFile, readDir | changeDir, true},
	} {
		for _, p := range list.paths {
			info, err := os.Stat(p)
			if err != nil {
				return nil, fmt.Errorf("landlock: %w", err)
			}
			rights := list.file
			switch {
			case info.IsDir():
				rights |= list.extra
			case list.only:
				return nil, fmt.Errorf("landlock: %s is no directory", p)
			}
			rules = append(rules, landlock.PathAccess(rights&handled, p))
		}
	}
	return rules, nil
}

// signalsAreSound asks whether the kernel lets threads of one process signal each other although each got its own
// Landlock domain (erratum 2, Linux 6.15 and backports). Without that Go could not preempt its own threads.
func signalsAreSound() bool {
	const createRulesetErrata = 1 << 1
	errata, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, createRulesetErrata)
	return e == 0 && errata&(1<<1) != 0
}
