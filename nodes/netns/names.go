package netns

import (
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"portreeve.dev/nodes/netns/thread"
)

// Dir is where named namespaces are mounted, as iproute2 does it, so that "ip netns" shows ours.
const Dir = "/run/netns"

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

// Path is where the namespace of that name is mounted.
func Path(name string) string { return filepath.Join(Dir, name) }

// Do runs f inside the namespace ns, on a thread that is thrown away. A socket that f makes stays in that namespace.
// A goroutine that f starts does not run inside.
func Do(ns int, f func() error) error {
	return thread.Do(func() error {
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("joining network namespace: %w", err)
		}
		return f()
	})
}

// List returns the names that begin with prefix, sorted. Names whose namespace is gone are among them.
func List(prefix string) ([]string, error) {
	entries, err := os.ReadDir(Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing network namespaces: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	sort.Strings(names)
	return names, nil
}

// Remove takes the name away. The namespace itself ends with its last process and socket. Removing a name that
// isn't there is no error.
func Remove(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("removing network namespace %q: not a name", name)
	}
	if err := unix.Unmount(Path(name), unix.MNT_DETACH); err != nil && err != unix.EINVAL && err != unix.ENOENT {
		return fmt.Errorf("unmounting network namespace %q: %w", name, err)
	}
	if err := os.Remove(Path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing network namespace %q: %w", name, err)
	}
	return nil
}

// open returns the mounted namespace, or an error that is fs.ErrNotExist when there is none, also when only the
// file is left that it was mounted on.
func open(name string) (*os.File, error) {
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("opening network namespace %q: not a name", name)
	}
	f, err := os.OpenFile(Path(name), os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening network namespace %q: %w", name, err)
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil || st.Type != unix.NSFS_MAGIC {
		_ = f.Close()
		return nil, fmt.Errorf("opening network namespace %q: nothing is mounted: %w", name, errors.Join(err, fs.ErrNotExist))
	}
	return f, nil
}

// create makes a namespace, lets prepare furnish it from inside, and mounts it under its name only then, so that a
// name never stands for half a namespace.
func create(name string, prepare func() error) (*os.File, error) {
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("creating network namespace %q: not a name", name)
	}
	if err := prepareDir(); err != nil {
		return nil, err
	}
	err := thread.Do(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unsharing: %w", err)
		}
		if err := prepare(); err != nil {
			return err
		}
		f, err := os.OpenFile(Path(name), os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0)
		if err != nil {
			return err
		}
		_ = f.Close()
		if err := unix.Mount("/proc/thread-self/ns/net", Path(name), "none", unix.MS_BIND, ""); err != nil {
			_ = os.Remove(Path(name))
			return fmt.Errorf("mounting: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("creating network namespace %q: %w", name, err)
	}
	return open(name)
}

// prepareDir makes Dir a shared mount, as "ip netns add" does: namespaces that are mounted or unmounted later show
// up in mount namespaces that were copied before. Inside "ip netns exec" it is a slave of the host's and becomes
// shared as well: what we mount stays below us, what the host removes goes here too.
func prepareDir() error {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", Dir, err)
	}
	err := unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if err == unix.EINVAL { // not a mount point yet
		if err = unix.Mount(Dir, Dir, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, "")
		}
	}
	if err != nil {
		return fmt.Errorf("sharing %s: %w", Dir, err)
	}
	return nil
}

// interfaceName is 13 characters (the kernel allows 15) with 55 random bits. A name is used once: budgets and
// counters of the firewall are kept by name and outlive the link by a minute.
func interfaceName() string {
	var b [7]byte
	_, _ = rand.Read(b[:])
	return "pr" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))[:11]
}
