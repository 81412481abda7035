package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// atOnce is how many mutants are tried side by side, and limit how long the tests of one may take.
const (
	atOnce = 2
	limit  = 2 * time.Minute
)

// An outcome is what became of a mutant.
type outcome int

const (
	invalid outcome = iota // it does not compile
	noticed
	hung // noticed, by a test that did not end
	survived
)

// A tally counts the outcomes.
type tally struct{ noticed, hung, survived int }

func (t tally) tried() int { return t.noticed + t.survived }

// A trial holds what the mutants are built in.
type trial struct{ temp string }

func newTrial(context.Context) (*trial, error) {
	temp, err := os.MkdirTemp("", "mutants-")
	return &trial{temp}, err
}

func (t *trial) close() { os.RemoveAll(t.temp) }

// run tries n of all, and more for each that does not compile.
func (t *trial) run(ctx context.Context, all []mutant, n int, seed uint64) (tally, error) {
	order := rand.New(rand.NewPCG(seed, 0)).Perm(len(all))
	var (
		mu    sync.Mutex
		sum   tally
		fault error
		next  int
		open  int // under trial
	)
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if fault != nil || ctx.Err() != nil || next == len(order) || sum.tried()+open >= n {
			return 0, false
		}
		next, open = next+1, open+1
		return next - 1, true
	}
	settle := func(m mutant, o outcome, err error) {
		mu.Lock()
		defer mu.Unlock()
		open--
		fault = errors.Join(fault, err)
		switch o {
		case noticed:
			sum.noticed++
		case hung:
			sum.noticed, sum.hung = sum.noticed+1, sum.hung+1
		case survived:
			sum.survived++
			fmt.Println("survived:", m)
		}
	}
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for {
				i, ok := take()
				if !ok {
					return
				}
				m := all[order[i]]
				o, err := t.try(ctx, i, m)
				settle(m, o, err)
			}
		})
	}
	wg.Wait()
	return sum, errors.Join(fault, ctx.Err())
}

func (t *trial) try(ctx context.Context, i int, m mutant) (outcome, error) {
	text, err := m.apply()
	if err != nil {
		return invalid, err
	}
	file := filepath.Join(t.temp, fmt.Sprintf("%d.go", i))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return invalid, err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{m.path: file}})
	if err != nil {
		return invalid, err
	}
	if err := os.WriteFile(file+".json", overlay, 0o600); err != nil {
		return invalid, err
	}
	binary := file + ".test"
	defer os.Remove(binary)
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", file+".json", "-o", binary, m.pkg)
	if build.Run() != nil {
		return invalid, nil
	}
	test := exec.CommandContext(ctx, binary, "-test.short", "-test.failfast", "-test.timeout="+limit.String())
	test.Dir = m.pkg
	test.WaitDelay = time.Second
	out, err := test.CombinedOutput()
	switch {
	case err == nil:
		return survived, nil
	case strings.Contains(string(out), "panic: test timed out"):
		return hung, nil
	}
	return noticed, nil
}
