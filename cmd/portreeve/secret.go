package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"portreeve.dev/gateway/client"
)

// maxSecret is the longest value that is read.
const maxSecret = 64 << 10

func (a *app) secret() *cobra.Command {
	c := &cobra.Command{Use: "secret", Short: "Keep values that go into requests and never into a sandbox"}
	group(c)
	c.AddCommand(a.secretSet(), a.secretList(), a.secretDelete())
	return c
}

func (a *app) secretSet() *cobra.Command {
	var file string
	c := &cobra.Command{Use: "set NAME", Short: "Keep a value, from standard input or a file; the next one replaces it", Args: exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			value, err := a.readSecret(args[0], file)
			if err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			var raw json.RawMessage
			err = api.Do(c.Context(), http.MethodPut, "/secrets/"+segment(args[0]), map[string]string{"value": value}, &raw)
			var p *client.Problem
			if errors.As(err, &p) && p.Status == http.StatusNotFound {
				err = api.Do(c.Context(), http.MethodPost, "/secrets", map[string]string{"name": args[0], "value": value}, &raw)
			}
			if err != nil {
				return err
			}
			return a.print(raw, func() {
				a.say("portreeve: secret %s is kept", args[0])
				a.say("portreeve: hint: say where it may go: portreeve grant %s --host api.example.com", args[0])
			})
		}}
	c.Flags().StringVarP(&file, "file", "f", "-", "the file that holds the value; - is standard input")
	return c
}

// readSecret reads a value without its last line end, and without showing it where somebody types.
func (a *app) readSecret(name, file string) (string, error) {
	in := a.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	}
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprintf(a.err, "value of %s (not shown): ", name)
		value, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(a.err)
		return string(value), err
	}
	value, err := io.ReadAll(io.LimitReader(in, maxSecret+1))
	if len(value) > maxSecret {
		return "", fmt.Errorf("the value of %s is over %d bytes long", name, maxSecret) // never a part of it
	}
	return string(bytes.TrimRight(value, "\r\n")), err
}

func (a *app) secretList() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the secrets and where they may go, without values", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		var list struct {
			Secrets []struct {
				Name    string  `json:"name"`
				Version int64   `json:"version"`
				Grants  []grant `json:"grants"`
			} `json:"secrets"`
		}
		return a.answer(c.Context(), http.MethodGet, "/secrets", nil, &list, func() {
			rows := [][]string{{"NAME", "VERSION", "MAY GO TO"}}
			for _, s := range list.Secrets {
				var places []string
				for _, g := range s.Grants {
					places = append(places, g.String())
				}
				rows = append(rows, []string{s.Name, fmt.Sprint(s.Version), orDash(strings.Join(places, ", "))})
			}
			a.table(rows)
		})
	}}
}

func (a *app) secretDelete() *cobra.Command {
	return &cobra.Command{Use: "delete NAME", Short: "Delete a secret and its grants", Args: exactly("NAME"), RunE: func(c *cobra.Command, args []string) error {
		return a.act(c.Context(), http.MethodDelete, "/secrets/"+segment(args[0]), nil)
	}}
}

// A grant is one place to which a secret may go.
type grant struct {
	Host     string   `json:"host"`
	Port     uint16   `json:"port,omitempty"`
	Methods  []string `json:"methods,omitempty"`
	Path     string   `json:"path,omitempty"`
	Place    string   `json:"place"`
	Header   string   `json:"header"`
	Template string   `json:"template,omitempty"`
	Policies []string `json:"policies,omitempty"`
	Scrub    string   `json:"scrub,omitempty"`
}

func (g grant) String() string {
	methods := "any method"
	if len(g.Methods) > 0 {
		methods = strings.Join(g.Methods, "|")
	}
	return fmt.Sprintf("%s https://%s:%d%s (%s)", methods, g.Host, g.Port, g.Path, g.Header)
}

func (a *app) grantCommand() *cobra.Command {
	g := grant{Place: "header"}
	c := &cobra.Command{Use: "grant NAME", Short: "Let a secret go to a host, in place of the grants that it had", Args: exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			if g.Host == "" {
				return &usageError{c.CommandPath(), errors.New("--host is needed: where may the secret go?")}
			}
			body := map[string]any{"grants": []grant{g}}
			return a.answer(c.Context(), http.MethodPut, "/secrets/"+segment(args[0])+"/grants", body, nil, func() {
				a.say("portreeve: %s goes into requests to %s that the policy allows", args[0], g.Host)
				a.say("portreeve: hint: a grant opens nothing; the policy must allow %s with tls: inspect", g.Host)
			})
		}}
	c.Flags().StringVar(&g.Host, "host", "", "the host")
	c.Flags().Uint16Var(&g.Port, "port", 443, "its port")
	c.Flags().StringSliceVar(&g.Methods, "method", nil, "methods; default all")
	c.Flags().StringVar(&g.Path, "path", "/**", "path, as in a policy")
	c.Flags().StringVar(&g.Header, "header", "Authorization", "the header that is set")
	c.Flags().StringVar(&g.Template, "template", "Bearer {value}", "the header's value")
	c.Flags().StringVar(&g.Scrub, "scrub", "headers", "what of the host's answers is searched for the value, and has it replaced: headers, or bodies too")
	c.Flags().StringSliceVar(&g.Policies, "policy", nil, "only for sandboxes under these policies")
	return c
}
