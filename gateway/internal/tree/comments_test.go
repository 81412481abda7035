package tree

import (
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// headings stand in each library package's comment, in this order. Commands tell flags and files instead.
var headings = []string{"# Security invariants", "# Not here", "# Failure"}

func TestEachPackageHasOneComment(t *testing.T) {
	for _, p := range packages(t) {
		var files []string
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if file.Doc == nil {
				continue
			}
			files = append(files, name)
			checkComment(t, p, name, file.Doc.Text())
		}
		// A command's comment may stand in main.go, beside the flags that it tells of.
		if len(files) != 1 || files[0] != "doc.go" && (p.Name != "main" || files[0] != "main.go") {
			t.Errorf("%s has its package comment in %v, wanted in doc.go alone", p.folder(), files)
		}
	}
}

func checkComment(t *testing.T, p *pkg, name, text string) {
	t.Helper()
	first := "Package " + p.Name + " "
	if p.Name == "main" {
		first = "Command " + filepath.Base(p.Dir) + " "
	}
	if !strings.HasPrefix(text, first) && p.Name != "main" {
		t.Errorf("%s/%s: the package comment begins with %q, not %q", p.folder(), name, text[:min(len(text), 30)], first)
	}
	if p.Name == "main" {
		return
	}
	at := 0
	for _, h := range headings {
		next := strings.Index(text[at:], h+"\n")
		if next < 0 {
			t.Errorf("%s/%s: %q is missing or out of order", p.folder(), name, h)
			return
		}
		at += next
	}
}

// TestInvariantsHaveTestsAndProofs asks the tool that runs the proofs to compare them with what is promised.
func TestInvariantsHaveTestsAndProofs(t *testing.T) {
	cmd := exec.Command("go", "run", "./.build/prove", "-check")
	cmd.Dir = root(t)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestPageOfInvariantsIsUpToDate(t *testing.T) {
	made, err := gotool(root(t), "run", "./.build/prove", "-table")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root(t), "docs/invariants.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != string(made) {
		t.Error("docs/invariants.md is not what the package comments say: run make docs")
	}
}
