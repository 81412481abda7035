package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"portreeve.dev/gateway/client"
)

// A following prints decisions as they come. Each verdict is told once, though a flow has two lines.
type following struct {
	a    *app
	told map[string]bool
	old  []string // the ids in told, oldest first
}

// toldMost bounds what is remembered: a flow that ends after so many others is told once more.
const toldMost = 10_000

// Waits between two attempts to go on.
const (
	againAfter = time.Second
	againMost  = 15 * time.Second
)

// followDecisions goes on behind the last event that came, also when the connection breaks or control starts anew.
func (a *app) followDecisions(ctx context.Context, api *client.Client, f decisionFlags) error {
	f.limit, f.since = 0, 0
	out := &following{a: a, told: make(map[string]bool)}
	last, wait, broken := "", againAfter, false
	for {
		err := api.Follow(ctx, "/decisions/stream"+f.query(), last, func(e client.Event) error {
			if e.ID != "" {
				last = e.ID
			}
			if broken {
				broken, wait = false, againAfter
				a.say("portreeve: it goes on")
			}
			return out.print(e)
		})
		var refused *client.Problem
		switch {
		case ctx.Err() != nil:
			return nil // Ctrl-C is how one leaves
		case errors.As(err, &refused) && refused.Status < 500, last == "" && err != nil, errors.Is(err, errOutput):
			return err
		}
		if !broken {
			a.say("portreeve: the connection broke; going on behind event %s", orDash(last))
		}
		broken = true
		if !sleep(ctx, wait) {
			return nil
		}
		wait = min(2*wait, againMost)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

var errOutput = errors.New("writing the output")

func (f *following) print(e client.Event) error {
	switch {
	case e.Data == "":
		return nil
	case e.Name == "lost":
		f.lost(e.Data)
		return nil
	case f.a.output == "json":
		if _, err := fmt.Fprintln(f.a.out, e.Data); err != nil {
			return errors.Join(errOutput, err)
		}
		return nil
	}
	var d client.Decision
	if err := json.Unmarshal([]byte(e.Data), &d); err != nil {
		return fmt.Errorf("reading an event: %w", err)
	}
	if f.first(d.ID) {
		f.a.table([][]string{row(d)})
	}
	return nil
}

func (f *following) first(id string) bool {
	if f.told[id] {
		return false
	}
	if len(f.old) >= toldMost {
		delete(f.told, f.old[0])
		f.old = f.old[1:]
	}
	f.told[id] = true
	f.old = append(f.old, id)
	return true
}

func (f *following) lost(data string) {
	var l client.LostEvent
	if json.Unmarshal([]byte(data), &l) != nil {
		return
	}
	switch l.Reason {
	case "not_recorded":
		f.a.say("portreeve: warning: %d decisions were lost; see where with: portreeve decisions health", l.Count)
	case "forgotten":
		f.a.say("portreeve: warning: decisions were deleted before they came here")
	default:
		f.a.say("portreeve: warning: the record was reset; what follows begins now")
	}
}
