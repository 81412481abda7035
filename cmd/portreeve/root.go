package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"portreeve.dev/gateway/client"
	"portreeve.dev/gateway/release"
)

// Where a machine keeps everything unless it is told otherwise, and the file there that says how to reach it.
const (
	defaultState = "/var/lib/portreeve"
	defaultInfo  = defaultState + "/info.json"
)

// An app is one call of the program: its streams and the flags that every command has.
type app struct {
	in       io.Reader
	out, err io.Writer
	infoFile string
	output   string // text or json
}

// An exit is a command that ended with a status of its own.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	a := &app{in: in, out: out, err: errs}
	root := a.root()
	root.SetArgs(args)
	return a.status(root.ExecuteContext(ctx))
}

func (a *app) status(err error) int {
	var code exit
	var hinted *client.Hinted
	var usage *usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintf(a.err, "portreeve: error: %v\n", err)
	switch {
	case errors.As(err, &hinted):
		fmt.Fprintf(a.err, "portreeve: hint: %s\n", hinted.Hint)
	case errors.As(err, &usage):
		fmt.Fprintf(a.err, "portreeve: hint: %s --help\n", usage.command)
		return 2
	case errors.As(err, &denied{}):
		return 3
	}
	return 1
}

// A usageError is a call that no command understands.
type usageError struct {
	command string
	err     error
}

func (u *usageError) Error() string { return u.err.Error() }

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "portreeve",
		Short:         "One door for code you do not trust",
		SilenceErrors: true, SilenceUsage: true,
		Version:           release.Version(),
		PersistentPreRunE: func(*cobra.Command, []string) error { return a.checkOutput() },
	}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return &usageError{c.CommandPath(), err} })
	root.PersistentFlags().StringVar(&a.infoFile, "info", defaultInfo, "file that says how to reach portreeve")
	root.PersistentFlags().StringVarP(&a.output, "output", "o", "text", "text or json")
	group(root)
	root.AddCommand(a.dev(), a.runCommand(), a.shell(), a.allow(), a.explain(), a.decisions(), a.flows(), a.policy(), a.sandbox(), a.probe(), a.canary(), a.secret(), a.grantCommand(), a.audit(), a.attachCommand(), attachInner(),
		a.tunnel(), a.forwardCommand(), a.requests(), a.ca(), a.floor(), a.limits(), a.usage(), a.webhook(), a.sandboxVerb("pause", "Stop a sandbox's clock; a call through a tunnel wakes it", http.MethodPost, "/pause"))
	root.AddCommand(roles()...)
	return root
}

func (a *app) checkOutput() error {
	if a.output != "text" && a.output != "json" {
		return &usageError{"portreeve", fmt.Errorf("--output %q: it is text or json", a.output)}
	}
	return nil
}

func (a *app) client() (*client.Client, error) { return client.Open(a.infoFile) }

// exactly is cobra.ExactArgs as a usage error that names what is missing.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return &usageError{c.CommandPath(), fmt.Errorf("%s takes %d arguments %v, not %d", c.CommandPath(), len(names), names, len(args))}
	}
}

// atLeast is exactly for a command that takes more.
func atLeast(n int, names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) >= n {
			return nil
		}
		return &usageError{c.CommandPath(), fmt.Errorf("%s takes %v, not %d arguments", c.CommandPath(), names, len(args))}
	}
}

// group makes c a command that only holds others: alone it shows its help, and a word that is none of them is wrong usage.
func group(c *cobra.Command) {
	c.SuggestionsMinimumDistance = 2
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		text := fmt.Sprintf("unknown command %q for %s", args[0], c.CommandPath())
		if near := c.SuggestionsFor(args[0]); len(near) > 0 {
			text += fmt.Sprintf(": did you mean %s?", near[0])
		}
		return &usageError{c.CommandPath(), errors.New(text)}
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
}

// programDir is where this program and its companions are.
func programDir() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	path, err = filepath.EvalSymlinks(path)
	return filepath.Dir(path), err
}
