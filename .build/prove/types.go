package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// A checker says in a fraction of a build's time that a weakened text does not compile: code moves on, and a proof that
// was left behind should be told before the hour that running all of them takes.
type checker struct {
	root     string
	files    map[string][]string // folder, relative to the root: the Go files that are built, by name
	fset     *token.FileSet
	importer types.Importer
	parsed   map[string]*ast.File // files as they are, by path relative to the root
}

// listed is what go list says of one package.
type listed struct {
	Dir, ImportPath, Export string
	GoFiles                 []string
}

func newChecker(ctx context.Context, root string) (*checker, error) {
	list := exec.CommandContext(ctx, "go", "list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles", "./...")
	list.Dir, list.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	var said bytes.Buffer
	list.Stderr = &said
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the module's packages: %w: %s", err, firstLines(said.String(), 6))
	}
	c := &checker{root: root, files: map[string][]string{}, fset: token.NewFileSet(), parsed: map[string]*ast.File{}}
	exports := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if rel, err := filepath.Rel(root, p.Dir); err == nil && filepath.IsLocal(rel) {
			c.files[rel] = p.GoFiles
		}
	}
	c.importer = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		file, ok := exports[path]
		if !ok {
			return nil, fmt.Errorf("%s is no dependency of this module", path)
		}
		return os.Open(file)
	})
	return c, nil
}

// check returns why the proof's package does not compile in its weakened form.
func (c *checker) check(p *proof) error {
	weakened := map[string][]byte{}
	for _, e := range p.edits {
		weakened[e.path] = e.weakened
	}
	var files []*ast.File
	for _, name := range c.files[p.folder] {
		file, err := c.parse(filepath.Join(p.folder, name), weakened)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	_, err := (&types.Config{Importer: c.importer}).Check(p.folder, c.fset, files, nil)
	return err
}

func (c *checker) parse(path string, weakened map[string][]byte) (*ast.File, error) {
	if text, ok := weakened[path]; ok {
		return parser.ParseFile(c.fset, path, text, parser.SkipObjectResolution)
	}
	if c.parsed[path] == nil {
		file, err := parser.ParseFile(c.fset, filepath.Join(c.root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		c.parsed[path] = file
	}
	return c.parsed[path], nil
}

// compile returns one line for each proof whose weakened form does not compile.
func (t *tree) compile(ctx context.Context, proofs []*proof) ([]string, error) {
	c, err := newChecker(ctx, t.root)
	if err != nil {
		return nil, err
	}
	var problems []string
	for _, p := range proofs {
		if err := c.check(p); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %s does not compile when weakened: %v", p.file, p.invariant, err))
		}
	}
	return problems, ctx.Err()
}
