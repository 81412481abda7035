package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"portreeve.dev/gateway/client"
)

// A flow is what the commands read of a live connection.
type flow struct {
	ID         string    `json:"id"`
	Sandbox    string    `json:"sandbox_id"`
	Decision   string    `json:"decision_id"`
	Host       string    `json:"host"`
	Address    string    `json:"address"`
	Port       uint16    `json:"port"`
	Protocol   string    `json:"protocol"`
	Level      string    `json:"level"`
	Method     string    `json:"method"`
	Rule       string    `json:"rule"`
	Since      time.Time `json:"since"`
	In         int64     `json:"bytes_in"`
	Out        int64     `json:"bytes_out"`
	Opaque     bool      `json:"opaque"`
	Parts      []flow    `json:"parts"`
	PartsTotal int       `json:"parts_total"`
}

// A flowPage is one page of the list, with the flows as they came too.
type flowPage struct {
	Flows []json.RawMessage `json:"flows"`
	Next  *string           `json:"next_cursor"`
}

// flowsEvery is how often the list is asked for while it is followed.
const flowsEvery = time.Second

func (a *app) flows() *cobra.Command {
	var host, rule string
	var follow bool
	c := &cobra.Command{Use: "flows [SANDBOX]", Short: "What is open to the outside now, of one sandbox or of all", Args: atMost(1, "SANDBOX"),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			q := url.Values{"limit": {"500"}}
			for name, value := range map[string]string{"host": host, "rule": rule} {
				if value != "" {
					q.Set(name, value)
				}
			}
			if len(args) > 0 {
				q.Set("sandbox_id", args[0])
			}
			if follow {
				return a.followFlows(c.Context(), api, q)
			}
			return a.listFlows(c.Context(), api, q)
		}}
	c.Flags().StringVar(&host, "host", "", "to this host")
	c.Flags().StringVar(&rule, "rule", "", "that live by this rule")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on: a line when one begins, and when it has ended")
	c.AddCommand(a.flowsKill())
	return c
}

// atMost is exactly for what may be left out.
func atMost(n int, names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) <= n {
			return nil
		}
		return &usageError{c.CommandPath(), fmt.Errorf("%s takes at most %d arguments %v, not %d", c.CommandPath(), n, names, len(args))}
	}
}

// allFlows reads every page.
func allFlows(ctx context.Context, api *client.Client, q url.Values) (raw []json.RawMessage, list []flow, err error) {
	raw = []json.RawMessage{}
	for {
		var page flowPage
		if err := api.Do(ctx, http.MethodGet, "/flows?"+q.Encode(), nil, &page); err != nil {
			return nil, nil, err
		}
		for _, one := range page.Flows {
			var f flow
			if err := json.Unmarshal(one, &f); err != nil {
				return nil, nil, err
			}
			raw, list = append(raw, one), append(list, f)
		}
		if page.Next == nil {
			return raw, list, nil
		}
		q.Set("cursor", *page.Next)
	}
}

var flowHead = []string{"FLOW", "SANDBOX", "DESTINATION", "PROTOCOL", "SEEN", "RULE", "IN", "OUT", "FOR"}

func (f *flow) row(now time.Time) []string {
	to := f.Host
	if to == "" {
		to = f.Address
	}
	to += ":" + strconv.Itoa(int(f.Port))
	if f.PartsTotal > 0 {
		to += fmt.Sprintf(" (%d requests)", f.PartsTotal)
	}
	seen := "inside"
	if f.Opaque {
		seen = orDash(f.Level)
	}
	return []string{f.ID, f.Sandbox, to, orDash(f.Protocol), seen, orDash(f.Rule), size(f.In), size(f.Out), now.Sub(f.Since).Round(time.Second).String()}
}

// size is a number of bytes for people.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, u := float64(n), 0
	for v >= 1024 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	if u == 0 {
		return strconv.FormatInt(n, 10) + " B"
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + units[u]
}

func (a *app) listFlows(ctx context.Context, api *client.Client, q url.Values) error {
	raw, list, err := allFlows(ctx, api, q)
	if err != nil {
		return err
	}
	return a.print(map[string]any{"flows": raw}, func() {
		rows, now := [][]string{flowHead}, time.Now()
		for i := range list {
			rows = append(rows, list[i].row(now))
		}
		a.table(rows)
	})
}

// followFlows prints what begins and what is gone, until somebody leaves by Ctrl-C.
func (a *app) followFlows(ctx context.Context, api *client.Client, q url.Values) error {
	tick := time.NewTicker(flowsEvery)
	defer tick.Stop()
	open := map[string]flow{}
	for {
		_, list, err := allFlows(ctx, api, q)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		q.Del("cursor")
		a.tellFlows(open, list)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// tellFlows prints the difference and keeps the new list.
func (a *app) tellFlows(open map[string]flow, list []flow) {
	now := time.Now()
	live := make(map[string]bool, len(list))
	for _, f := range list {
		live[f.ID] = true
		if _, known := open[f.ID]; !known {
			a.flowLine("begun", f, now)
		}
		open[f.ID] = f
	}
	for id, f := range open {
		if !live[id] {
			a.flowLine("ended", f, now)
			delete(open, id)
		}
	}
}

func (a *app) flowLine(what string, f flow, now time.Time) {
	if a.output == "json" {
		_ = json.NewEncoder(a.out).Encode(map[string]any{"event": what, "flow": f})
		return
	}
	a.table([][]string{append([]string{what}, f.row(now)...)})
}

func (a *app) flowsKill() *cobra.Command {
	return &cobra.Command{Use: "kill ID", Short: "End a live connection, or one request on it", Args: exactly("ID"), RunE: func(c *cobra.Command, args []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		_, found, err := allFlows(c.Context(), api, url.Values{"flow": {args[0]}})
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return &client.Hinted{Err: fmt.Errorf("no live flow is %q", args[0]), Hint: "portreeve flows"}
		}
		var answer struct {
			Flow flow `json:"flow"`
		}
		raw, err := ask(c.Context(), api, http.MethodDelete, "/sandbox/"+segment(found[0].Sandbox)+"/flows/"+segment(args[0]), nil, &answer)
		if err != nil {
			return err
		}
		return a.print(raw, func() {
			a.say("portreeve: ended %s of %s to %s; it may connect again, see: portreeve policy", answer.Flow.ID, answer.Flow.Sandbox, answer.Flow.row(time.Now())[2])
		})
	}}
}
