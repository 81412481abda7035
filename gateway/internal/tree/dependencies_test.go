package tree

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var dependencyLine = regexp.MustCompile("(?m)^- `([^`]+)`: [^\n]{20,}\\.$")

// TestEachDependencyHasItsSentence compares go.mod's direct requirements with docs/dependencies.md, both ways.
func TestEachDependencyHasItsSentence(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "docs/dependencies.md"))
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]bool{}
	for _, m := range dependencyLine.FindAllStringSubmatch(string(text), -1) {
		if explained[m[1]] {
			t.Errorf("%s is explained twice", m[1])
		}
		explained[m[1]] = true
	}
	required := map[string]bool{}
	for _, folder := range []string{".", "nodes/runsc/gvisor"} {
		for _, path := range direct(t, folder) {
			required[path] = true
			if !explained[path] {
				t.Errorf("%s is required by %s/go.mod but has no sentence in docs/dependencies.md", path, folder)
			}
		}
	}
	for path := range explained {
		if !required[path] {
			t.Errorf("%s has a sentence in docs/dependencies.md but no go.mod requires it directly", path)
		}
	}
}

func direct(t *testing.T, folder string) []string {
	t.Helper()
	out, err := gotool(filepath.Join(root(t), folder), "mod", "edit", "-json")
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Replace []struct{ Old struct{ Path string } }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Replace {
		t.Errorf("%s/go.mod replaces %s: what is built is what is required", folder, r.Old.Path)
	}
	var paths []string
	for _, r := range mod.Require {
		if !r.Indirect {
			paths = append(paths, r.Path)
		}
	}
	return paths
}

// TestEachDirectDependencyIsImported keeps go.mod from naming what nobody uses any more.
func TestEachDirectDependencyIsImported(t *testing.T) {
	imported := map[string]bool{}
	for _, p := range packages(t) {
		for _, list := range [][]string{p.Imports, p.TestImports, p.XTestImports} {
			for _, path := range list {
				imported[path] = true
			}
		}
	}
	for _, s := range sources(t, ".go") { // the tools under .build are no part of ./...
		if top(s.path) == ".build" {
			for _, m := range regexp.MustCompile(`(?m)^\s+"([a-z][^"\s]*\.[^"\s]*/[^"\s]*)"$`).FindAllStringSubmatch(s.data, -1) {
				imported[m[1]] = true
			}
		}
	}
	for _, module := range direct(t, ".") {
		used := imported[module]
		for path := range imported {
			used = used || len(path) > len(module) && path[:len(module)+1] == module+"/"
		}
		if !used {
			t.Errorf("go.mod requires %s, which nothing imports", module)
		}
	}
}
