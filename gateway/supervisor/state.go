package supervisor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"portreeve.dev/nodes"
)

// Programs that the processes are started from, copied to where each uid can reach them.
var programs = []string{"portreeve", "portreeve-node", "portreeve-edge", "portreeve-init", "portreeve-probe", "runsc"}

// TinyImage is the rootfs tar of the image tiny, beside the programs.
const TinyImage = "tiny.tar"

// prepareState makes the state directory with one owner for each part.
func prepareState(dir string) error {
	if err := nodes.CheckState(dir); err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		uid  uint32
		mode os.FileMode
	}{{"", 0, 0o755}, {"bin", 0, 0o755}, {"node", 0, 0o700}, {"log", 0, 0o700}, {"edge", EdgeUID, 0o700}, {"control", ControlUID, 0o700}} {
		path := filepath.Join(dir, part.name)
		if err := os.MkdirAll(path, part.mode); err != nil {
			return fmt.Errorf("making the state directory: %w", err)
		}
		if err := errors.Join(os.Chown(path, int(part.uid), int(part.uid)), os.Chmod(path, part.mode)); err != nil {
			return fmt.Errorf("making the state directory: %w", err)
		}
	}
	return nil
}

// installPrograms copies the companion programs into the state directory, each only when it differs.
func installPrograms(from, stateDir string) error {
	for _, name := range append(programs[:len(programs):len(programs)], TinyImage) {
		source := filepath.Join(from, name)
		if err := copyProgram(source, filepath.Join(stateDir, "bin", name)); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s is missing: run make build, or unpack the whole distribution", source)
			}
			return fmt.Errorf("installing %s: %w", name, err)
		}
	}
	return nil
}

func copyProgram(source, target string) error {
	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
	if same(in, target) {
		return nil
	}
	out, err := os.CreateTemp(filepath.Dir(target), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Chmod(0o755), out.Close()); err != nil {
		return err
	}
	return os.Rename(out.Name(), target)
}

// same says that the source has not changed since it was copied. Its time of change counts, which unpacking and installing
// set; the time of modification is whatever a package says, the same for two releases if it likes.
func same(source *os.File, target string) bool {
	var a, b unix.Stat_t
	if unix.Fstat(int(source.Fd()), &a) != nil || unix.Stat(target, &b) != nil {
		return false
	}
	changed, copied := time.Unix(a.Ctim.Unix()), time.Unix(b.Mtim.Unix())
	return a.Size == b.Size && copied.After(changed)
}
