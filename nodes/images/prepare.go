package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// The user of sandboxes, as nodes/runsc and the init program have it.
const (
	userName = "sandbox"
	userID   = 1001
)

// ErrMountPoint says that an image has something else where the node mounts.
var ErrMountPoint = errors.New("is not a plain directory or file")

// prepare makes all places that the node mounts over, as the root is read-only later, and the user.
func prepare(root *os.Root) error {
	for _, d := range []struct {
		name string
		mode fs.FileMode
		uid  int
	}{
		{"proc", 0o755, 0}, {"sys", 0o755, 0}, {"dev", 0o755, 0}, {"tmp", 0o777 | fs.ModeSticky, 0}, {"etc", 0o755, 0},
		{"etc/portreeve", 0o755, 0}, {"run", 0o755, 0}, {"run/portreeve", 0o700, 0}, {".portreeve", 0o755, 0}, {"workspace", 0o755, userID},
	} {
		if err := mountDir(root, d.name, d.mode, d.uid); err != nil {
			return err
		}
	}
	for _, f := range []string{"etc/resolv.conf", "etc/hosts"} {
		if err := mountFile(root, f); err != nil {
			return err
		}
	}
	id := fmt.Sprint(userID)
	passwd := userName + ":x:" + id + ":" + id + "::/workspace:/bin/sh\n"
	if err := appendAccount(root, "etc/passwd", "root:x:0:0:root:/root:/bin/sh\n", id, passwd); err != nil {
		return err
	}
	return appendAccount(root, "etc/group", "root:x:0:\n", id, userName+":x:"+id+":\n")
}

func mountDir(root *os.Root, name string, mode fs.FileMode, uid int) error {
	st, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err := root.Mkdir(name, 0o755); err != nil {
			return err
		}
	} else if err != nil {
		return err
	} else if !st.IsDir() {
		return fmt.Errorf("/%s %w", name, ErrMountPoint)
	}
	if err := root.Lchown(name, uid, uid); err != nil {
		return err
	}
	return root.Chmod(name, mode)
}

// mountFile puts an empty file where one will be mounted. Distributions have links there (to systemd's), which are replaced.
func mountFile(root *os.Root, name string) error {
	st, err := root.Lstat(name)
	switch {
	case err == nil && st.Mode().IsRegular():
		return nil
	case err == nil && st.Mode()&fs.ModeSymlink != 0:
		if err := root.Remove(name); err != nil {
			return err
		}
	case err == nil:
		return fmt.Errorf("/%s %w", name, ErrMountPoint)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return root.WriteFile(name, nil, 0o644)
}

// appendAccount adds a line to passwd or group unless the number has one.
func appendAccount(root *os.Root, name, fresh, id, line string) error {
	st, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return root.WriteFile(name, []byte(fresh+line), 0o644)
	case err != nil:
		return err
	case !st.Mode().IsRegular() || st.Size() > 1<<20:
		return fmt.Errorf("/%s %w", name, ErrMountPoint)
	}
	b, err := root.ReadFile(name)
	if err != nil {
		return err
	}
	text := string(b)
	for l := range strings.Lines(text) {
		if f := strings.Split(strings.TrimSpace(l), ":"); len(f) > 2 && f[2] == id {
			return nil
		}
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	// A new file: the old one may be a hard link to any other of the image.
	if err := root.Remove(name); err != nil {
		return err
	}
	return root.WriteFile(name, []byte(text+line), 0o644)
}
