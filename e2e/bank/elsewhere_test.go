package bank

import (
	"flag"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"portreeve.dev/lab"
)

var runElsewhere = flag.Bool("elsewhere", false, "run the tests of other packages that rows name; without it they only have to be there")

// A run is the tests of one package that rows name, run or looked up at once, so that those which wait do so together.
type run struct {
	out string
	err error
}

// runTests runs what the rows name, package by package: PACKAGE TEST, or a whole PACKAGE.
func runTests(rows []*row) map[string]run {
	named := map[string][]string{}
	for _, r := range rows {
		for _, text := range r.Tests {
			pkg, test, single := strings.Cut(text, " ")
			if !single {
				test = ".*"
			}
			if !slices.Contains(named[pkg], test) {
				named[pkg] = append(named[pkg], test)
			}
		}
	}
	root, err := lab.RepoRoot()
	done := map[string]run{}
	for pkg, tests := range named {
		choice := "^(" + strings.Join(tests, "|") + ")$"
		args := []string{"test", "-list", choice, pkg}
		if *runElsewhere {
			args = []string{"test", "-count=1", "-timeout", "10m", "-run", choice, "-v", pkg}
		}
		if err != nil {
			done[pkg] = run{err: err}
			continue
		}
		cmd := exec.Command("go", args...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		done[pkg] = run{string(out), err}
	}
	return done
}

// elsewhere holds a row to its tests in other packages. Those that look at one package alone don't show it from outside, and
// the table says so.
func (v *verdict) elsewhere(done map[string]run) {
	for _, named := range v.row.Tests {
		pkg, test, single := strings.Cut(named, " ")
		e := done[pkg]
		found := strings.Contains(e.out, "Test")
		failed := e.err != nil
		if single {
			state := regexp.MustCompile(`(?m)^(?:--- (PASS|FAIL): )?` + test + `(?: \(.*\))?$`).FindStringSubmatch(e.out)
			found = state != nil
			failed = found && state[1] == "FAIL"
		}
		problem := ""
		if failed || !found {
			problem = fmt.Sprintf("%v: %s", e.err, tail(e.out, 2000))
		}
		v.add(false, v.row.ID+" "+named, problem)
		how := "there:"
		if *runElsewhere {
			how = "ran:"
		}
		if !fromOutside(named) {
			how = "NOT FROM OUTSIDE:"
		}
		v.paths = append(v.paths, how+strings.TrimPrefix(named, "./"))
	}
}

// fromOutside says that a test drives the built programs and looks at what comes out of them.
func fromOutside(named string) bool { return strings.HasPrefix(named, "./e2e ") }

func tail(s string, n int) string { return s[max(0, len(s)-n):] }
