package main

import (
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// usage is what the commands read of what an org moved.
type usage struct {
	Month    string    `json:"month"`
	In       int64     `json:"bytes_in"`
	Out      int64     `json:"bytes_out"`
	Used     int64     `json:"used_bytes"`
	Quota    *int64    `json:"quota_bytes"`
	State    string    `json:"state"`
	ResetsAt time.Time `json:"resets_at"`
	Months   []struct {
		Month string `json:"month"`
		In    int64  `json:"bytes_in"`
		Out   int64  `json:"bytes_out"`
	} `json:"months"`
}

func (a *app) usage() *cobra.Command {
	return &cobra.Command{Use: "usage", Short: "What the org's sandboxes moved, month by month, and what is left of the quota", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		var now usage
		return a.answer(c.Context(), http.MethodGet, "/usage/egress", nil, &now, func() { a.showUsage(now) })
	}}
}

func (a *app) showUsage(now usage) {
	rows := [][]string{{"MONTH", "TO SANDBOXES", "FROM SANDBOXES"}}
	for _, m := range now.Months {
		rows = append(rows, []string{m.Month, size(m.In), size(m.Out)})
	}
	if len(now.Months) == 0 {
		rows = append(rows, []string{now.Month, size(now.In), size(now.Out)})
	}
	a.table(rows)
	if now.Quota == nil {
		return
	}
	until := now.ResetsAt.UTC().Format(time.DateOnly)
	switch now.State {
	case "exhausted":
		a.say("portreeve: the quota of %s is used up: connections are refused until %s", size(*now.Quota), until)
	default:
		a.say("portreeve: %s of %s are used until %s", size(now.Used), size(*now.Quota), until)
	}
}
