package bank

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"portreeve.dev/lab"
)

var wholeSensitivity = flag.Bool("sensitivity", false, "play all rows for TestSensitivity, not the few that show that it works")

// few are rows whose attack only the policy holds, and one that another wall holds too.
var few = []string{"B01", "B23", "B42", "B110"}

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

// TestSensitivity: an edge that always allows fails nearly every deny check, and one that always denies every twin.
func TestSensitivity(t *testing.T) {
	rows, err := loadRows()
	if err != nil {
		t.Fatal(err)
	}
	if !*wholeSensitivity {
		rows = slices.DeleteFunc(rows, func(r *row) bool { return !slices.Contains(few, r.ID) })
	}
	// What is refused when it is saved, or shown by tests elsewhere, never asks this edge.
	played := slices.DeleteFunc(slices.Clone(rows), func(r *row) bool { return len(r.Deny)+len(r.Allow) == 0 })
	for _, r := range played {
		r.Tests, r.Program, r.DenySave, r.AllowSave, r.Open = nil, "", nil, nil, ""
	}
	t.Run("forced to allow", func(t *testing.T) {
		all := forced(t, "allow", alwaysAllow, played)
		failed, through := 0, 0
		var held, plainOnly []string
		for _, v := range all {
			wall := v.row.Wall
			if wall == "" {
				wall = "?"
			}
			switch {
			case v.denyBad == 0:
				held = append(held, v.row.ID+" ("+wall+")")
			case v.through == 0:
				failed++
				plainOnly = append(plainOnly, v.row.ID+" ("+wall+")")
			default:
				failed++
				through++
			}
		}
		fmt.Printf("forced to allow: the deny check of %d of %d rows fails (%d %%)\n", failed, len(all), 100*failed/len(all))
		fmt.Printf("  of them the attack itself gets through in %d; in %d only its plain form does, and another wall holds the attack: %s\n", through, len(plainOnly), strings.Join(plainOnly, ", "))
		fmt.Printf("  held without the policy: %s\n", strings.Join(held, ", "))
		if failed*10 < len(all)*9 {
			t.Errorf("only %d of %d deny checks notice a policy that always allows", failed, len(all))
		}
		for _, id := range slices.Concat(held, plainOnly) {
			if strings.HasSuffix(id, "(?)") {
				t.Errorf("%s holds without the policy, and does not say by which wall", id)
			}
		}
	})
	t.Run("forced to deny", func(t *testing.T) {
		all := forced(t, "deny", alwaysDeny, played)
		twins, failed := 0, 0
		var blind []string
		for _, v := range all {
			twins += v.allow
			failed += v.allowBad
			if v.allowBad < v.allow {
				blind = append(blind, v.row.ID)
			}
		}
		fmt.Printf("forced to deny: %d of %d allowed twins fail\n", failed, twins)
		if len(blind) > 0 {
			t.Errorf("twins hold under a policy that always denies: %v", blind)
		}
	})
}

// forced plays the rows against an edge with another Evaluate, those that have something to play on the paths that there are.
func forced(t *testing.T, name, evaluate string, rows []*row) []*verdict {
	t.Helper()
	t.Setenv("PORTREEVE_BIN", forcedBin(t, name, evaluate))
	return slices.DeleteFunc(newWorld(t).verdicts(rows), func(v *verdict) bool { return v.deny == 0 })
}

// forcedBin is the folder of binaries with that edge in it.
func forcedBin(t *testing.T, name, evaluate string) string {
	t.Helper()
	root, err := lab.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "policies", "evaluate.go")
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(source), evaluateHead) != 1 {
		t.Fatalf("%s has no %q", file, evaluateHead)
	}
	changed := strings.Replace(string(source), evaluateHead, strings.Replace(evaluateHead, "Evaluate", "judged", 1), 1) + evaluate
	dir, err := os.MkdirTemp("/var/tmp", "bank-"+name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	bin := filepath.Join(dir, "bin")
	overlay := filepath.Join(dir, "overlay.json")
	other := filepath.Join(dir, "evaluate.go")
	replace, _ := json.Marshal(map[string]any{"Replace": map[string]string{file: other}})
	from, err := lab.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, do := range []func() error{
		func() error { return os.WriteFile(other, []byte(changed), 0o644) },
		func() error { return os.WriteFile(overlay, replace, 0o644) },
		func() error { return exec.Command("cp", "-a", from, bin).Run() },
		func() error { return os.Chmod(dir, 0o755) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "build", "-trimpath", "-overlay", overlay, "-o", filepath.Join(bin, "portreeve-edge"), "./cmd/portreeve-edge")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building that edge: %v: %s", err, out)
	}
	return bin
}
