package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"portreeve.dev/gateway/client"
)

// probeProgram is where each sandbox has the program that tries.
const probeProgram = "/.portreeve/probe"

func (a *app) probe() *cobra.Command {
	return &cobra.Command{Use: "probe", Short: "Try every way out of a throw-away sandbox; exit status 1 if anything got out", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.runProbe(c.Context()) }}
}

// A tried is one attempt as the program reports it.
type tried struct {
	Attempt string `json:"attempt"`
	Outcome string `json:"outcome"`
	Out     bool   `json:"out"`
	MS      int64  `json:"ms"`
}

func (a *app) runProbe(ctx context.Context) error {
	api, err := a.client()
	if err != nil {
		return err
	}
	// A list of its own that allows nothing: whatever the org's policy opens must not blur the result.
	body := map[string]any{"template": "tiny", "timeout_seconds": 300, "egress": map[string]any{"rules": []any{}}}
	var made box
	if err := api.Do(ctx, http.MethodPost, "/sandbox/create", body, &made); err != nil {
		return err
	}
	defer deleteBox(api, made.ID)
	results, err := probeIn(ctx, api, made.ID)
	if err != nil {
		return err
	}
	allowed, err := allowedIn(ctx, api, made.ID)
	if err != nil {
		return err
	}
	out := len(allowed)
	for _, r := range results {
		if r.Out {
			out++
		}
	}
	err = a.print(map[string]any{"attempts": results, "allowed": allowed, "out": out}, func() { a.printProbe(results, allowed, out) })
	if err == nil && out > 0 {
		return exit(1)
	}
	return err
}

func probeIn(ctx context.Context, api *client.Client, id string) ([]tried, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var answer struct {
		ExitCode int    `json:"exit_code"`
		Stdout   string `json:"stdout"`
		Stderr   string `json:"stderr"`
	}
	body := map[string]any{"command": []string{probeProgram}, "timeout": 240_000}
	if err := api.Do(ctx, http.MethodPost, "/sandbox/"+segment(id)+"/execute", body, &answer); err != nil {
		return nil, err
	}
	var results []tried
	for line := range bytes.Lines([]byte(answer.Stdout)) {
		var r tried
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("reading the probe's output: %w", err)
		}
		results = append(results, r)
	}
	if len(results) == 0 {
		return nil, errors.New("the probe tried nothing: " + answer.Stderr)
	}
	return results, nil
}

// allowedIn asks what was recorded outside: the sandbox's own word is not enough.
func allowedIn(ctx context.Context, api *client.Client, id string) ([]client.Decision, error) {
	var page client.Decisions
	f := decisionFlags{sandbox: id, verdict: "allow", limit: 50}
	err := api.Do(ctx, http.MethodGet, "/settings/egress/audit"+f.query(), nil, &page)
	return page.Decisions, err
}

func (a *app) printProbe(results []tried, allowed []client.Decision, out int) {
	rows := [][]string{{"ATTEMPT", "OUTCOME", "MS", ""}}
	for _, r := range results {
		mark := "ok"
		if r.Out {
			mark = "GOT OUT"
		}
		rows = append(rows, []string{r.Attempt, r.Outcome, strconv.FormatInt(r.MS, 10), mark})
	}
	for _, d := range allowed {
		rows = append(rows, []string{"allowed " + destination(d), d.Reason, "", "GOT OUT"})
	}
	a.table(rows)
	a.say("portreeve: %d attempts, %d got out", len(results), out)
}
