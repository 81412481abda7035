package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A result is what one proof came to.
type result struct {
	proof   *proof
	normal  string // "ok", or what was wrong with the guard in place
	without string // "ok" when the test failed by its own assertion without the guard, else what happened
	passed  int    // other tests of the package that still pass without the guard
	others  int    // of so many
	took    time.Duration
	first   *result // what it came to beside others, when it had to be tried again, alone
}

func (r *result) holds() bool { return r.normal == "ok" && r.without == "ok" }

// atOnce is how many proofs run side by side; those of black-box tests, which share the machine's network, run alone.
const atOnce = 2

// A prover holds the test binaries with all guards in place, one for each tested package.
type prover struct {
	root  string
	temp  string
	quick bool // without the other tests of a package

	normal map[string]*binary
}

// A binary is built once, by whoever asks first, and its package's named tests are run once, side by side.
type binary struct {
	once  sync.Once
	path  string
	tests string // regular expression of the names
	out   string
	err   error
}

func prove(ctx context.Context, root string, proofs []*proof, quick bool, out io.Writer) ([]*result, error) {
	temp, err := os.MkdirTemp("", "prove-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	pr := &prover{root: root, temp: temp, quick: quick, normal: binaries(temp, proofs)}
	results := make([]*result, len(proofs))
	var printing sync.Mutex
	one := func(i int) {
		results[i] = pr.one(ctx, i, proofs[i])
		printing.Lock()
		defer printing.Unlock()
		results[i].print(out)
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i, p := range proofs {
		if blackBox(p) {
			continue
		}
		wg.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots; wg.Done() }()
			one(i)
		}()
	}
	wg.Wait()
	for i, p := range proofs {
		if blackBox(p) {
			one(i)
		}
	}
	for i, r := range results {
		if r.holds() || ctx.Err() != nil {
			continue
		}
		one(i)
		results[i].first = r
	}
	return results, ctx.Err()
}

func (r *result) print(out io.Writer) {
	word := "ok  "
	if !r.holds() {
		word = "FAIL"
	}
	fmt.Fprintf(out, "%s %-7s %-28s %s (%.1f s)\n", word, r.proof.invariant, r.proof.pkg, r.proof.test, r.took.Seconds())
}

// blackBox says that the test drives the built binaries, so the binaries are what must be weakened.
func blackBox(p *proof) bool { return p.pkg == "e2e" || strings.HasPrefix(p.pkg, "e2e/") }

func (pr *prover) one(ctx context.Context, i int, p *proof) *result {
	start := time.Now()
	r := &result{proof: p}
	defer func() { r.took = time.Since(start) }()
	normal, out, err := pr.withGuards(ctx, p.pkg)
	if err != nil {
		r.normal = err.Error()
		return r
	}
	if r.normal = passes(out, p.test); r.normal != "ok" {
		r.normal = passes(pr.runTest(ctx, normal, p.pkg, nil, "-test.run", "^"+p.test+"$"), p.test)
	}
	overlay, err := pr.overlay(i, p)
	if err != nil {
		r.without = err.Error()
		return r
	}
	weakened, env := filepath.Join(pr.temp, fmt.Sprintf("%d.test", i)), []string(nil)
	if blackBox(p) {
		weakened = normal
		bin, err := pr.products(ctx, i, overlay)
		if err != nil {
			r.without = err.Error()
			return r
		}
		env = []string{"PORTREEVE_BIN=" + bin}
	} else if err := pr.build(ctx, weakened, p.pkg, overlay); err != nil {
		r.without = err.Error()
		return r
	}
	r.without = failsByAssertion(pr.runTest(ctx, weakened, p.pkg, env, "-test.run", "^"+p.test+"$"), p.test)
	if !blackBox(p) && !pr.quick {
		rest := pr.runTest(ctx, weakened, p.pkg, env, "-test.short", "-test.skip", "^"+p.test+"$")
		r.passed, r.others = count(rest)
	}
	if !blackBox(p) {
		os.Remove(weakened)
	}
	return r
}

// binaries are those of the proofs' packages, to be built.
func binaries(temp string, proofs []*proof) map[string]*binary {
	names := make(map[string][]string)
	for _, p := range proofs {
		names[p.pkg] = append(names[p.pkg], p.test)
	}
	all := make(map[string]*binary, len(names))
	for pkg, tests := range names {
		slices.Sort(tests)
		all[pkg] = &binary{path: filepath.Join(temp, strings.ReplaceAll(pkg, "/", "_")+".test"), tests: "^(" + strings.Join(slices.Compact(tests), "|") + ")$"}
	}
	return all
}

// withGuards returns the package's test binary with all guards in place, and what its named tests printed.
func (pr *prover) withGuards(ctx context.Context, pkg string) (path, out string, err error) {
	b := pr.normal[pkg]
	b.once.Do(func() {
		if b.err = pr.build(ctx, b.path, pkg, ""); b.err == nil {
			b.out = pr.runTest(ctx, b.path, pkg, nil, "-test.run", b.tests, "-test.timeout=600s")
		}
	})
	return b.path, b.out, b.err
}

// overlay writes the weakened files beside the tree and the file that tells go to read those.
func (pr *prover) overlay(i int, p *proof) (string, error) {
	replace := map[string]string{}
	for j, e := range p.edits {
		file := filepath.Join(pr.temp, fmt.Sprintf("%d-%d.go", i, j))
		if err := os.WriteFile(file, e.weakened, 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(pr.root, e.path)] = file
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(pr.temp, fmt.Sprintf("%d.json", i))
	return file, os.WriteFile(file, data, 0o600)
}

func (pr *prover) build(ctx context.Context, out, pkg, overlay string) error {
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", out}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	return pr.gotool(ctx, append(args, "./"+pkg)...)
}

// products builds the weakened binaries of the product; what is not ours to weaken is taken from bin/.
func (pr *prover) products(ctx context.Context, i int, overlay string) (string, error) {
	bin, err := os.MkdirTemp(pr.temp, fmt.Sprintf("%d.bin", i))
	if err != nil {
		return "", err
	}
	// Sandboxes' uids must be able to run what lies in there.
	if err := errors.Join(os.Chmod(pr.temp, 0o755), os.Chmod(bin, 0o755)); err != nil {
		return "", err
	}
	if err := pr.gotool(ctx, "build", "-overlay", overlay, "-ldflags=-s -w", "-o", bin+"/", "./cmd/..."); err != nil {
		return "", err
	}
	for _, name := range []string{"runsc", "tiny.tar"} {
		if err := os.Symlink(filepath.Join(pr.root, "bin", name), filepath.Join(bin, name)); err != nil {
			return "", err
		}
	}
	return bin, nil
}

func (pr *prover) gotool(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = pr.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("does not build: %s", firstLines(string(out), 6))
	}
	return nil
}

// runTest returns what the binary printed, run in the folder of its package as go test would.
func (pr *prover) runTest(ctx context.Context, binary, pkg string, env []string, args ...string) string {
	limit := "60s"
	if strings.HasPrefix(pkg, "e2e") {
		limit = "600s"
	}
	cmd := exec.CommandContext(ctx, binary, append([]string{"-test.v", "-test.count=1", "-test.timeout=" + limit}, args...)...)
	cmd.Dir = filepath.Join(pr.root, pkg)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = 10 * time.Second
	out, _ := cmd.CombinedOutput() // the verdict is in what it printed
	return string(out)
}

func firstLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	if len(lines) > n {
		lines = lines[:n]
	}
	return strings.Join(lines, "\n    ")
}
