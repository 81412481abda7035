package nodes_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"portreeve.dev/nodes"
)

func TestCheckState(t *testing.T) {
	base := stateDir(t)
	noexec := filepath.Join(base, "noexec")
	if err := os.Mkdir(noexec, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", noexec, "tmpfs", unix.MS_NOEXEC, "mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(noexec, 0); err != nil {
			t.Error(err)
		}
	})
	closed := filepath.Join(base, "closed")
	if err := os.MkdirAll(closed+"/state", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/run", filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	for dir, problem := range map[string]string{
		base + "/state":             "",
		base + "/deep/er/state":     "",
		noexec + "/state":           "noexec",
		closed + "/state":           "forbids it",
		"/run/prn-state":            "below /run",
		base + "/link/prn-state":    "below /run",
		"/dev/shm/prn-state":        "below /dev",
		"relative/state":            "not an absolute",
		base + "/../" + "unclean/x": "not an absolute",
	} {
		err := nodes.CheckState(dir)
		if problem == "" {
			if err != nil {
				t.Errorf("%s: %v", dir, err)
			}
			continue
		}
		e, ok := errors.AsType[*nodes.StateError](err)
		if !ok || !strings.Contains(err.Error(), problem) || e.Hint == "" || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q and a hint", dir, err, problem)
		}
	}
	for _, dir := range []string{"/run/prn-state", "/dev/shm/prn-state", noexec + "/state"} {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s was made although it was refused", dir)
		}
	}
	if err := os.Chmod(closed, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(closed+"/state", 0o711); err != nil {
		t.Fatal(err)
	}
	if err := nodes.CheckState(closed + "/state"); err != nil {
		t.Errorf("opened: %v", err)
	}
}
