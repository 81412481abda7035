package main

import (
	"encoding/json"
	"net/http"

	"github.com/spf13/cobra"

	"portreeve.dev/gateway/client"
)

// sandboxEgress is about a sandbox's own list, which narrows what its policy allows and is changed while it runs.
func (a *app) sandboxEgress() *cobra.Command {
	c := &cobra.Command{Use: "egress", Short: "Read and change the own list of a sandbox, which narrows what its policy allows"}
	group(c)
	c.AddCommand(a.egressGet(), a.egressSet(), a.egressClear())
	return c
}

func egressPath(id string) string { return "/sandbox/" + segment(id) + "/egress" }

func (a *app) egressGet() *cobra.Command {
	return &cobra.Command{Use: "get ID", Short: "Show it as YAML, or with -o json", Args: exactly("ID"), RunE: func(c *cobra.Command, args []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		form := "application/yaml"
		if a.output == "json" {
			form = "application/json"
		}
		text, err := whole(c.Context(), api, http.MethodGet, egressPath(args[0]), http.Header{"Accept": {form}}, "")
		if err != nil {
			return err
		}
		return a.print(json.RawMessage(text), func() { a.out.Write(text) })
	}}
}

func (a *app) egressSet() *cobra.Command {
	var file string
	c := &cobra.Command{Use: "set ID", Short: "Set it to a document (JSON or YAML); it holds at once", Args: exactly("ID"), RunE: func(c *cobra.Command, args []string) error {
		document, err := a.document(file)
		if err != nil {
			return err
		}
		api, err := a.client()
		if err != nil {
			return err
		}
		text, err := whole(c.Context(), api, http.MethodPut, egressPath(args[0])+"?wait=applied", http.Header{"Content-Type": {mediaType(document)}}, document)
		if err != nil {
			return failedTests(err)
		}
		var done client.Changed
		if err := json.Unmarshal(text, &done); err != nil {
			return err
		}
		a.warn(nil, done.Failed)
		return a.print(json.RawMessage(text), func() { a.say("portreeve: the own list of %s is in force", args[0]) })
	}}
	c.Flags().StringVarP(&file, "file", "f", "-", "the document; - is standard input")
	return c
}

func (a *app) egressClear() *cobra.Command {
	return &cobra.Command{Use: "clear ID", Short: "Take it away: the policy alone holds", Args: exactly("ID"), RunE: func(c *cobra.Command, args []string) error {
		return a.answer(c.Context(), http.MethodDelete, egressPath(args[0])+"?wait=applied", nil, nil, func() { a.say("portreeve: %s has no list of its own any more", args[0]) })
	}}
}

func (a *app) sandboxPolicy() *cobra.Command {
	return &cobra.Command{Use: "policy ID NAME", Short: "Put a sandbox under another policy, at once; NAME is ceiling for the org's own alone", Args: exactly("ID", "NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			body := map[string]any{"policy": args[1]}
			if args[1] == "ceiling" {
				body["policy"] = nil
			}
			return a.answer(c.Context(), http.MethodPut, "/sandbox/"+segment(args[0])+"/policy?wait=applied", body, nil, func() { a.say("portreeve: %s is under %s", args[0], args[1]) })
		}}
}

// ownText says whether a sandbox has a list of its own.
func ownText(b box) string {
	if len(b.Egress) == 0 {
		return "-"
	}
	return "yes: portreeve sandbox egress get " + b.ID
}
