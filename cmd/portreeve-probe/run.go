package main

import (
	"sync"
	"time"
)

// An attempt is one way to try; it returns what happened, and whether that means that something got out.
type attempt struct {
	name  string
	layer string // which layer of Portreeve has to say no; in the short list only
	try   func() (outcome string, out bool)
}

type result struct {
	Attempt string `json:"attempt"`
	Layer   string `json:"layer,omitempty"`
	Outcome string `json:"outcome"`
	Out     bool   `json:"out"`
	MS      int64  `json:"ms"`
}

// limit is how long an attempt waits for an answer.
const limit = 1500 * time.Millisecond

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
			results[i] = result{a.name, a.layer, outcome, out, time.Since(began).Milliseconds()}
		})
	}
	running.Wait()
	return results
}
