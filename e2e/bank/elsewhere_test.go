package bank

import (
	"flag"
	"fmt"
	"os/exec"
	"strings"

	"portreeve.dev/lab"
)

var runElsewhere = flag.Bool("elsewhere", false, "run the tests of other packages that rows name; without it they only have to be there")

// elsewhere holds a row to the tests that show it in other packages: PACKAGE TEST, or a whole PACKAGE.
func (w *world) elsewhere(r *row, v *verdict) {
	for _, named := range r.Tests {
		pkg, test, single := strings.Cut(named, " ")
		if !single {
			test = ".*"
		}
		args := []string{"test", "-list", "^(" + test + ")$", pkg}
		if *runElsewhere {
			args = []string{"test", "-count=1", "-short", "-timeout", "10m", "-run", "^(" + test + ")$", "-v", pkg}
		}
		root, err := lab.RepoRoot()
		if err != nil {
			v.add(false, r.ID+" "+named, err.Error())
			continue
		}
		cmd := exec.Command("go", args...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		problem := ""
		found := strings.Contains(string(out), test) || !single && strings.Contains(string(out), "Test")
		if err != nil || !found {
			problem = fmt.Sprintf("%v: %s", err, tail(string(out), 2000))
		}
		v.add(false, r.ID+" "+named, problem)
		if *runElsewhere {
			v.paths = append(v.paths, "ran:"+strings.TrimPrefix(named, "./"))
		} else {
			v.paths = append(v.paths, "there:"+strings.TrimPrefix(named, "./"))
		}
	}
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }
