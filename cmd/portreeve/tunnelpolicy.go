package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// ingressPolicy is what an org allows of tunnels.
type ingressPolicy struct {
	Modes            []string `json:"modes"`
	Ports            []string `json:"ports"`
	MaxExpiresIn     int64    `json:"max_expires_in"` // seconds
	PublicWithGrants bool     `json:"public_with_grants"`
	AnonymousWakes   int      `json:"anonymous_wakes_per_minute"`
	DryRun           bool     `json:"dry_run,omitempty"`
}

// ingressAnswer is that policy, and what it did to the tunnels that there were.
type ingressAnswer struct {
	ingressPolicy
	Version   int64    `json:"version"`
	Ended     []string `json:"ended"`
	Shortened []string `json:"shortened"`
}

func (a *app) tunnelPolicy() *cobra.Command {
	c := &cobra.Command{Use: "policy", Short: "What the org allows of tunnels", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		var now ingressAnswer
		raw, err := ask(c.Context(), api, http.MethodGet, "/settings/ingress", nil, &now)
		if err != nil {
			return err
		}
		return a.print(raw, func() { a.showIngress(now) })
	}}
	c.AddCommand(a.tunnelPolicySet())
	return c
}

func (a *app) showIngress(now ingressAnswer) {
	a.table([][]string{
		{"modes", none(strings.Join(now.Modes, ","))},
		{"ports", none(strings.Join(now.Ports, ","))},
		{"max_expires_in", (time.Duration(now.MaxExpiresIn) * time.Second).String()},
		{"public_with_grants", strconv.FormatBool(now.PublicWithGrants)},
		{"anonymous_wakes_per_minute", strconv.Itoa(now.AnonymousWakes)},
	})
	if len(now.Ended) > 0 {
		fmt.Fprintln(a.out, "ended:", strings.Join(now.Ended, " "))
	}
	if len(now.Shortened) > 0 {
		fmt.Fprintln(a.out, "shortened:", strings.Join(now.Shortened, " "))
	}
}

func none(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func (a *app) tunnelPolicySet() *cobra.Command {
	var dryRun bool
	c := &cobra.Command{Use: "set NAME=VALUE...", Short: "Change what the org allows of tunnels; tunnels that it refuses then end", Args: atLeast(1, "NAME=VALUE"),
		Long: "Changes what the org allows of tunnels, and leaves what is not named. Lists are separated by commas, and empty is none.\n" +
			"Tunnels that the new policy refuses end; those that would live too long end earlier. --dry-run only says which.",
		Example: "  portreeve tunnel policy set modes=token ports=3000,8000-8099 max_expires_in=4h\n" +
			"  portreeve tunnel policy set public_with_grants=false anonymous_wakes_per_minute=10 --dry-run",
		RunE: func(c *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			var now ingressAnswer
			if _, err := ask(c.Context(), api, http.MethodGet, "/settings/ingress", nil, &now); err != nil {
				return err
			}
			for _, arg := range args {
				name, value, _ := strings.Cut(arg, "=")
				if err := now.set(name, value); err != nil {
					return &usageError{c.CommandPath(), err}
				}
			}
			now.DryRun = dryRun
			body, err := json.Marshal(now.ingressPolicy)
			if err != nil {
				return err
			}
			header := ifMatch(now.Version)
			header.Set("Content-Type", "application/json")
			answer, err := whole(c.Context(), api, http.MethodPut, "/settings/ingress", header, string(body))
			if err != nil {
				return err
			}
			now = ingressAnswer{}
			if err := json.Unmarshal(answer, &now); err != nil {
				return err
			}
			return a.print(json.RawMessage(answer), func() { a.showIngress(now) })
		}}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only say which tunnels it would end and shorten")
	return c
}

// set sets one field from its text. Whether it may have that value is the server's to say.
func (p *ingressPolicy) set(name, value string) (err error) {
	switch name {
	case "modes":
		p.Modes = listed(value)
	case "ports":
		p.Ports = listed(value)
	case "max_expires_in":
		var d time.Duration
		d, err = time.ParseDuration(value)
		p.MaxExpiresIn = int64(d / time.Second)
	case "public_with_grants":
		p.PublicWithGrants, err = strconv.ParseBool(value)
	case "anonymous_wakes_per_minute":
		p.AnonymousWakes, err = strconv.Atoi(value)
	default:
		return fmt.Errorf("there is no %q: there are modes, ports, max_expires_in, public_with_grants, anonymous_wakes_per_minute", name)
	}
	if err != nil {
		return fmt.Errorf("%s can't be %q", name, value)
	}
	return nil
}

// listed is what commas separate.
func listed(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}
