package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"portreeve.dev/gateway/client"
)

func (a *app) policyHistory() *cobra.Command {
	var limit int
	var before int64
	c := &cobra.Command{Use: "history NAME", Short: "List the versions of a policy, newest first", Args: exactly("NAME"), RunE: func(c *cobra.Command, args []string) error {
		path := fmt.Sprintf("%s/versions?limit=%d", policyPath(args[0]), limit)
		if before > 0 {
			path += fmt.Sprintf("&before=%d", before)
		}
		var list struct {
			Versions []client.Version `json:"versions"`
			Next     *int64           `json:"next_before"`
		}
		return a.answer(c.Context(), http.MethodGet, path, nil, &list, func() {
			rows := [][]string{{"VERSION", "SINCE", "BY", "BYTES", "IS"}}
			for _, v := range list.Versions {
				is := []string{}
				if v.Current {
					is = append(is, "in force")
				}
				if v.Restored > 0 {
					is = append(is, fmt.Sprintf("version %d again", v.Restored))
				}
				rows = append(rows, []string{fmt.Sprint(v.Version), v.CreatedAt.Local().Format(time.DateTime), v.CreatedBy, fmt.Sprint(v.Bytes), orDash(strings.Join(is, ", "))})
			}
			a.table(rows)
			if list.Next != nil {
				a.say("portreeve: there are older ones: --before %d", *list.Next)
			}
		})
	}}
	c.Flags().IntVar(&limit, "limit", 50, "at most so many, to 200")
	c.Flags().Int64Var(&before, "before", 0, "only versions below this one")
	return c
}

func (a *app) policyDiff() *cobra.Command {
	var from, to int64
	var file string
	c := &cobra.Command{Use: "diff NAME", Short: "Show what two versions, or a version and a document, differ in", Args: exactly("NAME"), RunE: func(c *cobra.Command, args []string) error {
		body := map[string]any{}
		switch {
		case file != "" && to != 0:
			return &usageError{c.CommandPath(), errors.New("--to and --file exclude each other")}
		case file != "":
			document, err := a.document(file)
			if err != nil {
				return err
			}
			body["document"] = document
		case from == 0 && to == 0:
			return &usageError{c.CommandPath(), errors.New("give --from, --to or --file")}
		}
		for name, version := range map[string]int64{"from": from, "to": to} {
			if version != 0 {
				body[name] = version
			}
		}
		var d client.Difference
		return a.answer(c.Context(), http.MethodPost, policyPath(args[0])+"/diff", body, &d, func() {
			a.difference(a.out, d)
			if d.Same {
				a.say("portreeve: both mean the same")
			}
		})
	}}
	c.Flags().Int64Var(&from, "from", 0, "a version; default the one in force")
	c.Flags().Int64Var(&to, "to", 0, "a version; default the one in force")
	c.Flags().StringVarP(&file, "file", "f", "", "a document in place of the second version; - is standard input")
	return c
}

func (a *app) policyRestore() *cobra.Command {
	var yes, report bool
	c := &cobra.Command{Use: "restore NAME VERSION", Short: "Bring a version of a policy back, as a new one", Args: exactly("NAME", "VERSION"), RunE: func(c *cobra.Command, args []string) error {
		version, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil || version < 1 {
			return &usageError{c.CommandPath(), fmt.Errorf("%q is not a version; see: portreeve policy history %s", args[1], args[0])}
		}
		api, err := a.client()
		if err != nil {
			return err
		}
		at := policyPath(args[0])
		var d client.Difference
		if _, err := ask(c.Context(), api, http.MethodPost, at+"/diff", map[string]any{"to": version}, &d); err != nil {
			return err
		}
		a.difference(a.err, d)
		if !yes && !a.confirmed(fmt.Sprintf("bring version %d of %s back?", version, args[0])) {
			a.say("portreeve: nothing was changed; --yes answers")
			return exit(1)
		}
		path := fmt.Sprintf("%s/versions/%d/restore?wait=applied", at, version)
		if report {
			path += "&tests=report"
		}
		text, err := whole(c.Context(), api, http.MethodPost, path, ifMatch(d.From), "")
		if err != nil {
			return failedTests(err)
		}
		var done client.Changed
		if err := json.Unmarshal(text, &done); err != nil {
			return err
		}
		a.warn(done.Warnings, done.Failed)
		return a.print(json.RawMessage(text), func() {
			a.say("portreeve: policy %s is version %d again, as version %d", args[0], version, done.Version)
		})
	}}
	c.Flags().BoolVar(&yes, "yes", false, "ask nothing")
	c.Flags().BoolVar(&report, "report-tests", false, "only tell failing tests of the document")
	return c
}

func (a *app) policyPrune() *cobra.Command {
	return &cobra.Command{Use: "prune NAME", Short: "Take the rules whose time is over out of a policy", Args: exactly("NAME"), RunE: func(c *cobra.Command, args []string) error {
		var done struct {
			Pruned []string `json:"pruned"`
		}
		return a.answer(c.Context(), http.MethodPost, policyPath(args[0])+"/prune", nil, &done, func() {
			for _, id := range done.Pruned {
				fmt.Fprintln(a.out, id)
			}
			a.say("portreeve: %s gone", plural(len(done.Pruned), "rule is", "rules are"))
		})
	}}
}
