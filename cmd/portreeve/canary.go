package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// A proof is what the API says of denial.
type proof struct {
	Holds    bool      `json:"holds"`
	ProvenAt time.Time `json:"proven_at,omitzero"`
	TriedAt  time.Time `json:"tried_at,omitzero"`
	Error    string    `json:"error,omitempty"`
	Layers   []struct {
		Layer    string    `json:"layer"`
		Holds    bool      `json:"holds"`
		ProvenAt time.Time `json:"proven_at,omitzero"`
		Detail   string    `json:"detail,omitempty"`
	} `json:"layers"`
}

func (a *app) canary() *cobra.Command {
	return &cobra.Command{Use: "canary", Short: "When denial was last proven, layer by layer; exit status 1 if it does not hold", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			var p proof
			if err := api.Do(c.Context(), http.MethodGet, "/health/denial", nil, &p); err != nil {
				return err
			}
			err = a.print(p, func() { a.printProof(p) })
			if err == nil && !p.Holds {
				return exit(1)
			}
			return err
		}}
}

func (a *app) printProof(p proof) {
	rows := [][]string{{"LAYER", "HOLDS", "PROVEN", ""}}
	for _, l := range p.Layers {
		rows = append(rows, []string{l.Layer, fmt.Sprint(l.Holds), whenProven(l.ProvenAt), l.Detail})
	}
	a.table(rows)
	if p.Error != "" {
		a.say("portreeve: the last round could not be made: %s", p.Error)
	}
}

func whenProven(t time.Time) string {
	if t.IsZero() {
		return "not yet"
	}
	return t.Local().Format(time.DateTime)
}
