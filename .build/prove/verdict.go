package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"
)

var (
	// crashes are ends of a test binary that no assertion chose.
	crashes = regexp.MustCompile(`(?m)^(panic: .*|fatal error: .*|.*test timed out after.*|SIG[A-Z]+: .*)$`)
	// assertion is where testing.T says which line of which file failed the test.
	assertion = regexp.MustCompile(`(?m)^\s+[A-Za-z0-9_]+\.go:[0-9]+: `)
	outcome   = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+) `)
)

// passes returns "ok" when the test ran and passed.
func passes(out, test string) string {
	switch end := outcomes(out)[test]; end {
	case "PASS":
		return "ok"
	case "":
		return "did not run: " + firstLines(out, 3)
	default:
		return strings.ToLower(end) + " with the guard in place: " + firstLines(out, 6)
	}
}

// failsByAssertion returns "ok" when the test itself noticed that the guard is gone. A crash or a timeout may come
// from anything, so neither counts.
func failsByAssertion(out, test string) string {
	if crash := crashes.FindString(out); crash != "" {
		return "ended by " + crash + ", not by its assertion"
	}
	switch end := outcomes(out)[test]; {
	case end == "PASS":
		return "still passes without the guard"
	case end == "SKIP":
		return "was skipped"
	case end == "":
		return "did not run: " + firstLines(out, 3)
	case !assertion.MatchString(out):
		return "failed without an assertion: " + firstLines(out, 3)
	}
	return "ok"
}

func outcomes(out string) map[string]string {
	ends := map[string]string{}
	for _, m := range outcome.FindAllStringSubmatch(out, -1) {
		ends[m[2]] = m[1]
	}
	return ends
}

// count returns how many tests passed, of how many.
func count(out string) (passed, all int) {
	for _, end := range outcomes(out) {
		all++
		if end == "PASS" {
			passed++
		}
	}
	return passed, all
}

// report prints the table and returns how many proofs did not hold.
func report(out io.Writer, results []*result) int {
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "invariant\tdesign\ttest\twith guard\twithout\tothers still passing")
	bad := 0
	for _, r := range results {
		with, without, others := "passes", "fails", "-"
		if r.normal != "ok" {
			with = "WRONG"
		}
		if r.without != "ok" {
			without = "WRONG"
		}
		if r.others > 0 {
			others = fmt.Sprintf("%d of %d", r.passed, r.others)
		}
		if !r.holds() {
			bad++
		}
		fmt.Fprintf(w, "%s\t%s\t./%s %s\t%s\t%s\t%s\n", r.proof.invariant, r.proof.design, r.proof.pkg, r.proof.test, with, without, others)
	}
	w.Flush()
	for _, r := range results {
		r.explain(out, "")
		if r.first != nil {
			r.first.explain(out, " at the first try, beside others")
		}
	}
	return bad
}

// explain says what was wrong.
func (r *result) explain(out io.Writer, when string) {
	for _, what := range []string{r.normal, r.without} {
		if what != "ok" && what != "" {
			fmt.Fprintf(out, "\n%s: %s %s%s\n    %s\n", r.proof.file, r.proof.pkg, r.proof.test, when, what)
		}
	}
}
