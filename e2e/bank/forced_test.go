package bank

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"portreeve.dev/lab"
)

const evaluateHead = "func (s *Snapshot) Evaluate(r *Request) (v Verdict) {"

// Both take the place of Evaluate; what it would have said stays known for how traffic is treated.
const (
	alwaysAllow = `
// Evaluate allows, whatever was judged.
func (s *Snapshot) Evaluate(r *Request) Verdict {
	v := s.judged(r)
	v.Action, v.Reason, v.Protocols, v.Named, v.Foreign = Allow, ReasonAllowed, AllProtocols, true, ForeignAllow
	return v
}
`
	alwaysDeny = `
// Evaluate denies, whatever was judged.
func (s *Snapshot) Evaluate(r *Request) Verdict {
	_ = s.judged(r)
	return Denied(ReasonNoRule)
}
`
)

// forced plays the rows against an edge with another Evaluate, and without the guards of the proofs.
func forced(t *testing.T, name, evaluate string, proofs []string, rows []*row) []*verdict {
	t.Helper()
	t.Setenv("PORTREEVE_BIN", forcedBin(t, name, evaluate, proofs))
	return slices.DeleteFunc(newWorld(t).verdicts(rows), func(v *verdict) bool { return v.deny == 0 })
}

// proofsOf are the files of the proofs by removal of an invariant.
func proofsOf(root, id string) ([]string, error) {
	var found []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != root && (strings.HasPrefix(e.Name(), ".") || e.Name() == "node_modules" || e.Name() == "bin"):
			return fs.SkipDir
		}
		base, is := strings.CutSuffix(e.Name(), ".txtar")
		if is && filepath.Base(filepath.Dir(path)) == "prove" && (base == id || strings.HasPrefix(base, id+"-")) {
			found = append(found, path)
		}
		return nil
	})
	return found, err
}

// kept are guards that stay: those of other processes than edge, and that of the floor's names, by which a record is known to be
// whole (decisions).
var kept = []string{"/egress/kernel/", "/gateway/", "/nodes/", "/ER-8.txtar"}

// weakened are the proofs that the rows name, but for those of kept guards.
func weakened(t *testing.T, rows []*row) []string {
	t.Helper()
	root, err := lab.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, r := range rows {
		for _, id := range r.Proof {
			files, err := proofsOf(root, id)
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				stays := slices.ContainsFunc(kept, func(part string) bool { return strings.Contains(file, part) })
				if !stays && !slices.Contains(all, file) {
					all = append(all, file)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

// A patch is changed sources, by their files.
type patch map[string][]byte

func (p patch) replace(file, now, then string) error {
	if p[file] == nil {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		p[file] = data
	}
	if bytes.Count(p[file], []byte(now)) != 1 {
		return fmt.Errorf("%s does not have %q once", file, now)
	}
	p[file] = bytes.Replace(p[file], []byte(now), []byte(then), 1)
	return nil
}

// weaken takes a proof's guard away. A text that another proof has changed already is left as that one made it.
func (p patch) weaken(proof string) error {
	data, err := os.ReadFile(proof)
	if err != nil {
		return err
	}
	parts := txtar.Parse(data).Files
	folder := filepath.Dir(filepath.Dir(filepath.Dir(proof)))
	for i := 0; i+1 < len(parts); i += 2 {
		file := filepath.Join(folder, strings.TrimSuffix(parts[i].Name, ": now"))
		before := p[file] != nil
		if err := p.replace(file, strings.Trim(string(parts[i].Data), "\n"), strings.Trim(string(parts[i+1].Data), "\n")); err != nil && !before {
			return fmt.Errorf("%s: %w", proof, err)
		}
	}
	return nil
}

// forcedBin is the folder of binaries with that edge in it.
func forcedBin(t *testing.T, name, evaluate string, proofs []string) string {
	t.Helper()
	root, err := lab.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	changed := patch{}
	file := filepath.Join(root, "policies", "evaluate.go")
	if err := changed.replace(file, evaluateHead, strings.Replace(evaluateHead, "Evaluate", "judged", 1)); err != nil {
		t.Fatal(err)
	}
	for _, proof := range proofs {
		if err := changed.weaken(proof); err != nil {
			t.Fatal(err)
		}
	}
	changed[file] = append(changed[file], evaluate...)

	dir, err := os.MkdirTemp("/var/tmp", "bank-"+name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	from, err := lab.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", from, bin).CombinedOutput(); err != nil {
		t.Fatalf("copying %s: %v: %s", from, err, out)
	}
	overlay, err := changed.overlay(dir)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-trimpath", "-overlay", overlay, "-o", filepath.Join(bin, "portreeve-edge"), "./cmd/portreeve-edge")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building that edge: %v: %s", err, out)
	}
	return bin
}

// overlay writes the sources to a folder, and the file that go build reads about them.
func (p patch) overlay(dir string) (string, error) {
	replace := map[string]string{}
	for i, file := range slices.Sorted(maps.Keys(p)) {
		replace[file] = filepath.Join(dir, fmt.Sprintf("%d.go", i))
		if err := os.WriteFile(replace[file], p[file], 0o644); err != nil {
			return "", err
		}
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, data, 0o644)
}
