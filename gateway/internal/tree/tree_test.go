package tree

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const module = "portreeve.dev"

// root returns the folder of go.mod.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the working folder")
		}
		dir = parent
	}
}

// A pkg is what go list says of a package of ours; the test variants are folded into it.
type pkg struct {
	ImportPath   string
	Dir          string
	Name         string
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
}

// folder is the package's place relative to the root, "." for the root itself.
func (p *pkg) folder() string { return folderOf(p.ImportPath) }

func folderOf(importPath string) string {
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}

func ours(importPath string) bool {
	return importPath == module || strings.HasPrefix(importPath, module+"/")
}

var listed struct {
	once sync.Once
	pkgs []*pkg
	err  error
}

// packages lists every package of the module.
func packages(t *testing.T) []*pkg {
	t.Helper()
	dir := root(t)
	listed.once.Do(func() {
		out, err := gotool(dir, "list", "-e", "-json=ImportPath,Dir,Name,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports,Deps", "./...")
		if err != nil {
			listed.err = err
			return
		}
		dec := json.NewDecoder(bytes.NewReader(out))
		for {
			p := new(pkg)
			if err := dec.Decode(p); errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				listed.err = err
				return
			}
			listed.pkgs = append(listed.pkgs, p)
		}
	})
	if listed.err != nil {
		t.Fatal(listed.err)
	}
	return listed.pkgs
}

// deps lists what the given packages are built from, with their tests if args say -test.
func deps(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := gotool(root(t), append([]string{"list", "-deps"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

func gotool(dir string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.New("go " + strings.Join(args, " ") + ": " + err.Error() + "\n" + stderr.String())
	}
	return out, nil
}

// A source is one file of the repository.
type source struct {
	path string // relative to the root
	data string
}

// sources returns the files of the repository whose name ends in one of the endings: not what is built or hidden,
// but the hidden folders that hold the build and CI scripts.
func sources(t *testing.T, endings ...string) []source {
	t.Helper()
	dir := root(t)
	var found []source
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if d.IsDir() {
			hidden := strings.HasPrefix(d.Name(), ".") && rel != "." && rel != ".build" && rel != ".ci"
			if hidden || rel == "bin" || rel == "dist" || d.Name() == "node_modules" {
				return filepath.SkipDir
			}
			return nil
		}
		for _, ending := range endings {
			if d.Type().IsRegular() && strings.HasSuffix(rel, ending) {
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				found = append(found, source{rel, string(data)})
				break
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatalf("no file ends in %q", endings)
	}
	return found
}
