package main

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) audit() *cobra.Command {
	var sandbox, action string
	var limit int
	c := &cobra.Command{Use: "audit", Short: "Who changed what", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		q := url.Values{"limit": {fmt.Sprint(limit)}}
		for name, value := range map[string]string{"sandbox_id": sandbox, "action": action} {
			if value != "" {
				q.Set(name, value)
			}
		}
		var page struct {
			Events []struct {
				Time     time.Time `json:"timestamp"`
				Actor    string    `json:"user_id"`
				Action   string    `json:"action"`
				Resource string    `json:"resource"`
				Outcome  string    `json:"outcome"`
			} `json:"events"`
		}
		return a.answer(c.Context(), http.MethodGet, "/audit?"+q.Encode(), nil, &page, func() {
			rows := [][]string{{"TIME", "ACTION", "OUTCOME", "OBJECT", "BY"}}
			for _, e := range page.Events {
				rows = append(rows, []string{e.Time.Local().Format(time.DateTime), e.Action, e.Outcome, e.Resource, orDash(e.Actor)})
			}
			a.table(rows)
		})
	}}
	c.Flags().StringVar(&sandbox, "sandbox", "", "about this sandbox")
	c.Flags().StringVar(&action, "action", "", "only this action, like sandbox.create")
	c.Flags().IntVar(&limit, "limit", 50, "at most so many")
	return c
}
