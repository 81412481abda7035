package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"portreeve.dev/gateway/client"
)

// segment makes any text safe as one part of a path.
func segment(s string) string { return url.PathEscape(s) }

func (a *app) runCommand() *cobra.Command {
	var f createFlags
	var keep bool
	c := &cobra.Command{Use: "run -- CMD [ARG...]", Short: "Run a command in a sandbox of its own", Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &usageError{c.CommandPath(), errors.New("there is no command to run: portreeve run -- CMD")}
			}
			return a.runOnce(c.Context(), f, keep, args)
		}}
	f.register(c)
	c.Flags().BoolVar(&keep, "keep", false, "leave the sandbox running")
	return c
}

func (a *app) runOnce(ctx context.Context, f createFlags, keep bool, argv []string) error {
	api, err := a.client()
	if err != nil {
		return err
	}
	_, made, err := createBox(ctx, api, f)
	if err != nil {
		return err
	}
	code, err := a.stream(ctx, api, made.ID, argv)
	a.tellDenials(api, made.ID)
	if keep {
		a.say("portreeve: the sandbox goes on: %s", made.ID)
	} else if derr := deleteBox(api, made.ID); derr != nil {
		a.say("portreeve: error: deleting %s: %v", made.ID, derr)
	}
	if err == nil && code != 0 {
		return exit(code)
	}
	return err
}

// deleteBox also works when the command's own context has ended.
func deleteBox(api *client.Client, id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return api.Do(ctx, http.MethodDelete, "/sandbox/"+segment(id), nil, nil)
}

func (a *app) sandboxExec() *cobra.Command {
	return &cobra.Command{Use: "exec ID -- CMD [ARG...]", Short: "Run a command in a sandbox", Args: atLeast(2, "ID", "CMD"),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			code, err := a.stream(c.Context(), api, args[0], args[1:])
			if err == nil && code != 0 {
				return exit(code)
			}
			return err
		}}
}

// An output is one event of a running command.
type output struct {
	Type  string `json:"type"` // stdout, stderr, exit, error, done
	Data  string `json:"data"`
	Code  int    `json:"code"`
	Error string `json:"error"`
}

// stream runs argv in the sandbox, passes its output on, and returns its exit code.
func (a *app) stream(ctx context.Context, api *client.Client, id string, argv []string) (int, error) {
	body, err := json.Marshal(map[string]any{"command": argv, "stream": true})
	if err != nil {
		return 0, err
	}
	code, ended := 0, false
	err = api.Events(ctx, http.MethodPost, "/sandbox/"+segment(id)+"/execute", bytes.NewReader(body), func(e client.Event) error {
		var o output
		if err := json.Unmarshal([]byte(e.Data), &o); err != nil {
			return fmt.Errorf("reading the command's output: %w", err)
		}
		switch o.Type {
		case "stdout":
			io.WriteString(a.out, o.Data)
		case "stderr":
			io.WriteString(a.err, o.Data)
		case "exit":
			code, ended = o.Code, true
		case "error":
			return errors.New(o.Error)
		}
		return nil
	})
	if status, ok := a.notRun(argv[0], err); ok {
		return status, nil
	}
	if err == nil && !ended {
		err = errors.New("the sandbox ended before the command did")
	}
	return code, err
}

// notRun turns the refusal of a program that can't be run into the status that a shell gives then.
func (a *app) notRun(program string, err error) (int, bool) {
	var p *client.Problem
	if !errors.As(err, &p) {
		return 0, false
	}
	status, ok := map[string]int{"command_not_found": 127, "not_executable": 126}[p.Code]
	if ok {
		a.say("portreeve: error: %s: %v", program, p)
	}
	return status, ok
}
