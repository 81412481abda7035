package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"portreeve.dev/gateway/limits"
)

// orgLimits is what the commands read of an org's limits.
type orgLimits struct {
	Limits   limits.Limits `json:"limits"`
	Own      limits.Limits `json:"own"`
	Platform limits.Limits `json:"platform"`
	Version  int64         `json:"version"`
}

func (a *app) limits() *cobra.Command {
	c := &cobra.Command{Use: "limits", Short: "What the org's sandboxes may use of the way out", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		var now orgLimits
		return a.answer(c.Context(), http.MethodGet, "/settings/limits", nil, &now, func() { a.showLimits(now) })
	}}
	c.AddCommand(a.limitsSet())
	return c
}

func (a *app) showLimits(now orgLimits) {
	rows := [][]string{{"LIMIT", "HOLDS", "OWN", "PLATFORM"}}
	for _, name := range limits.Names() {
		rows = append(rows, []string{name, limitText(now.Limits, name), limitText(now.Own, name), limitText(now.Platform, name)})
	}
	a.table(rows)
}

func limitText(l limits.Limits, name string) string {
	n := l.Get(name)
	switch {
	case n == 0:
		return "-"
	case strings.Contains(name, "bytes"):
		return size(n)
	}
	return strconv.FormatInt(n, 10)
}

func (a *app) limitsSet() *cobra.Command {
	return &cobra.Command{Use: "set NAME=VALUE...", Short: "Lower limits for the org; 0 gives one back to the platform, others stay",
		Example: "  portreeve limits set sandbox_bytes_in_per_second=50Mi connections_per_org=1000", Args: atLeast(1, "NAME=VALUE"),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			var now orgLimits
			if _, err := ask(c.Context(), api, http.MethodGet, "/settings/limits", nil, &now); err != nil {
				return err
			}
			for _, arg := range args {
				name, value, _ := strings.Cut(arg, "=")
				if err := now.Own.Set(name, value); err != nil {
					return &usageError{c.CommandPath(), err}
				}
			}
			body, err := json.Marshal(now.Own)
			if err != nil {
				return err
			}
			header := ifMatch(now.Version)
			header.Set("Content-Type", "application/json")
			answer, err := whole(c.Context(), api, http.MethodPut, "/settings/limits?wait=applied", header, string(body))
			if err != nil {
				return err
			}
			if err := json.Unmarshal(answer, &now); err != nil {
				return err
			}
			return a.print(json.RawMessage(answer), func() { a.showLimits(now) })
		}}
}
