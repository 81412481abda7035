package main

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"portreeve.dev/gateway/client"
)

// untitled stands for a policy that has no name yet, where one is judged under the ceiling.
const untitled = "untitled"

func (a *app) policyTest() *cobra.Command {
	var name string
	var local bool
	c := &cobra.Command{Use: "test FILE", Short: "Run the tests of a document, alone and under the server's ceiling; exit status 3 if one fails", Args: exactly("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			document, err := a.document(args[0])
			if err != nil {
				return err
			}
			answer := testAnswer{}
			if answer.Alone, err = client.RunTests(document, time.Now()); err != nil {
				return err
			}
			if !local {
				api, err := a.client()
				if err != nil {
					return err
				}
				answer.Server = &client.Tested{}
				if err := api.Do(c.Context(), http.MethodPost, "/policies/test", draftBody(name, document), answer.Server); err != nil {
					return err
				}
			}
			if err := a.print(answer, func() { a.tested(answer, name) }); err != nil {
				return err
			}
			if answer.failed() {
				return exit(3)
			}
			return nil
		}}
	c.Flags().StringVar(&name, "name", untitled, "the policy that it is, or will be; ceiling for the org's own")
	c.Flags().BoolVar(&local, "local", false, "only alone; asks no server")
	return c
}

// A testAnswer is how the tests of a document went.
type testAnswer struct {
	Alone  []client.TestResult `json:"alone"`
	Server *client.Tested      `json:"server,omitempty"`
}

// failed reports whether a change would be refused.
func (t testAnswer) failed() bool {
	all := t.Alone
	if t.Server != nil {
		all = slices.Concat(all, t.Server.Results)
	}
	return slices.ContainsFunc(all, client.TestResult.Refuses)
}

func (a *app) tested(t testAnswer, name string) {
	a.results("alone", t.Alone)
	if t.Server == nil {
		return
	}
	where := "under the ceiling"
	if name == "ceiling" {
		where = "as the ceiling"
	}
	a.results(where, t.Server.Results)
	a.warn(t.Server.Warnings, t.Server.Others)
}

func (a *app) results(where string, all []client.TestResult) {
	passed := 0
	for _, r := range all {
		if r.Passed {
			passed++
			continue
		}
		at := where
		if r.ToldOnly {
			at += "; refuses no change, as the document in force fails too"
		}
		fmt.Fprintf(a.out, "FAIL %s (%s): %s\n", r.Name, at, r.Message)
	}
	fmt.Fprintf(a.out, "%s: %d of %s passed\n", where, passed, plural(len(all), "test", "tests"))
}

// draftBody is a document with the name under which it is judged.
func draftBody(name, document string) map[string]any {
	body := map[string]any{"document": document}
	if name != "" && name != "ceiling" {
		body["policy"] = name
	}
	return body
}

func (a *app) policyLint() *cobra.Command {
	var name string
	var local bool
	c := &cobra.Command{Use: "lint FILE", Short: "Look for what a document allows and probably does not mean", Args: exactly("FILE"), RunE: func(c *cobra.Command, args []string) error {
		document, err := a.document(args[0])
		if err != nil {
			return err
		}
		var found lintAnswer
		raw := any(&found)
		if local {
			found.Findings, err = client.Lint(document, time.Now())
		} else {
			var api *client.Client
			if api, err = a.client(); err == nil {
				raw, err = ask(c.Context(), api, http.MethodPost, "/policies/lint", draftBody(name, document), &found)
			}
		}
		if err != nil {
			return err
		}
		return a.print(raw, func() {
			for _, f := range found.Findings {
				fmt.Fprintf(a.out, "%s: %s\n", f.Path, findingText(f))
			}
			if len(found.Findings) == 0 {
				a.say("portreeve: nothing found")
			}
		})
	}}
	c.Flags().StringVar(&name, "name", untitled, "the policy that it is, or will be; ceiling for the org's own")
	c.Flags().BoolVar(&local, "local", false, "by the document and the built-in floor alone; asks no server")
	return c
}

// A lintAnswer is what was found in a document.
type lintAnswer struct {
	Findings []client.Finding `json:"findings"`
}

func (a *app) policyPresets() *cobra.Command {
	return &cobra.Command{Use: "presets", Short: "List the presets that a document may name", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		var list struct {
			Presets []struct {
				Name        string `json:"name"`
				Description string `json:"description"`
				Rules       []any  `json:"rules"`
			} `json:"presets"`
		}
		return a.answer(c.Context(), http.MethodGet, "/policies/presets", nil, &list, func() {
			rows := [][]string{{"NAME", "RULES", "IS FOR"}}
			for _, p := range list.Presets {
				rows = append(rows, []string{p.Name, fmt.Sprint(len(p.Rules)), p.Description})
			}
			a.table(rows)
		})
	}}
}
