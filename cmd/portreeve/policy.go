package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"portreeve.dev/gateway/client"
)

func (a *app) policy() *cobra.Command {
	c := &cobra.Command{Use: "policy", Short: "Read, write and try policies; NAME is ceiling for the org's own"}
	group(c)
	c.AddCommand(a.policyList(), a.policyGet(), a.policySet(), a.policyApply(), a.policyDelete(), a.policyCheck(), a.policyTest(), a.policyLint(), a.policyDiff(),
		a.policyHistory(), a.policyRestore(), a.policyReplay(), a.policyLearn(), a.policyPresets(), a.policyPrune())
	return c
}

// policyPath is where a policy is: the ceiling has a place of its own.
func policyPath(name string) string {
	if name == "ceiling" {
		return "/settings/egress"
	}
	return "/policies/" + segment(name)
}

func (a *app) policyList() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the named policies", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		var list struct {
			Policies []struct {
				Name    string `json:"name"`
				Version int64  `json:"version"`
				Rules   int    `json:"rules"`
				Default bool   `json:"default"`
			} `json:"policies"`
		}
		return a.answer(c.Context(), http.MethodGet, "/policies", nil, &list, func() {
			rows := [][]string{{"NAME", "VERSION", "RULES", "DEFAULT"}}
			for _, p := range list.Policies {
				isDefault := "-"
				if p.Default {
					isDefault = "yes"
				}
				rows = append(rows, []string{p.Name, fmt.Sprint(p.Version), fmt.Sprint(p.Rules), isDefault})
			}
			a.table(rows)
		})
	}}
}

func (a *app) policyGet() *cobra.Command {
	var version int64
	c := &cobra.Command{Use: "get NAME", Short: "Show a policy, as it was written or as YAML; with -o json in its normal form", Args: exactly("NAME"), RunE: func(c *cobra.Command, args []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		path := policyPath(args[0])
		if version > 0 {
			path += fmt.Sprintf("/versions/%d", version)
		}
		form := http.Header{"Accept": {"application/yaml"}}
		if a.output == "json" {
			form = http.Header{"Accept": {"application/json"}}
		}
		text, err := whole(c.Context(), api, http.MethodGet, path, form, "")
		if err != nil {
			return err
		}
		return a.print(json.RawMessage(text), func() { a.out.Write(text) })
	}}
	c.Flags().Int64Var(&version, "version", 0, "an older version")
	return c
}

func (a *app) policyDelete() *cobra.Command {
	return &cobra.Command{Use: "delete NAME", Short: "Delete a named policy; restore brings it back", Args: exactly("NAME"), RunE: func(c *cobra.Command, args []string) error {
		return a.answer(c.Context(), http.MethodDelete, "/policies/"+segment(args[0]), nil, nil, func() { a.say("portreeve: policy %s is deleted", args[0]) })
	}}
}

func (a *app) policySet() *cobra.Command {
	var file string
	var report bool
	c := &cobra.Command{Use: "set NAME", Short: "Replace a policy by a document (JSON or YAML)", Args: exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			document, err := a.document(file)
			if err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			path := policyPath(args[0]) + "?wait=applied"
			if report {
				path += "&tests=report"
			}
			text, err := whole(c.Context(), api, http.MethodPut, path, http.Header{"Content-Type": {mediaType(document)}}, document)
			if err != nil {
				return failedTests(err)
			}
			var done client.Changed
			if err := json.Unmarshal(text, &done); err != nil {
				return err
			}
			a.warn(done.Warnings, done.Failed)
			return a.print(json.RawMessage(text), func() { a.say("portreeve: policy %s is in force", args[0]) })
		}}
	c.Flags().BoolVar(&report, "report-tests", false, "only tell failing tests of the document")
	c.Flags().StringVarP(&file, "file", "f", "-", "the document; - is standard input")
	return c
}

// documentMost is how long a document may be; what is longer is refused and not cut.
const documentMost = 4 << 20

func (a *app) document(file string) (string, error) {
	if file == "-" {
		data, err := io.ReadAll(io.LimitReader(a.in, documentMost+1))
		if err == nil && len(data) > documentMost {
			err = fmt.Errorf("the document on standard input is over %d bytes", documentMost)
		}
		return string(data), err
	}
	data, err := os.ReadFile(file)
	return string(data), err
}

func mediaType(document string) string {
	if json.Valid([]byte(document)) {
		return "application/json"
	}
	return "application/yaml"
}

func (a *app) policyCheck() *cobra.Command {
	var method, policy, sandbox, file string
	c := &cobra.Command{Use: "check URL", Short: "Would this be allowed? Exit status 3 if not", Args: exactly("URL"),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			body := map[string]any{"url": args[0], "method": method}
			if policy != "" {
				body["policy"] = policy
			}
			if sandbox != "" {
				body["sandbox"] = sandbox
			}
			if file != "" {
				document, err := a.document(file)
				if err != nil {
					return err
				}
				body["document"] = document
			}
			var raw json.RawMessage
			if err := api.Do(c.Context(), http.MethodPost, "/policies/check", body, &raw); err != nil {
				return err
			}
			return a.printVerdict(raw)
		}}
	c.Flags().StringVar(&method, "method", "GET", "HTTP method")
	c.Flags().StringVar(&policy, "policy", "", "under this named policy")
	c.Flags().StringVar(&sandbox, "sandbox", "", "for this sandbox")
	c.Flags().StringVarP(&file, "file", "f", "", "under this draft instead; - is standard input")
	return c
}

func (a *app) printVerdict(raw json.RawMessage) error {
	var answer struct {
		Verdict string `json:"verdict"`
		Reason  string `json:"reason"`
		Rule    string `json:"rule"`
		Layer   string `json:"layer"`
		Why     struct {
			Layers []client.LayerSays `json:"layers"`
		} `json:"explanation"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return err
	}
	err := a.print(raw, func() {
		fmt.Fprintf(a.out, "%s: %s (rule %s, %s)\n", answer.Verdict, answer.Reason, orDash(answer.Rule), orDash(answer.Layer))
		var rows [][]string
		for _, l := range answer.Why.Layers { // in the order they are asked
			rows = append(rows, []string{"  " + l.Name, l.Action, l.Reason, orDash(l.Rule), l.Detail})
		}
		a.table(rows)
	})
	if err == nil && answer.Verdict != "allow" {
		return exit(3)
	}
	return err
}

func (a *app) allow() *cobra.Command {
	var lifetime time.Duration
	var dry bool
	c := &cobra.Command{Use: "allow HOST", Short: "Allow a host for a while; shows first what that would have allowed", Args: exactly("HOST"),
		RunE: func(c *cobra.Command, args []string) error {
			if lifetime <= 0 {
				return &usageError{c.CommandPath(), errors.New("--for must be longer than nothing")}
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			body := map[string]any{"host": args[0], "for": lifetime.String(), "dry_run": true}
			var preview struct {
				Would struct {
					Count     int               `json:"count"`
					Decisions []client.Decision `json:"decisions"` // the newest of them
				} `json:"would_have_allowed"`
			}
			if err := api.Do(c.Context(), http.MethodPost, "/allow", body, &preview); err != nil {
				return err
			}
			a.say("portreeve: this would have allowed %d of the recorded denials", preview.Would.Count)
			for _, d := range preview.Would.Decisions {
				a.say("  %s", strings.Join(row(d), "  "))
			}
			if dry {
				return nil
			}
			body["dry_run"] = false
			var raw json.RawMessage
			if err := api.Do(c.Context(), http.MethodPost, "/allow", body, &raw); err != nil {
				return err
			}
			return a.print(raw, func() { a.say("portreeve: %s is allowed for %s", args[0], lifetime) })
		}}
	c.Flags().DurationVar(&lifetime, "for", time.Hour, "how long")
	c.Flags().BoolVar(&dry, "dry-run", false, "only show what it would have allowed")
	return c
}
