package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// An invariant is a promise of a package, as its doc.go words it.
type invariant struct {
	id    string
	pkg   string   // folder, relative to the root
	text  string   // the promise, without its tests
	tests []string // "./folder TestName" or "TestName" of the own package
}

// A tree is what the repository says: promises, proofs, tests that exist, and promises excused from proof.
type tree struct {
	root       string
	invariants []invariant
	proofs     []*proof
	tests      map[string]map[string]bool // folder, name
	excused    map[string]string          // invariant id, reason
	problems   []string                   // found while reading
}

const excuseFile = ".build/prove/unproved.txt"

func readTree(root string) (*tree, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	t := &tree{root: abs, tests: map[string]map[string]bool{}, excused: map[string]string{}}
	if err := filepath.WalkDir(abs, t.visit); err != nil {
		return nil, err
	}
	if err := t.readExcuses(); err != nil {
		return nil, err
	}
	sort.Slice(t.proofs, func(i, j int) bool { return before(t.proofs[i], t.proofs[j]) })
	return t, nil
}

func (t *tree) visit(path string, d fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(t.root, path)
	if err != nil {
		return err
	}
	name := d.Name()
	if d.IsDir() {
		if rel != "." && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "bin" || name == "dist") {
			return filepath.SkipDir
		}
		return nil
	}
	folder := filepath.Dir(rel)
	switch {
	case strings.HasSuffix(rel, ".txtar") && strings.HasSuffix(folder, "testdata/prove"):
		p, err := readProof(t.root, rel)
		if err != nil {
			t.problems = append(t.problems, err.Error())
			return nil
		}
		t.proofs = append(t.proofs, p)
	case strings.Contains(rel, "testdata/"):
	case name == "doc.go":
		return t.readDoc(rel, folder)
	case strings.HasSuffix(name, "_test.go"):
		return t.readTests(rel, folder)
	}
	return nil
}

var (
	promiseForm = regexp.MustCompile(`^\s*-\s*([A-Z]{2,4}-[0-9]+):\s`)
	// Either "TestName", "./folder TestName" (which goes for those after it as well), or "TestName in folder".
	testNames = regexp.MustCompile(`(?:(\./[A-Za-z0-9_./-]+)\s+)?\b((?:Test|Fuzz)[A-Z][A-Za-z0-9_]*)(?: in (?:\./)?([a-z][A-Za-z0-9_/-]*))?`)
)

// readDoc takes the promises out of the section "Security invariants" of a package comment.
func (t *tree) readDoc(rel, folder string) error {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(t.root, rel), nil, parser.PackageClauseOnly|parser.ParseComments)
	if err != nil {
		return err
	}
	_, section, found := strings.Cut(file.Doc.Text(), "# Security invariants\n")
	if !found {
		return nil
	}
	section, _, _ = strings.Cut(section, "\n# ")
	var item string
	end := func() {
		m := promiseForm.FindStringSubmatch(item)
		if m == nil {
			return
		}
		inv := invariant{id: m[1], pkg: folder, text: strings.TrimSpace(item[len(m[0]):])}
		// The tests stand in the last parentheses of the promise.
		if open := strings.LastIndex(item, "("); open >= 0 {
			if said := strings.LastIndex(inv.text, "("); said >= 0 && strings.Contains(inv.text[said:], "Test") {
				inv.text = strings.TrimSpace(inv.text[:said])
			}
			where := ""
			for _, n := range testNames.FindAllStringSubmatch(item[open:], -1) {
				if n[1] != "" {
					where = filepath.Clean(n[1])
				}
				pkg := where
				if pkg == "" {
					pkg = folder
				}
				if n[3] != "" {
					pkg = filepath.Clean(n[3])
				}
				inv.tests = append(inv.tests, pkg+" "+n[2])
			}
		}
		t.invariants = append(t.invariants, inv)
	}
	for _, line := range strings.Split(section, "\n") {
		if promiseForm.MatchString(line) {
			end()
			item = line
		} else {
			item += " " + strings.TrimSpace(line)
		}
	}
	end()
	return nil
}

func (t *tree) readTests(rel, folder string) error {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(t.root, rel), nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || !(strings.HasPrefix(fn.Name.Name, "Test") || strings.HasPrefix(fn.Name.Name, "Fuzz")) {
			continue
		}
		if t.tests[folder] == nil {
			t.tests[folder] = map[string]bool{}
		}
		t.tests[folder][fn.Name.Name] = true
	}
	return nil
}

// readExcuses reads lines "ID: reason" of the promises that are tested but have no proof by removal.
func (t *tree) readExcuses() error {
	data, err := os.ReadFile(filepath.Join(t.root, excuseFile))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, reason, ok := strings.Cut(line, ":")
		if reason = strings.TrimSpace(reason); !ok || !idForm.MatchString(id) || reason == "" {
			return fmt.Errorf("%s: %q is not like \"EG-1: reason\"", excuseFile, line)
		}
		t.excused[id] = reason
	}
	return nil
}

// compare returns what promises and proofs lack of each other, one line each.
func (t *tree) compare() []string {
	problems := slices.Clone(t.problems)
	say := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	promised, proved := map[string]invariant{}, map[string]bool{}
	for _, p := range t.proofs {
		proved[p.invariant] = true
	}
	for _, inv := range t.invariants {
		if other, twice := promised[inv.id]; twice {
			say("%s is promised by %s and by %s: ids are given once", inv.id, other.pkg, inv.pkg)
		}
		promised[inv.id] = inv
		if len(inv.tests) == 0 {
			say("%s in %s names no test", inv.id, inv.pkg)
		}
		for _, test := range inv.tests {
			folder, name, _ := strings.Cut(test, " ")
			if !t.tests[folder][name] {
				say("%s in %s names %s, which %s does not have", inv.id, inv.pkg, name, folder)
			}
		}
		switch _, excused := t.excused[inv.id]; {
		case !proved[inv.id] && !excused:
			say("%s in %s has no testdata/prove/%s.txtar and no reason in %s", inv.id, inv.pkg, inv.id, excuseFile)
		case proved[inv.id] && excused:
			say("%s has a proof, so its line in %s must go", inv.id, excuseFile)
		}
	}
	for _, p := range t.proofs {
		inv, ok := promised[p.invariant]
		switch {
		case !ok:
			say("%s proves %s, which no doc.go promises", p.file, p.invariant)
		case inv.pkg != p.folder:
			say("%s lies in %s, but %s is promised by %s", p.file, p.folder, p.invariant, inv.pkg)
		case !slices.Contains(inv.tests, p.pkg+" "+p.test):
			say("%s names ./%s %s, which the promise of %s does not", p.file, p.pkg, p.test, p.invariant)
		}
		if !t.tests[p.pkg][p.test] {
			say("%s names %s, which %s does not have", p.file, p.test, p.pkg)
		}
	}
	for id := range t.excused {
		if _, ok := promised[id]; !ok {
			say("%s excuses %s, which no doc.go promises", excuseFile, id)
		}
	}
	sort.Strings(problems)
	return problems
}

func (t *tree) chosen(match *regexp.Regexp) []*proof {
	var chosen []*proof
	for _, p := range t.proofs {
		if match.MatchString(p.invariant) {
			chosen = append(chosen, p)
		}
	}
	return chosen
}

// partOf keeps every nth proof from the one at i on, of a text "i/n".
func partOf(all []*proof, part string) ([]*proof, error) {
	var i, n int
	if _, err := fmt.Sscanf(part, "%d/%d", &i, &n); err != nil || i < 0 || i >= n {
		return nil, fmt.Errorf("-part %q is not I/N with I from 0 to N-1", part)
	}
	var kept []*proof
	for ; i < len(all); i += n {
		kept = append(kept, all[i])
	}
	return kept, nil
}

// before orders proofs by invariant: EG-2 stands before EG-10.
func before(a, b *proof) bool {
	pa, na, _ := strings.Cut(a.invariant, "-")
	pb, nb, _ := strings.Cut(b.invariant, "-")
	if pa != pb {
		return pa < pb
	}
	if len(na) != len(nb) {
		return len(na) < len(nb)
	}
	if na != nb {
		return na < nb
	}
	return a.file < b.file
}
