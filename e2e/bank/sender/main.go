package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sender:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want one argument: a job, or check")
	}
	var data []byte
	var err error
	if args[0] == "check" {
		data, err = io.ReadAll(os.Stdin)
	} else {
		data, err = os.ReadFile(args[0])
	}
	if err != nil {
		return err
	}
	j, err := readJob(data)
	if err != nil || args[0] == "check" {
		return err
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	play := func(c kase) {
		r := j.play(c)
		mu.Lock()
		defer mu.Unlock()
		out.Encode(r)
	}
	var slow sync.WaitGroup
	for _, c := range j.Cases {
		if c.Slow {
			slow.Go(func() { play(c) })
			continue
		}
		play(c)
		// So that what one case causes is never taken for the next one's.
		time.Sleep(15 * time.Millisecond)
	}
	slow.Wait()
	return nil
}

// play does the steps until one fails.
func (j *job) play(c kase) result {
	r := result{ID: c.ID, Start: time.Now().UnixNano()}
	t := &talk{job: j, path: c.Path, limit: 8 * time.Second}
	if c.Limit > 0 {
		t.limit = time.Duration(c.Limit) * time.Millisecond
	}
	for _, s := range c.Do {
		start := time.Now()
		what := t.do(s)
		what.MS = time.Since(start).Milliseconds()
		r.Steps = append(r.Steps, what)
		if !what.OK {
			break
		}
	}
	t.close()
	r.End = time.Now().UnixNano()
	return r
}
