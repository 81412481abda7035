package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"portreeve.dev/gateway/client"
)

// A desk is where requests are decided at the terminal, one after the other.
type desk struct {
	a       *app
	api     *client.Client
	waiting []request // oldest first; the first is the one that is asked about
}

// followRequests shows requests as they come. What is typed decides the one that is asked about; without a terminal's input it
// only shows them.
func (a *app) followRequests(ctx context.Context, api *client.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, ended := make(chan requestEvent), make(chan error, 1)
	go func() { ended <- a.readRequests(ctx, api, events) }()
	lines := make(chan string)
	go a.readLines(ctx, lines)
	d := &desk{a: a, api: api}
	for {
		select {
		case e := <-events:
			d.event(e)
		case line, open := <-lines:
			if !open {
				lines = nil // nobody types any more
				continue
			}
			d.typed(ctx, line)
		case err := <-ended:
			if ctx.Err() != nil {
				return nil // Ctrl-C is how one leaves
			}
			return err
		}
	}
}

func (a *app) readRequests(ctx context.Context, api *client.Client, events chan<- requestEvent) error {
	return api.Events(ctx, http.MethodGet, "/requests/stream", nil, func(e client.Event) error {
		if a.output == "json" {
			_, err := fmt.Fprintln(a.out, e.Data)
			return err
		}
		var event requestEvent
		if err := json.Unmarshal([]byte(e.Data), &event); err != nil {
			return err
		}
		select {
		case events <- event:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// readLines hands over what is typed. Its read of a terminal ends with the process.
func (a *app) readLines(ctx context.Context, lines chan<- string) {
	defer close(lines)
	in := bufio.NewScanner(a.in)
	for in.Scan() {
		select {
		case lines <- strings.TrimSpace(in.Text()):
		case <-ctx.Done():
			return
		}
	}
}

func (d *desk) event(e requestEvent) {
	fmt.Fprintln(d.a.out, e.line())
	if e.Event == "egress.request.created" {
		if d.waiting = append(d.waiting, e.Request); len(d.waiting) == 1 {
			d.prompt()
		}
		return
	}
	first := len(d.waiting) > 0 && d.waiting[0].ID == e.Request.ID
	d.waiting = slices.DeleteFunc(d.waiting, func(r request) bool { return r.ID == e.Request.ID })
	if first {
		d.prompt()
	}
}

func (d *desk) prompt() {
	if len(d.waiting) > 0 {
		d.a.say("portreeve: %s: a [30m] to approve, d [reason] to deny, s to leave it", d.waiting[0].ID)
	}
}

// typed acts on a line. What fails is said, and asked again.
func (d *desk) typed(ctx context.Context, line string) {
	if len(d.waiting) == 0 {
		return
	}
	r := d.waiting[0]
	word, rest, _ := strings.Cut(line, " ")
	var err error
	switch word {
	case "a":
		body := map[string]any{}
		if rest = strings.TrimSpace(rest); rest != "" {
			if _, err = time.ParseDuration(rest); err != nil {
				break
			}
			body["for"] = rest
		}
		err = d.a.approve(ctx, d.api, r.ID, body, false)
	case "d":
		err = d.a.deny(ctx, d.api, r.ID, strings.TrimSpace(rest))
	case "s":
		d.waiting = d.waiting[1:]
		d.prompt()
		return
	default:
		d.prompt()
		return
	}
	if err != nil {
		d.a.say("portreeve: error: %v", err)
		d.prompt()
	}
}
