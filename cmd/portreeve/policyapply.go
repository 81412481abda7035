package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"portreeve.dev/gateway/client"
)

type applyFlags struct {
	file, name string
	since      time.Duration
	dry, yes   bool
}

// An applied document: what it changes, and what was found on the way.
type applied struct {
	Diff   client.Difference `json:"diff"`
	Tests  client.Tested     `json:"tests"`
	Replay client.Replayed   `json:"replay"`
	// Version is the new one; 0: nothing was stored.
	Version int64 `json:"version,omitempty"`
}

func (a *app) policyApply() *cobra.Command {
	var f applyFlags
	c := &cobra.Command{Use: "apply -f FILE", Short: "Show what a document changes and would have decided otherwise, then put it in force; exit status 3 if a test of it fails", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			if f.file == "" {
				return &usageError{c.CommandPath(), errors.New("--file is missing")}
			}
			if f.file == "-" && !f.yes && !f.dry {
				return &usageError{c.CommandPath(), errors.New("standard input is the document, so nobody can be asked: say --yes or --dry-run")}
			}
			document, err := a.document(f.file)
			if err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			return a.apply(c.Context(), api, f, document)
		}}
	c.Flags().StringVarP(&f.file, "file", "f", "", "the document (JSON or YAML); - is standard input")
	c.Flags().StringVar(&f.name, "name", "ceiling", "the policy that it is; ceiling for the org's own")
	c.Flags().DurationVar(&f.since, "since", 24*time.Hour, "replay the decisions of this time")
	c.Flags().BoolVar(&f.dry, "dry-run", false, "only show")
	c.Flags().BoolVar(&f.yes, "yes", false, "ask nothing")
	return c
}

func (a *app) apply(ctx context.Context, api *client.Client, f applyFlags, document string) error {
	var all applied
	draft := draftBody(f.name, document)
	if err := api.Do(ctx, http.MethodPost, "/policies/test", draft, &all.Tests); err != nil {
		return err
	}
	if err := api.Do(ctx, http.MethodPost, policyPath(f.name)+"/diff", map[string]any{"document": document}, &all.Diff); err != nil {
		return err
	}
	a.difference(a.err, all.Diff)
	a.warn(all.Tests.Warnings, all.Tests.Others)
	refusing := 0
	for _, r := range all.Tests.Results {
		switch {
		case r.Refuses():
			refusing++
			a.say("portreeve: test %q fails: %s", r.Name, r.Message)
		case !r.Passed:
			a.say("portreeve: warning: test %q fails, as it does in the document in force: %s", r.Name, r.Message)
		}
	}
	if refusing > 0 {
		a.say("portreeve: nothing was changed: %s", plural(refusing, "test fails", "tests fail"))
		if err := a.print(all, func() {}); err != nil {
			return err
		}
		return exit(3)
	}
	if all.Diff.Same && all.Diff.From > 0 {
		return a.print(all, func() { a.say("portreeve: policy %s means this already, nothing is changed", f.name) })
	}
	draft["since"] = f.since.String()
	if err := api.Do(ctx, http.MethodPost, "/policies/replay", draft, &all.Replay); err != nil {
		return err
	}
	a.effect(a.err, all.Replay)
	if f.dry {
		return a.print(all, func() {})
	}
	if !f.yes && !a.confirmed(fmt.Sprintf("put it in force as %s?", f.name)) {
		a.say("portreeve: nothing was changed; --yes answers")
		return exit(1)
	}
	return a.store(ctx, api, f.name, document, &all)
}

// store puts a document in force, if nobody has changed it since its difference was shown.
func (a *app) store(ctx context.Context, api *client.Client, name, document string, all *applied) error {
	header := ifMatch(all.Diff.From)
	header.Set("Content-Type", mediaType(document))
	text, err := whole(ctx, api, http.MethodPut, policyPath(name)+"?wait=applied", header, document)
	if p, ok := errors.AsType[*client.Problem](err); ok && p.Code == "version_changed" {
		return &client.Hinted{Err: fmt.Errorf("somebody changed policy %s meanwhile; nothing was changed", name), Hint: "apply again, to see what it changes now"}
	}
	if err != nil {
		return failedTests(err)
	}
	var done client.Changed
	if err := json.Unmarshal(text, &done); err != nil {
		return err
	}
	all.Version = done.Version
	return a.print(all, func() { a.say("portreeve: policy %s is in force, version %d", name, done.Version) })
}

func (a *app) policyReplay() *cobra.Command {
	var name, file, sandbox string
	var version int64
	var since time.Duration
	c := &cobra.Command{Use: "replay", Short: "What would a document have decided otherwise?", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		if (file == "") == (version == 0) {
			return &usageError{c.CommandPath(), errors.New("give --file or --version")}
		}
		body := map[string]any{"since": since.String()}
		if version != 0 {
			body["version"] = version
		} else {
			document, err := a.document(file)
			if err != nil {
				return err
			}
			body["document"] = document
		}
		if name != "ceiling" {
			body["policy"] = name
		}
		if sandbox != "" {
			body["sandbox"] = sandbox
		}
		var r client.Replayed
		return a.answer(c.Context(), http.MethodPost, "/policies/replay", body, &r, func() { a.effect(a.out, r) })
	}}
	c.Flags().StringVar(&name, "name", "ceiling", "the policy that it would be; ceiling for the org's own")
	c.Flags().StringVarP(&file, "file", "f", "", "the document; - is standard input")
	c.Flags().Int64Var(&version, "version", 0, "an older version in place of a document")
	c.Flags().StringVar(&sandbox, "sandbox", "", "only what this sandbox did")
	c.Flags().DurationVar(&since, "since", 24*time.Hour, "how far to look back")
	return c
}

func (a *app) policyLearn() *cobra.Command {
	var policy, sandbox string
	var since time.Duration
	var names, fresh bool
	c := &cobra.Command{Use: "learn", Short: "Draft the narrowest rules for what was observed, with what each rests on", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		body := map[string]any{"since": since.String()}
		for field, value := range map[string]string{"policy": policy, "sandbox": sandbox} {
			if value != "" {
				body[field] = value
			}
		}
		for field, yes := range map[string]bool{"names": names, "only_new": fresh} {
			if yes {
				body[field] = true
			}
		}
		api, err := a.client()
		if err != nil {
			return err
		}
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		form := "application/yaml"
		if a.output == "json" {
			form = "application/json"
		}
		answer, err := whole(c.Context(), api, http.MethodPost, "/policies/learn", http.Header{"Content-Type": {"application/json"}, "Accept": {form}}, string(text))
		if err != nil {
			return err
		}
		return a.print(json.RawMessage(answer), func() { a.out.Write(answer) })
	}}
	c.Flags().StringVar(&policy, "name", "", "only what sandboxes under this policy did; ceiling for those under the org's own alone")
	c.Flags().StringVar(&sandbox, "sandbox", "", "only what this sandbox did")
	c.Flags().DurationVar(&since, "since", 24*time.Hour, "how far to look back")
	c.Flags().BoolVar(&names, "names", false, "draft https also for names that were only looked up")
	c.Flags().BoolVar(&fresh, "only-new", false, "leave out what is allowed already")
	return c
}
