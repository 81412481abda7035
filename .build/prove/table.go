package main

import (
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
)

// table prints the promises as the page docs/invariants.md, ordered by package.
func (t *tree) table(out io.Writer) {
	design := map[string][]string{}
	for _, p := range t.proofs {
		for _, n := range strings.Split(p.design, ",") {
			if n = strings.TrimSpace(n); n != "" && !slices.Contains(design[p.invariant], n) {
				design[p.invariant] = append(design[p.invariant], n)
			}
		}
	}
	all := slices.Clone(t.invariants)
	sort.SliceStable(all, func(i, j int) bool { return all[i].pkg < all[j].pkg })
	fmt.Fprint(out, `# Invariants

What each package promises, as its doc.go words it, with the tests that show it. "For" is the number of the promise of
the whole in the [threat model](threat-model.md). `+"`make prove`"+` shows for each that its test fails without its guard.
This page is made by `+"`make docs`"+` from the package comments.

| id | package | holds always | tests | for |
| --- | --- | --- | --- | --- |
`)
	for _, inv := range all {
		var tests []string
		for _, test := range inv.tests {
			folder, name, _ := strings.Cut(test, " ")
			if folder != inv.pkg {
				name = folder + " " + name
			}
			tests = append(tests, "`"+name+"`")
		}
		text := strings.ReplaceAll(strings.TrimRight(inv.text, "."), "|", "\\|")
		fmt.Fprintf(out, "| %s | `%s` | %s | %s | %s |\n", inv.id, inv.pkg, text, strings.Join(tests, ", "), strings.Join(design[inv.id], ", "))
	}
}
