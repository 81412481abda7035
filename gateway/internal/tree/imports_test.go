package tree

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// may lists for each top-level folder which others it may import. What is not listed is barred.
var may = map[string][]string{
	"policies": {},
	"secrets":  {"policies"},
	"sso":      {"policies"},
	"ingress":  {"policies"},
	"egress":   {"policies", "secrets"},
	"nodes":    {"policies"},
	"gateway":  {"policies", "secrets", "sso", "ingress", "egress", "nodes"},
	"cmd":      {"gateway"},
	"lab":      {},
	"e2e":      {"lab"},
}

// why says for each folder what its wall is for. A bar without a reason would be taken down by the next one in a hurry.
var why = map[string]string{
	"policies": "it decides and does nothing: whoever imports it must be able to call it anywhere, also without the rest",
	"secrets":  "values are opened by few: a package below it would drag the rest into the circle that may see one",
	"sso":      "it wants a principal's rules only; a value is handed over by gateway",
	"ingress":  "siblings never meet: what it needs of nodes or secrets is an interface of its own, filled in by gateway",
	"egress":   "siblings never meet: a node or a login is an interface of its own, filled in by gateway",
	"nodes":    "the node runs as root and parses no hostile byte: it must not be able to reach a proxy, a login or a value",
	"gateway":  "it joins the others; commands call it, never the reverse",
	"cmd":      "commands parse flags and call gateway, so that everything can be tested without them",
	"lab":      "the judge may not share code with what it judges",
	"e2e":      "black-box tests see the product as a user does: by its binaries",
}

// exceptions are single edges that a folder's row does not cover, each with its reason.
var exceptions = map[[2]string]string{
	{"cmd/portreeve-node", "nodes/images"}:      "write-tiny packs an image for the build, without starting anything",
	{"cmd/portreeve-init", "nodes/guest"}:       "its tests speak to it as the node's side does",
	{"cmd/portreeve-init", "nodes/guest/frame"}: "process 1 of a sandbox speaks the guest protocol and nothing else of ours; gateway would not fit in it",
}

// notYet are folders with a row whose first package is still to come.
var notYet []string

func top(folder string) string {
	first, _, _ := strings.Cut(folder, "/")
	return first
}

func TestImportsGoDownOnly(t *testing.T) {
	used := map[[2]string]bool{}
	for _, p := range packages(t) {
		from := top(p.folder())
		row, known := may[from]
		if !known {
			t.Errorf("%s lies in %s, which has no row: top-level folders are fixed", p.ImportPath, from)
			continue
		}
		all := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		for _, imported := range all {
			if !ours(imported) {
				continue
			}
			to := folderOf(imported)
			if top(to) == from || slices.Contains(row, top(to)) {
				continue
			}
			edge := [2]string{p.folder(), to}
			if _, ok := exceptions[edge]; ok {
				used[edge] = true
				continue
			}
			t.Errorf("%s imports %s: %s", p.folder(), to, why[from])
		}
	}
	for edge, reason := range exceptions {
		if !used[edge] {
			t.Errorf("the exception %s -> %s (%s) is not used: remove it", edge[0], edge[1], reason)
		}
	}
}

func TestBarredFoldersExist(t *testing.T) {
	exist := map[string]bool{}
	for _, p := range packages(t) {
		exist[top(p.folder())] = true
	}
	for folder := range may {
		if why[folder] == "" {
			t.Errorf("%s has a row but no reason", folder)
		}
		if coming := slices.Contains(notYet, folder); exist[folder] == coming {
			t.Errorf("folder %s exists: %v, said to be still to come: %v", folder, exist[folder], coming)
		}
	}
}

func TestCommandsImportEachOtherNever(t *testing.T) {
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			if ours(imported) && top(folderOf(imported)) == "cmd" {
				t.Errorf("%s imports the command %s", p.folder(), folderOf(imported))
			}
		}
	}
}

// barred lists what a binary must not be built from: the node is root and touches neither store nor clients,
// process 1 of a sandbox is small enough to be read whole.
var barred = []struct {
	command, dependency, reason string
}{
	{"cmd/portreeve-node", "database/sql", "the node is root: it reads typed messages, never the store"},
	{"cmd/portreeve-node", "modernc.org/sqlite", "the node is root: no database"},
	{"cmd/portreeve-node", "github.com/jackc/pgx/v5", "the node is root: no database"},
	{"cmd/portreeve-node", "github.com/danielgtaylor/huma/v2", "the node is root: no HTTP API"},
	{"cmd/portreeve-node", "net/http", "the node is root: nothing in it parses HTTP"},
	{"cmd/portreeve-node", "github.com/miekg/dns", "the node is root: nothing in it parses DNS"},
	{"cmd/portreeve-node", "testing", "test helpers are no part of a root process"},
	{"cmd/portreeve-edge", "github.com/jackc/pgx/v5", "the edge reads hostile bytes: it has its spool, never the store"},
	{"cmd/portreeve-edge", "github.com/danielgtaylor/huma/v2", "the edge reads hostile bytes: it serves no API"},
	{"cmd/portreeve-edge", "testing", "test helpers are no part of a shipped process"},
	{"cmd/portreeve", "testing", "test helpers are no part of a shipped process"},
	{"cmd/portreeve-init", "net/http", "process 1 of a sandbox is small enough to be read whole"},
}

func TestCommandsLinkOnlyTheirOwn(t *testing.T) {
	links := map[string][]string{}
	for _, b := range barred {
		if links[b.command] == nil {
			links[b.command] = deps(t, "./"+b.command)
		}
		for _, dep := range links[b.command] {
			if dep == b.dependency || strings.HasPrefix(dep, b.dependency+"/") && strings.Contains(b.dependency, ".") {
				t.Errorf("%s is built from %s: %s", b.command, dep, b.reason)
			}
		}
	}
}

func TestInitIsStandardLibraryOnly(t *testing.T) {
	for _, dep := range deps(t, "./cmd/portreeve-init") {
		if strings.Contains(top(dep), ".") && !ours(dep) {
			t.Errorf("process 1 of a sandbox is built from %s", dep)
		}
	}
}

func TestInitIsShort(t *testing.T) {
	const most = 1500
	lines := 0
	for _, s := range sources(t, ".go") {
		if strings.HasPrefix(s.path, "cmd/portreeve-init/") && !strings.HasSuffix(s.path, "_test.go") {
			lines += strings.Count(s.data, "\n")
		}
	}
	if lines == 0 || lines > most {
		t.Errorf("process 1 of a sandbox has %d lines, at most %d are wanted", lines, most)
	}
}

func TestBlackBoxTestsSeeTheProductOnlyFromOutside(t *testing.T) {
	for _, dep := range deps(t, "-test", "./e2e/...") {
		if dep, _, _ = strings.Cut(dep, " "); ours(dep) && top(folderOf(dep)) != "lab" && !strings.HasPrefix(folderOf(dep), "e2e") {
			t.Errorf("e2e is built from %s: %s", dep, why["e2e"])
		}
	}
}

func TestMainsAreThin(t *testing.T) {
	const most = 60
	commands := 0
	for _, p := range packages(t) {
		if p.Name != "main" || top(p.folder()) != "cmd" {
			continue
		}
		commands++
		data, err := os.ReadFile(filepath.Join(p.Dir, "main.go"))
		if err != nil {
			t.Errorf("%s: main stands in main.go: %v", p.folder(), err)
			continue
		}
		if lines := strings.Count(string(data), "\n"); lines >= most {
			t.Errorf("%s/main.go has %d lines, fewer than %d are wanted", p.folder(), lines, most)
		}
	}
	if commands == 0 {
		t.Error("no command found")
	}
}
