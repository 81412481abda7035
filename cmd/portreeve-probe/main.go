// Command portreeve-probe runs inside a sandbox and tries every way out of it.
//
// It is in each sandbox at /.portreeve/probe and can do nothing that other code there could not. It prints one JSON object
// a line for each attempt and ends with status 1 if anything answered that is not Portreeve itself:
//
//	{"attempt":"tcp 169.254.169.254:80","outcome":"refused","out":false,"ms":1}
//
// Use it through portreeve probe, which runs it in a throw-away sandbox whose policy denies everything and compares with
// the decisions that were recorded outside.
package main

import (
	"encoding/json"
	"os"
	"sync"
	"time"
)

// An attempt is one way to try; it returns what happened, and whether that means that something got out.
type attempt struct {
	name string
	try  func() (outcome string, out bool)
}

type result struct {
	Attempt string `json:"attempt"`
	Outcome string `json:"outcome"`
	Out     bool   `json:"out"`
	MS      int64  `json:"ms"`
}

// limit is how long an attempt waits for an answer.
const limit = 1500 * time.Millisecond

func main() {
	results := runAll(attempts())
	lines := json.NewEncoder(os.Stdout)
	status := 0
	for _, r := range results {
		lines.Encode(r)
		if r.Out {
			status = 1
		}
	}
	os.Exit(status)
}

// runAll runs eight attempts at a time, as silence is the common answer to some.
func runAll(all []attempt) []result {
	results := make([]result, len(all))
	slots := make(chan struct{}, 8)
	var running sync.WaitGroup
	for i, a := range all {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			began := time.Now()
			outcome, out := a.try()
			results[i] = result{a.name, outcome, out, time.Since(began).Milliseconds()}
		})
	}
	running.Wait()
	return results
}
