package nodes

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
)

// A program is one of ours that every sandbox sees.
type program struct {
	name    string
	content []byte
}

// installPrograms puts init, and the probe if there is one, into a directory that is named by what they are: sandboxes that run
// keep theirs while new ones get the newer.
func installPrograms(guest, init, probe string) (dir string, err error) {
	var programs []program
	var all []byte
	for _, p := range []struct{ name, path string }{{"init", init}, {"probe", probe}} {
		if p.path == "" {
			continue
		}
		content, err := os.ReadFile(p.path)
		if err != nil {
			return "", err
		}
		programs = append(programs, program{p.name, content})
		all = append(all, content...)
	}
	dir = filepath.Join(guest, hash(all))
	if installed(dir, programs) {
		return dir, nil
	}
	return dir, install(guest, dir, programs)
}

func installed(dir string, programs []program) bool {
	for _, p := range programs {
		if have, err := os.ReadFile(filepath.Join(dir, p.name)); err != nil || !bytes.Equal(have, p.content) {
			return false
		}
	}
	return true
}

// install makes the directory whole or not at all.
func install(guest, dir string, programs []program) error {
	tmp, err := os.MkdirTemp(guest, ".partial-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	for _, p := range programs {
		if err := writeProgram(filepath.Join(tmp, p.name), p.content); err != nil {
			return err
		}
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil { // one whose content isn't what its name says
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	return syncDir(guest)
}

func writeProgram(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Chmod(0o755), f.Sync(), f.Close())
}
