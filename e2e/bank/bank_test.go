package bank

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"portreeve.dev/lab"
)

var chosen = flag.String("rows", "", "ids of the rows to play, a regular expression")

// TestBank plays the rows and prints the table.
func TestBank(t *testing.T) {
	rows, err := loadRows()
	if err != nil {
		t.Fatal(err)
	}
	choose, err := regexp.Compile(`^(?:` + *chosen + `)$`)
	if err != nil {
		t.Fatal(err)
	}
	if *chosen != "" {
		rows = slices.DeleteFunc(rows, func(r *row) bool { return !choose.MatchString(r.ID) })
	}
	if len(rows) == 0 {
		t.Fatal("no rows")
	}
	w := newWorld(t)
	verdicts := w.verdicts(rows)
	printTable(verdicts)
	for _, v := range verdicts {
		for _, problem := range v.problems {
			t.Errorf("%s", problem)
		}
	}
	if pid, err := w.p.PID("edge"); err != nil || pid != w.edge {
		t.Errorf("edge is %d, %v; it was %d", pid, err, w.edge)
	}
}

// A verdict is what a row came to.
type verdict struct {
	row      *row
	paths    []string // on which it was played
	deny     int      // cases
	allow    int
	denyBad  int
	allowBad int
	problems []string
	denied   []*play // deny cases that were played
}

// verdicts plays the rows, those of one policy after another.
func (w *world) verdicts(rows []*row) []*verdict {
	w.t.Helper()
	byPolicy := map[string][]*play{}
	var order []string
	plays := map[*row][]*play{}
	for _, r := range rows {
		mine := r.plays(w.available())
		plays[r] = mine
		if len(mine) == 0 {
			continue
		}
		for _, p := range mine {
			if byPolicy[p.kase.Under] == nil {
				order = append(order, p.kase.Under)
			}
			byPolicy[p.kase.Under] = append(byPolicy[p.kase.Under], p)
		}
	}
	slices.Sort(order)
	for _, policy := range order {
		w.playAll(policy, byPolicy[policy])
	}
	var all []*verdict
	done := runTests(rows)
	for _, r := range rows {
		v := &verdict{row: r}
		for _, p := range plays[r] {
			v.take(p)
		}
		w.saves(r, v)
		w.program(r, v)
		v.elsewhere(done)
		if r.Open != "" {
			v.problems = append(v.problems, r.ID+" is open: "+r.Open)
		}
		all = append(all, v)
	}
	return all
}

// add counts a check that is no play.
func (v *verdict) add(allow bool, name, problem string) {
	if problem != "" {
		v.problems = append(v.problems, name+": "+problem)
	}
	if allow {
		v.allow++
		v.allowBad += len1(problem)
	} else {
		v.deny++
		v.denyBad += len1(problem)
	}
}

func len1(problem string) int { return min(1, len(problem)) }

func (v *verdict) take(p *play) {
	if !slices.Contains(v.paths, p.path) {
		v.paths = append(v.paths, p.path)
	}
	failed := len(p.problems) > 0
	if failed {
		v.problems = append(v.problems, p.String()+": "+strings.Join(p.problems, "; ")+"\n\t"+asJSON(p.steps))
	}
	switch {
	case p.allow:
		v.allow++
		if failed {
			v.allowBad++
		}
	default:
		v.deny++
		v.denied = append(v.denied, p)
		if failed {
			v.denyBad++
		}
	}
}

// available are the paths that the product has.
func (w *world) available() []string { return paths }

func held(n, bad int) string {
	switch {
	case n == 0:
		return "-"
	case bad > 0:
		return fmt.Sprintf("NO (%d of %d)", bad, n)
	}
	return fmt.Sprintf("yes (%d)", n)
}

func printTable(all []*verdict) {
	out := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(out, "id\tpaths\tdeny held\ttwin held\tcause")
	for _, v := range all {
		cause := v.row.Cause
		if v.row.Open != "" {
			cause = "OPEN: " + v.row.Open
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\n", v.row.ID, strings.Join(v.paths, " "), held(v.deny, v.denyBad), held(v.allow, v.allowBad), cause)
	}
	out.Flush()
}

// without are the numbers between the first and the last that stand for nothing, or for what the tests about secrets show.
var without = regexp.MustCompile(`^B(18|26|30|40|57|69|79|8[3-9]|9[0-8]|108|111)$`)

// TestRowsAreWhole: every number is there once, and the sender understands every step.
func TestRowsAreWhole(t *testing.T) {
	rows, err := loadRows()
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, r := range rows {
		there[r.ID] = true
		plays := r.plays(paths)
		understood(t, plays)
		provedBy(t, r, plays)
	}
	for n := range 115 {
		if id := fmt.Sprintf("B%02d", n+1); there[id] == without.MatchString(id) {
			t.Errorf("row %s is there: %v", id, there[id])
		}
	}
	for n := range 6 {
		if id := fmt.Sprintf("X%02d", n+1); !there[id] {
			t.Errorf("row %s is not there", id)
		}
	}
}

// provedBy: what another wall than the policy refuses has a proof by removal, which is there.
func provedBy(t *testing.T, r *row, plays []*play) {
	t.Helper()
	root, err := lab.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	other := slices.ContainsFunc(plays, func(p *play) bool { return !p.allow && p.wall() != byPolicy && p.wall() != byGo })
	if other != (len(r.Proof) > 0) {
		t.Errorf("%s: cases that another wall refuses: %v; proofs: %v", r.ID, other, r.Proof)
	}
	for _, id := range r.Proof {
		if files, err := proofsOf(root, id); err != nil || len(files) == 0 {
			t.Errorf("%s: no proof by removal of %s: %v", r.ID, id, err)
		}
	}
}
