// Command prove shows for each security invariant that its guard is what makes its test pass.
//
// Each proof is a file testdata/prove/ID.txtar in the folder of the package that holds the guard. It names the
// invariant, the test, and a text of the guard with its weakened form. prove builds the test with the weakened
// text through go's -overlay, so the source is never touched, and wants three things: it compiles, the named test
// fails by its own assertion, and the same test passes with the guard in place. It also reports how many of the
// package's other tests still pass without the guard: few would mean that the proof broke more than the guard.
// What does not hold beside other proofs, on a machine that is busy with them, is tried once more, alone, and that is said.
//
// Before building anything it compares the proofs with the invariants that the doc.go files promise, and type-checks each
// weakened text, so that a proof that the code has left behind is told within a minute.
//
//	go run ./.build/prove [-check] [-quick] [-run REGEX] [-part I/N]
//	go run ./.build/prove -table >docs/invariants.md
//
// Exit status: 0 when each proof holds and each invariant has one, 1 otherwise.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "prove: error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("prove", flag.ContinueOnError)
	root := flags.String("root", ".", "the module's root folder")
	only := flags.String("run", "", "prove only the invariants whose id matches this regular expression")
	quick := flags.Bool("quick", false, "leave out the other tests of each package, which takes half of the time")
	part := flags.String("part", "0/1", "I/N: every Nth proof from the one at I on; each in one of N runs with I from 0 to N-1")
	check := flags.Bool("check", false, "only compare proofs with invariants, and see that their weakened forms compile; run nothing")
	table := flags.Bool("table", false, "print the promised invariants as Markdown, build nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("reading -run: %w", err)
	}
	tree, err := readTree(*root)
	if err != nil {
		return err
	}
	if *table {
		tree.table(out)
		return nil
	}
	problems := about(tree.compare(), match)
	chosen := tree.chosen(match)
	stale, err := tree.compile(ctx, chosen)
	if err != nil {
		return err
	}
	problems = append(problems, stale...)
	for _, p := range problems {
		fmt.Fprintln(out, p)
	}
	failed := len(problems)
	if !*check {
		if chosen, err = partOf(chosen, *part); err != nil {
			return err
		}
		if len(chosen) == 0 {
			return fmt.Errorf("no proof matches %q in part %s", *only, *part)
		}
		results, err := prove(ctx, tree.root, chosen, *quick, out)
		if err != nil {
			return err
		}
		bad := report(out, results)
		failed += bad
		fmt.Fprintf(out, "\n%d passed, %d failed\n", len(results)-bad, failed)
	}
	if failed > 0 {
		return fmt.Errorf("%d problem(s)", failed)
	}
	return nil
}

// about keeps the problems of the invariants that were asked for, and those of none.
func about(problems []string, match *regexp.Regexp) []string {
	return slices.DeleteFunc(problems, func(p string) bool {
		ids := anyID.FindAllString(p, -1)
		return len(ids) > 0 && !slices.ContainsFunc(ids, match.MatchString)
	})
}
