package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"portreeve.dev/gateway/client"
)

type decisionFlags struct {
	sandbox, verdict, host string
	since                  time.Duration
	limit                  int
	follow                 bool
}

func (a *app) decisions() *cobra.Command {
	var f decisionFlags
	c := &cobra.Command{Use: "decisions", Short: "What was allowed and denied, and why", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		if f.follow {
			return a.followDecisions(c.Context(), api, f)
		}
		return a.listDecisions(c.Context(), api, f)
	}}
	c.Flags().StringVar(&f.sandbox, "sandbox", "", "of this sandbox")
	c.Flags().StringVar(&f.verdict, "verdict", "", "allow or deny")
	c.Flags().StringVar(&f.host, "host", "", "for this host")
	c.Flags().DurationVar(&f.since, "since", 0, "not older than this, like 1h")
	c.Flags().IntVar(&f.limit, "limit", 50, "at most so many")
	c.Flags().BoolVarP(&f.follow, "follow", "f", false, "go on with new ones as they come")
	c.AddCommand(a.decisionHealth(), a.decisionSettings())
	return c
}

func (f decisionFlags) query() string {
	q := url.Values{}
	for name, value := range map[string]string{"sandbox_id": f.sandbox, "verdict": f.verdict, "host": f.host} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.since > 0 {
		q.Set("since", time.Now().Add(-f.since).UTC().Format(time.RFC3339))
	}
	if f.limit > 0 {
		q.Set("limit", strconv.Itoa(f.limit))
	}
	return "?" + q.Encode()
}

func (a *app) listDecisions(ctx context.Context, api *client.Client, f decisionFlags) error {
	var page client.Decisions
	raw, err := ask(ctx, api, http.MethodGet, "/settings/egress/audit"+f.query(), nil, &page)
	if err != nil {
		return err
	}
	return a.print(raw, func() {
		rows := [][]string{{"TIME", "VERDICT", "LAYER", "DESTINATION", "REASON", "RULE", "ENDED", "DECISION"}}
		for _, d := range page.Decisions {
			cells := row(d)
			rows = append(rows, slices.Insert(cells, len(cells)-1, ended(d)))
		}
		a.table(rows)
		a.warnOfLoss(page)
	})
}

func row(d client.Decision) []string {
	return []string{d.Time.Local().Format("15:04:05.000"), d.Verdict, d.Layer, destination(d), d.Reason, orDash(d.Rule), d.ID}
}

// ended says in one cell how what was let through came to its end.
func ended(d client.Decision) string {
	if !d.Closed || d.Verdict != "allow" {
		return "-"
	}
	said := []string{size(d.BytesOut) + " out", size(d.BytesIn) + " in"}
	if d.Status != 0 {
		said = slices.Insert(said, 0, strconv.Itoa(d.Status))
	}
	if d.Error != "" {
		said = slices.Insert(said, 0, d.Error)
	}
	return strings.Join(said, ", ")
}

func destination(d client.Decision) string {
	to := d.Host
	if to == "" {
		to = d.Addr
	}
	if d.Port != 0 {
		to += ":" + strconv.Itoa(int(d.Port))
	}
	if d.Method != "" {
		to = d.Method + " " + to + d.Path
	}
	if d.Count > 1 {
		to += fmt.Sprintf(" (%d times)", d.Count)
	}
	return to
}

// tellDenials says what a sandbox was refused, and the command that would change it.
func (a *app) tellDenials(api *client.Client, sandbox string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var page client.Decisions
	f := decisionFlags{sandbox: sandbox, verdict: "deny", limit: 20}
	if err := api.Do(ctx, http.MethodGet, "/settings/egress/audit"+f.query(), nil, &page); err != nil {
		return // the command's own result is what counts
	}
	told := map[string]bool{}
	for _, d := range page.Decisions {
		to := destination(d)
		if told[to] {
			continue
		}
		told[to] = true
		a.say("portreeve: denied %s: %s (%s)", to, d.Reason, d.ID)
		if d.Reason == "no_rule" && d.Host != "" && !told["allow "+d.Host] {
			told["allow "+d.Host] = true
			a.say("portreeve: hint: portreeve allow %s --for 1h", d.Host)
		}
	}
}

func (a *app) explain() *cobra.Command {
	return &cobra.Command{Use: "explain DECISION", Short: "Why a decision was what it was", Args: exactly("DECISION"),
		RunE: func(c *cobra.Command, args []string) error {
			var raw json.RawMessage
			return a.answer(c.Context(), http.MethodGet, "/decisions/"+segment(args[0]), nil, &raw, func() { a.printDecision(raw) })
		}}
}

func (a *app) printDecision(raw json.RawMessage) {
	var e client.Explained
	if json.Unmarshal(raw, &e) != nil || e.Decision.ID == "" {
		fmt.Fprintln(a.out, string(raw))
		return
	}
	d := e.Decision
	if e.Summary != "" {
		fmt.Fprintf(a.out, "%s\n\n", e.Summary)
	}
	rows := [][]string{{"decision", d.ID}, {"time", d.Time.Local().Format(time.RFC3339Nano)}, {"verdict", d.Verdict}, {"reason", d.Reason},
		{"destination", destination(d)}, {"layer", d.Layer}, {"identity", orDash(d.Level)}, {"rule", orDash(d.Rule)}, {"of", orDash(d.RuleLayer)},
		{"policy version", strconv.FormatInt(d.Version, 10)}, {"sandbox", d.Sandbox}, {"guidance", orDash(e.Guidance)}}
	if !d.Until.IsZero() {
		rows = append(rows, []string{"until", d.Until.Local().Format(time.RFC3339Nano)})
	}
	if d.Closed && d.Verdict == "allow" {
		status := "-"
		if d.Status != 0 {
			status = strconv.Itoa(d.Status)
		}
		rows = append(rows, []string{"status", status}, []string{"bytes out", strconv.FormatInt(d.BytesOut, 10)}, []string{"bytes in", strconv.FormatInt(d.BytesIn, 10)},
			[]string{"took", (time.Duration(d.DurationMS) * time.Millisecond).String()}, []string{"error", orDash(d.Error)})
	}
	a.table(rows)
}
