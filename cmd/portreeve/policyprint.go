package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/term"

	"portreeve.dev/gateway/client"
)

// warn tells whoever watches what is allowed and probably not meant, and which tests fail.
func (a *app) warn(found []client.Finding, failed []client.FailedTest) {
	for _, f := range found {
		a.say("portreeve: warning: %s", findingText(f))
	}
	for _, f := range failed {
		of := ""
		if f.Policy != "" {
			of = " of policy " + f.Policy
		}
		a.say("portreeve: warning: test %q%s fails: %s", f.Name, of, f.Message)
	}
}

func findingText(f client.Finding) string {
	text := f.Code + ": " + f.Message
	if f.Rule != "" {
		text = f.Code + ": rule " + f.Rule + ": " + f.Message
	}
	if f.Hint != "" {
		text += " (" + f.Hint + ")"
	}
	return text
}

// A denied error is a refusal that a script tells by the status 3.
type denied struct{ error }

func (d denied) Unwrap() error { return d.error }

// failedTests makes a refusal because of failing tests one of status 3.
func failedTests(err error) error {
	if p, ok := errors.AsType[*client.Problem](err); ok && p.Code == "tests_failed" {
		return denied{err}
	}
	return err
}

// difference prints what changes, a line for each rule and field.
func (a *app) difference(w io.Writer, d client.Difference) {
	for _, r := range d.Changes.Rules {
		switch r.Kind {
		case "added":
			fmt.Fprintf(w, "+ %s: %s\n", r.ID, ruleText(r.After))
		case "removed":
			fmt.Fprintf(w, "- %s: %s\n", r.ID, ruleText(r.Before))
		default:
			fmt.Fprintf(w, "~ %s\n", r.ID)
			for _, field := range r.Fields {
				fmt.Fprintf(w, "    %s: %s -> %s\n", field, valueText(r.Before[field]), valueText(r.After[field]))
			}
		}
	}
	for _, field := range d.Changes.Fields {
		fmt.Fprintf(w, "~ %s of the document\n", field)
	}
}

// ruleText is a rule in one line.
func ruleText(rule map[string]json.RawMessage) string {
	parts := []string{valueText(rule["action"])}
	for _, field := range []string{"hosts", "any", "cidrs", "ports", "protocols", "tls", "methods", "paths", "expires_at", "enabled"} {
		text := valueText(rule[field])
		if rule[field] == nil || field == "enabled" && text == "true" || field == "tls" && text == "pass" {
			continue
		}
		parts = append(parts, field+" "+text)
	}
	return strings.Join(parts, ", ")
}

func valueText(raw json.RawMessage) string {
	var list []any
	if raw == nil {
		return "-"
	}
	if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
		words := make([]string, len(list))
		for i, v := range list {
			words[i] = fmt.Sprint(v)
		}
		return strings.Join(words, " ")
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

const rowsShown = 15

// effect prints what a draft would have decided otherwise.
func (a *app) effect(w io.Writer, r client.Replayed) {
	span := fmt.Sprintf("of %d decisions since %s", r.Looked, r.Since.Local().Format("2006-01-02 15:04"))
	if r.More {
		span += " (there are more, older ones)"
	}
	if r.OnAll {
		span += ", tried on every sandbox as none has the policy yet"
	}
	fmt.Fprintf(w, "%d would be newly denied, %d newly allowed, %s\n", r.Denied, r.Allowed, span)
	a.effectRows(w, "-", r.NewlyDenied)
	a.effectRows(w, "+", r.NewlyAllowed)
	if r.Closed > 0 {
		fmt.Fprintf(w, "%d would be allowed, but the floor closes them, whatever a policy says\n", r.Closed)
		a.effectRows(w, "=", r.InVain)
	}
}

func (a *app) effectRows(w io.Writer, sign string, rows []client.ReplayRow) {
	for i, r := range rows {
		if i == rowsShown {
			fmt.Fprintf(w, "%s ... and %d more; -o json shows them\n", sign, len(rows)-i)
			return
		}
		by := r.Reason
		if r.Rule != "" {
			by += " by rule " + r.Rule
		}
		fmt.Fprintf(w, "%s %s  %s, in %s, like %s (%s)\n", sign, rowTarget(r), plural(r.Times, "time", "times"), plural(r.Sandboxes, "sandbox", "sandboxes"), r.Decision, by)
	}
}

func rowTarget(r client.ReplayRow) string {
	to := r.Host
	if to == "" {
		to = r.Address
	}
	if r.Stage == "name" {
		return "name " + to
	}
	if r.Port != 0 {
		to += ":" + strconv.Itoa(int(r.Port))
	}
	if r.Method != "" {
		to = r.Method + " " + to + r.Path
	}
	return to
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// confirmed asks whoever sits there. Nobody there is no.
func (a *app) confirmed(question string) bool {
	fmt.Fprintf(a.err, "portreeve: %s [y/N] ", question)
	line, _ := bufio.NewReader(a.in).ReadString('\n')
	yes := slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(line)))
	if f, ok := a.in.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		fmt.Fprintln(a.err) // the terminal's own echo ends the line
	}
	return yes
}

// ifMatch is the precondition that nobody has changed what was seen.
func ifMatch(version int64) http.Header {
	return http.Header{"If-Match": {fmt.Sprintf(`"v%d"`, version)}}
}
