package bank

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
)

var wholeSensitivity = flag.Bool("sensitivity", false, "play all rows for TestSensitivity, not the few that show that it works")

// few are rows whose attack only the policy refuses, and one that another wall refuses.
var few = []string{"B01", "B23", "B42", "B110"}

// TestSensitivity plays the rows against edges that were made worse, and counts which checks notice. What a case is after,
// asked for plainly, is counted apart, as any edge that allows everything fails it.
func TestSensitivity(t *testing.T) {
	rows, err := loadRows()
	if err != nil {
		t.Fatal(err)
	}
	rows = slices.DeleteFunc(rows, func(r *row) bool {
		return len(r.Deny)+len(r.Allow) == 0 || !*wholeSensitivity && !slices.Contains(few, r.ID)
	})
	// What is refused when it is saved, or shown by programs and tests elsewhere, never asks this edge.
	for _, r := range rows {
		r.Tests, r.Program, r.DenySave, r.AllowSave, r.Open = nil, "", nil, nil, ""
	}
	var allowing, wallless *tally
	t.Run("forced to allow", func(t *testing.T) {
		allowing = count(forced(t, "allow", alwaysAllow, nil, rows))
		a := allowing.of(byPolicy)
		fmt.Printf("With Evaluate forced to allow:\n")
		fmt.Printf("  attacks that only the policy refuses: %d of %d deny checks fail (%d %%), in %d of %d rows; seen from outside in %d\n", a.failed, a.all, percent(a.failed, a.all), len(a.failedRows), len(a.rows), a.outside)
		fmt.Printf("    those that hold: %s\n", strings.Join(a.held, "; "))
		fmt.Printf("  what they are after, asked for plainly (any edge that allows fails these): %d of %d\n", allowing.plain.failed, allowing.plain.all)
		o := allowing.others()
		fmt.Printf("  attacks that another wall refuses: %d of %d still hold; those that fail: %s\n", o.all-o.failed, o.all, strings.Join(o.names, "; "))
		if a.failed*10 < a.all*9 {
			t.Errorf("only %d of %d attacks that the policy alone refuses notice that it allows", a.failed, a.all)
		}
	})
	t.Run("without the other walls", func(t *testing.T) {
		weak := weakened(t, rows)
		all := forced(t, "open", alwaysAllow, weak, rows)
		wallless = count(all)
		o := wallless.others()
		fmt.Printf("With Evaluate forced to allow, and the guards taken away that %d proofs by removal take away:\n", len(weak))
		fmt.Printf("  attacks that another wall refuses: %d of %d deny checks fail (%d %%), in %d of %d rows; seen from outside in %d\n", o.failed, o.all, percent(o.failed, o.all), len(o.failedRows), len(o.rows), o.outside)
		twins, bad := 0, 0
		for _, v := range all {
			twins, bad = twins+v.allow, bad+v.allowBad
		}
		fmt.Printf("  that edge still serves: %d of %d allowed twins hold\n", twins-bad, twins)
		printWalls(all, allowing, wallless)
	})
	t.Run("forced to deny", func(t *testing.T) {
		twins, failed := 0, 0
		var blind []string
		for _, v := range forced(t, "deny", alwaysDeny, nil, rows) {
			twins += v.allow
			failed += v.allowBad
			if v.allowBad < v.allow {
				blind = append(blind, v.row.ID)
			}
		}
		fmt.Printf("With Evaluate forced to deny: %d of %d allowed twins fail\n", failed, twins)
		if len(blind) > 0 {
			t.Errorf("twins hold under a policy that always denies: %v", blind)
		}
	})
}

// A share is what became of the deny cases with one wall.
type share struct {
	all, failed, outside int
	rows, failedRows     map[string]bool
	held, names          []string // of those that hold, and that fail
}

func (s *share) add(p *play) {
	if s.rows == nil {
		s.rows, s.failedRows = map[string]bool{}, map[string]bool{}
	}
	s.all++
	s.rows[p.row.ID] = true
	switch {
	case len(p.problems) == 0:
		s.held = append(s.held, p.String())
		return
	case p.outside:
		s.outside++
	}
	s.failed++
	s.names = append(s.names, p.String())
	s.failedRows[p.row.ID] = true
}

// A tally is a share for each wall, and one for each row's cases that have another wall than the policy.
type tally struct {
	walls map[string]*share
	other map[string]*share // by row
	plain share
}

func count(all []*verdict) *tally {
	c := &tally{walls: map[string]*share{}, other: map[string]*share{}}
	at := func(m map[string]*share, key string) *share {
		if m[key] == nil {
			m[key] = new(share)
		}
		return m[key]
	}
	for _, v := range all {
		for _, p := range v.denied {
			if p.plain {
				c.plain.add(p)
				continue
			}
			at(c.walls, p.wall()).add(p)
			if p.wall() != byPolicy {
				at(c.other, p.row.ID).add(p)
			}
		}
	}
	return c
}

func (c *tally) of(wall string) *share {
	if s := c.walls[wall]; s != nil {
		return s
	}
	return new(share)
}

// others is the share of all walls but the policy.
func (c *tally) others() *share {
	sum := &share{rows: map[string]bool{}, failedRows: map[string]bool{}}
	for _, id := range slices.Sorted(maps.Keys(c.other)) {
		s := c.other[id]
		sum.all, sum.failed, sum.outside = sum.all+s.all, sum.failed+s.failed, sum.outside+s.outside
		sum.rows[id] = true
		sum.names = append(sum.names, s.names...)
		if s.failed > 0 {
			sum.failedRows[id] = true
		}
	}
	return sum
}

// printWalls prints for each row with another wall what was measured, and the proofs by removal that show it in the small.
func printWalls(all []*verdict, allowing, wallless *tally) {
	out := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(out, "row\twall\tattacks\tfail with Evaluate forced to allow\tand without the walls\tproofs by removal (make prove RUN=ID)")
	for _, v := range all {
		open := wallless.other[v.row.ID]
		if open == nil {
			continue
		}
		failed := "not played"
		if allowing != nil && allowing.other[v.row.ID] != nil {
			failed = fmt.Sprint(allowing.other[v.row.ID].failed)
		}
		var walls []string
		for _, p := range v.denied {
			if wall := p.wall(); wall != byPolicy && !slices.Contains(walls, wall) {
				walls = append(walls, wall)
			}
		}
		fmt.Fprintf(out, "%s\t%s\t%d\t%s\t%d\t%s\n", v.row.ID, strings.Join(walls, " "), open.all, failed, open.failed, strings.Join(v.row.Proof, " "))
	}
	out.Flush()
}

func percent(n, all int) int { return 100 * n / max(1, all) }
