package main

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"portreeve.dev/gateway/client"
)

func (a *app) decisionHealth() *cobra.Command {
	return &cobra.Command{Use: "health", Short: "Whether decisions were lost, and where", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		var h client.DecisionHealth
		return a.answer(c.Context(), http.MethodGet, "/decisions/health", nil, &h, func() { a.printHealth(h) })
	}}
}

func (a *app) printHealth(h client.DecisionHealth) {
	a.table([][]string{{"mode", h.Mode}, {"paths", h.Paths}, {"kept for", strconv.FormatInt(h.KeepDays, 10) + " days"}, {"held", fmt.Sprintf("%d decisions, %d bytes", h.Held, h.HeldBytes)},
		{"forgotten before", timeOrDash(h.ForgottenBefore)}, {"lost", strconv.FormatUint(h.Lost, 10)}, {"unsure", strconv.FormatUint(h.Unsure, 10)}})
	fmt.Fprintln(a.out)
	rows := [][]string{{"NODE", "STATE", "WRITTEN", "SHIPPED", "WAITING", "LOST", "OVER BUDGET", "UNSURE", "OLDEST WAITING", "SPOOL BYTES"}}
	for _, n := range h.Nodes {
		number := func(v uint64) string { return strconv.FormatUint(v, 10) }
		rows = append(rows, []string{n.Node, n.State, number(n.Written), number(n.Shipped), number(n.Waiting), number(n.Lost), number(n.OverBudget), number(n.Unsure),
			timeOrDash(n.Oldest), strconv.FormatInt(n.Bytes, 10)})
	}
	a.table(rows)
}

func timeOrDash(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format(time.RFC3339)
}

// warnOfLoss says what is not in a list.
func (a *app) warnOfLoss(page client.Decisions) {
	if page.Lost > 0 {
		a.say("portreeve: warning: %d decisions were lost and are in no list; see where with: portreeve decisions health", page.Lost)
	}
}

// decisionSettings is `portreeve decisions settings`: it shows them, or changes what is named.
func (a *app) decisionSettings() *cobra.Command {
	var mode, paths string
	var days int64
	c := &cobra.Command{Use: "settings", Short: "How decisions are recorded and how long they are kept", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		var now client.DecisionSettings
		raw, err := ask(c.Context(), api, http.MethodGet, "/settings/decisions", nil, &now)
		if err != nil {
			return err
		}
		if mode != "" || paths != "" || days != 0 {
			if mode != "" {
				now.Mode = mode
			}
			if paths != "" {
				now.Paths = paths
			}
			if days != 0 {
				now.KeepDays = days
			}
			// With the version that was read.
			if raw, err = ask(c.Context(), api, http.MethodPut, "/settings/decisions?wait=applied", now, &now); err != nil {
				return err
			}
		}
		return a.print(raw, func() {
			a.table([][]string{{"mode", now.Mode}, {"paths", now.Paths}, {"kept for", strconv.FormatInt(now.KeepDays, 10) + " days"}})
		})
	}}
	c.Flags().StringVar(&mode, "mode", "", "strict or best_effort")
	c.Flags().StringVar(&paths, "paths", "", "full, prefix or none")
	c.Flags().Int64Var(&days, "keep-days", 0, "from 1 to 365")
	return c
}
