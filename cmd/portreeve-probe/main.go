// Command portreeve-probe runs inside a sandbox and tries every way out of it.
//
// It is in each sandbox at /.portreeve/probe and can do nothing that other code there could not. It prints one JSON object
// a line for each attempt and ends with status 1 if anything answered that is not Portreeve itself:
//
//	{"attempt":"tcp 169.254.169.254:80","outcome":"refused","out":false,"ms":1}
//
// With -small it tries one of each kind, and says which layer has to refuse it: what a node does each minute.
//
// Use it through portreeve probe, which runs it in a throw-away sandbox whose policy denies everything and compares with
// the decisions that were recorded outside.
package main

import (
	"encoding/json"
	"os"
)

func main() {
	all := attempts
	if len(os.Args) > 1 && os.Args[1] == "-small" {
		all = small
	}
	results := runAll(all())
	lines := json.NewEncoder(os.Stdout)
	status := 0
	for _, r := range results {
		lines.Encode(r)
		if r.Out {
			status = 1
		}
	}
	os.Exit(status)
}
