package cage

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// SelfCheck tries from inside what must be refused and can be tried without dying, and reads what the kernel says
// about this process. It names each thing that is not as it must be, and enters the others in Checked.
func (r *Report) SelfCheck() error {
	var errs []error
	note := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
			return
		}
		r.Checked = append(r.Checked, what)
	}
	if r.Files || r.Role == Inward.String() {
		note("reading /etc/passwd is refused", refusedOpen("/etc/passwd", os.O_RDONLY))
		note("writing to /tmp is refused", refusedOpen("/tmp/portreeve-cage-check", os.O_WRONLY|os.O_CREATE|os.O_EXCL))
	}
	if r.Bind {
		note("listening on TCP is refused", refusedListen())
	}
	caps, err := capabilities()
	if err == nil && caps != 0 {
		err = fmt.Errorf("%#x are left", caps)
	}
	note("no capabilities", err)
	note("no_new_privs is set", prctlReads(unix.PR_GET_NO_NEW_PRIVS, 1))
	note("a seccomp filter is loaded", prctlReads(unix.PR_GET_SECCOMP, 2))
	note("not dumpable", prctlReads(unix.PR_GET_DUMPABLE, 0))
	if len(errs) > 0 {
		return fmt.Errorf("checking the cage: %w", errors.Join(errs...))
	}
	return nil
}

func refusedOpen(path string, flags int) error {
	f, err := os.OpenFile(path, flags, 0o600)
	if err == nil {
		_ = f.Close()
		if flags&os.O_CREATE != 0 {
			_ = os.Remove(path)
		}
		return errors.New("it was opened")
	}
	if !errors.Is(err, unix.EACCES) {
		return fmt.Errorf("failed for another reason: %w", err)
	}
	return nil
}

// refusedListen never comes as far as listen, which would kill. Landlock refuses before the kernel looks whether the port is free; a
// port of the kernel's choice may be allowed.
func refusedListen() error {
	l, err := net.Listen("tcp4", "127.0.0.1:30000")
	if err == nil {
		_ = l.Close()
		return errors.New("it listens")
	}
	if !errors.Is(err, unix.EACCES) {
		return fmt.Errorf("failed for another reason: %w", err)
	}
	return nil
}

func prctlReads(option int, want int) error {
	got, err := unix.PrctlRetInt(option, 0, 0, 0, 0)
	if err == nil && got != want {
		err = fmt.Errorf("it is %d, not %d", got, want)
	}
	return err
}
