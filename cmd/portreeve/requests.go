package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"portreeve.dev/gateway/client"
)

// A request is what the commands read of one for access.
type request struct {
	ID        string    `json:"id"`
	Sandbox   string    `json:"sandbox_id"`
	State     string    `json:"state"`
	Host      string    `json:"host"`
	Port      uint16    `json:"port"`
	Protocol  string    `json:"protocol"`
	Methods   []string  `json:"methods"`
	Paths     []string  `json:"paths"`
	Width     string    `json:"width"`
	Why       string    `json:"why"`
	For       string    `json:"for"`
	ExpiresAt time.Time `json:"expires_at"`
	DecidedBy string    `json:"decided_by"`
}

// wants says what it asks for.
func (r request) wants() string {
	to := r.Protocol + " " + r.Host + ":" + strconv.Itoa(int(r.Port))
	if r.Width == "url" {
		to += " " + strings.Join(r.Methods, ",") + " " + strings.Join(r.Paths, ",")
	}
	return to
}

// An approval is what the API says of one.
type approval struct {
	Request request  `json:"request"`
	Layers  []string `json:"layers"`
	Already bool     `json:"already_allowed"`
	Would   struct {
		Count     int               `json:"count"`
		Sandboxes []string          `json:"sandboxes"`
		Decisions []client.Decision `json:"decisions"`
	} `json:"would_have_allowed"`
}

func (a *app) requests() *cobra.Command {
	var state, sandbox string
	var follow bool
	list := func(c *cobra.Command, _ []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		if follow {
			return a.followRequests(c.Context(), api)
		}
		return a.listRequests(c.Context(), api, state, sandbox)
	}
	c := &cobra.Command{Use: "requests", Short: "What sandboxes ask access for; approve and deny it", Long: "Lists what sandboxes ask access for.\n\n" +
		"With -f it goes on with new ones as they come, and asks at the terminal what to do with each: while it runs,\n" +
		"sandboxes may wait for an answer."}
	group(c)
	c.RunE = list
	flags := func(c *cobra.Command) {
		c.Flags().StringVar(&state, "state", "open", "open, approved, denied, expired or all")
		c.Flags().StringVar(&sandbox, "sandbox", "", "of this sandbox")
		c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new ones, and decide them at the terminal")
	}
	flags(c)
	listed := &cobra.Command{Use: "list", Short: "List them", Args: exactly(), RunE: list}
	flags(listed)
	c.AddCommand(listed, a.requestsApprove(), a.requestsDeny())
	return c
}

func (a *app) listRequests(ctx context.Context, api *client.Client, state, sandbox string) error {
	q := url.Values{}
	if state != "all" {
		q.Set("state", state)
	}
	if sandbox != "" {
		q.Set("sandbox_id", sandbox)
	}
	var page struct {
		Requests []request `json:"requests"`
	}
	raw, err := ask(ctx, api, http.MethodGet, "/requests?"+q.Encode(), nil, &page)
	if err != nil {
		return err
	}
	return a.print(raw, func() {
		rows := [][]string{{"REQUEST", "STATE", "WANTS", "FOR", "SANDBOX", "WHY"}}
		for _, r := range page.Requests {
			rows = append(rows, []string{r.ID, r.State, r.wants(), r.For, r.Sandbox, r.Why})
		}
		a.table(rows)
	})
}

func (a *app) requestsApprove() *cobra.Command {
	var lasts time.Duration
	var width, reason string
	var dry bool
	c := &cobra.Command{Use: "approve REQUEST", Short: "Give the access for a while; shows first what that would have allowed", Args: exactly("REQUEST"),
		RunE: func(c *cobra.Command, args []string) error {
			body := map[string]any{}
			if c.Flags().Changed("for") {
				body["for"] = lasts.String()
			}
			if width != "" {
				body["width"] = width
			}
			if reason != "" {
				body["reason"] = reason
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			return a.approve(c.Context(), api, args[0], body, dry)
		}}
	c.Flags().DurationVar(&lasts, "for", 0, "how long; default as asked")
	c.Flags().StringVar(&width, "width", "", "host, or url for the methods and paths only; default as asked")
	c.Flags().StringVar(&reason, "reason", "", "what the sandbox is told")
	c.Flags().BoolVar(&dry, "dry-run", false, "only show what it would have allowed")
	return c
}

// approve shows the effect, then gives the access.
func (a *app) approve(ctx context.Context, api *client.Client, id string, body map[string]any, dry bool) error {
	path := "/requests/" + segment(id) + "/approve"
	body["dry_run"] = true
	var effect approval
	raw, err := ask(ctx, api, http.MethodPost, path, body, &effect)
	if err != nil {
		return err
	}
	a.showEffect(effect)
	if dry {
		return a.print(raw, func() {})
	}
	body["dry_run"], body["wait"] = false, true
	var done approval
	if raw, err = ask(ctx, api, http.MethodPost, path, body, &done); err != nil {
		return err
	}
	return a.print(raw, func() {
		a.say("portreeve: approved %s until %s", done.Request.wants(), done.Request.ExpiresAt.Local().Format("15:04:05"))
	})
}

func (a *app) showEffect(e approval) {
	if e.Already {
		a.say("portreeve: this is allowed already")
		return
	}
	a.say("portreeve: adds a rule to %s, for every sandbox under it", strings.Join(e.Layers, " and "))
	a.say("portreeve: this would have allowed %d of the recorded denials, of %d sandboxes", e.Would.Count, len(e.Would.Sandboxes))
	for _, d := range e.Would.Decisions[:min(5, len(e.Would.Decisions))] {
		a.say("  %s", strings.Join(row(d), "  "))
	}
}

func (a *app) requestsDeny() *cobra.Command {
	var reason string
	c := &cobra.Command{Use: "deny REQUEST", Short: "Refuse the access", Args: exactly("REQUEST"),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			return a.deny(c.Context(), api, args[0], reason)
		}}
	c.Flags().StringVar(&reason, "reason", "", "what the sandbox is told")
	return c
}

func (a *app) deny(ctx context.Context, api *client.Client, id, reason string) error {
	body := map[string]any{}
	if reason != "" {
		body["reason"] = reason
	}
	var r request
	raw, err := ask(ctx, api, http.MethodPost, "/requests/"+segment(id)+"/deny", body, &r)
	if err != nil {
		return err
	}
	return a.print(raw, func() { a.say("portreeve: denied %s", r.wants()) })
}

// A requestEvent is one message of the stream.
type requestEvent struct {
	Event   string  `json:"event"`
	Request request `json:"request"`
}

func (e requestEvent) line() string {
	r := e.Request
	if e.Event == "egress.request.created" {
		return fmt.Sprintf("%s  %s asks for %s, for %s: %s", r.ID, r.Sandbox, r.wants(), r.For, r.Why)
	}
	by := ""
	if r.DecidedBy != "" {
		by = " by " + r.DecidedBy
	}
	return fmt.Sprintf("%s  %s%s", r.ID, r.State, by)
}
