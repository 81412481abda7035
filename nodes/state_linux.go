package nodes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A StateError says why a state directory can't be used, and what to do.
type StateError struct{ Dir, Problem, Hint string }

func (e *StateError) Error() string {
	return fmt.Sprintf("state directory %q %s; %s", e.Dir, e.Problem, e.Hint)
}

// CheckState makes the state directory if it isn't there and refuses one in which sandboxes can't run. runsc itself only
// says that a pipe was closed.
func CheckState(dir string) error {
	const elsewhere = "use one on a disk, such as /var/lib/portreeve"
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
		return &StateError{dir, "is not an absolute, clean path", elsewhere}
	}
	// Judged before anything is made: by the deepest directory that is there.
	there := dir
	for there != "/" {
		if _, err := os.Lstat(there); err == nil {
			break
		}
		there = filepath.Dir(there)
	}
	real, err := filepath.EvalSymlinks(there)
	if err != nil {
		return &StateError{dir, "can't be resolved: " + err.Error(), elsewhere}
	}
	for _, volatile := range []string{"/run", "/dev"} {
		if real == volatile || strings.HasPrefix(real, volatile+"/") {
			return &StateError{dir, "is below " + volatile + ", which is memory and gone after a restart", elsewhere}
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(real, &st); err != nil {
		return &StateError{dir, "can't be looked at: " + err.Error(), elsewhere}
	}
	if st.Flags&unix.ST_NOEXEC != 0 {
		return &StateError{dir, "is on a file system mounted noexec, so no program of a sandbox would run", elsewhere}
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		return &StateError{dir, "is on a read-only file system", elsewhere}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return &StateError{dir, "can't be made: " + err.Error(), elsewhere}
	}
	if real, err = filepath.EvalSymlinks(dir); err != nil {
		return &StateError{dir, "can't be resolved: " + err.Error(), elsewhere}
	}
	// The processes beside the node run under ids of their own and have directories below it.
	for p := real; ; p = filepath.Dir(p) {
		fi, err := os.Stat(p)
		if err != nil {
			return &StateError{dir, "can't be looked at: " + err.Error(), elsewhere}
		}
		if fi.Mode()&0o001 == 0 {
			return &StateError{dir, "can't be entered by other users, for " + p + " forbids it", "run chmod o+x " + p + ", or " + elsewhere}
		}
		if p == "/" {
			return nil
		}
	}
}
