// Command mutants changes one thing in the code at a time and sees whether the package's own tests notice.
//
//	go run ./.build/mutants [-n 50] [-seed 1] [-most 10] PACKAGE...
//
// A mutant is a copy of one file with one small change: a condition negated, an operator swapped, a statement left out, an
// error dropped, a number one larger. It is built over the tree (go test -overlay), which stays as it is. A mutant that does
// not compile is replaced by another. Of those that do, n are tried, spread over all packages by chance from the seed; the
// ones that no test notices are printed with their line, and each is a missing test, or code that does nothing.
//
// Exit status: 0 when at most the given percentage survived, 1 otherwise.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	n := flags.Int("n", 50, "how many mutants are tried")
	seed := flags.Uint64("seed", 1, "chooses them; the same seed on the same tree is the same choice")
	most := flags.Float64("most", 10, "percentage that may survive")
	if err := flags.Parse(args); err != nil {
		return err
	}
	files, err := sources(ctx, flags.Args())
	if err != nil {
		return err
	}
	var all []mutant
	for _, f := range files {
		found, err := mutantsOf(f)
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return fmt.Errorf("nothing to change in %s", strings.Join(flags.Args(), " "))
	}
	t, err := newTrial(ctx)
	if err != nil {
		return err
	}
	defer t.close()
	tally, err := t.run(ctx, all, *n, *seed)
	if err != nil {
		return err
	}
	share := 100 * float64(tally.survived) / float64(max(tally.tried(), 1))
	fmt.Printf("\n%d possible mutants in %d files, seed %d: %d tried, %d noticed, %d of them by a test that hung, %d survived (%.1f %%)\n",
		len(all), len(files), *seed, tally.tried(), tally.noticed, tally.hung, tally.survived, share)
	if share > *most {
		return fmt.Errorf("more than %g %% survived", *most)
	}
	return nil
}

// A source is one file of a package under test.
type source struct{ pkg, path string }

func sources(ctx context.Context, packages []string) ([]source, error) {
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-f",
		`{{if or .TestGoFiles .XTestGoFiles}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}{{"\t"}}{{.}}{{"\n"}}{{end}}{{end}}`}, packages...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing packages: %w", err)
	}
	var all []source
	for line := range strings.Lines(string(out)) {
		if dir, name, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok && name != "doc.go" {
			all = append(all, source{dir, filepath.Join(dir, name)})
		}
	}
	return all, nil
}
