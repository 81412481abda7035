package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"
)

// print writes v as JSON, or as text says it.
func (a *app) print(v any, text func()) error {
	if a.output != "json" {
		text()
		return nil
	}
	if raw, ok := v.(json.RawMessage); ok && len(raw) == 0 {
		return nil // an answer without a body
	}
	e := json.NewEncoder(a.out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// table writes rows with their columns aligned, the first row as the head.
func (a *app) table(rows [][]string) {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, cell)
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}

// say writes one line to whoever watches.
func (a *app) say(format string, args ...any) { fmt.Fprintf(a.err, format+"\n", args...) }

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
