package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"portreeve.dev/gateway/attach"
	"portreeve.dev/gateway/client"
)

// attachLife is how long an attached sandbox lives without word from its command's runner.
const attachLife = 10 * time.Minute

type attachFlags struct {
	policy  string
	timeout time.Duration
	labels  map[string]string
}

func (a *app) attachCommand() *cobra.Command {
	var f attachFlags
	c := &cobra.Command{Use: "attach -- CMD [ARG...]", Short: "Run a command on this machine whose network is under a policy", Args: cobra.ArbitraryArgs,
		Long: "Runs a command on this machine, as you, in a network of its own that has no way out but Portreeve's proxy: what the policy\n" +
			"does not allow goes nowhere, whether or not the command knows of proxies. It walls the network only, not your files and not\n" +
			"the kernel; for those there is portreeve run.",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &usageError{c.CommandPath(), errors.New("there is no command to run: portreeve attach -- CMD")}
			}
			return a.attachRun(c.Context(), f, args)
		}}
	c.Flags().StringVar(&f.policy, "policy", "", "named policy; default the org's")
	c.Flags().DurationVar(&f.timeout, "timeout", 0, "end the command's network after this long; default: when the command ends")
	c.Flags().StringToStringVar(&f.labels, "label", nil, "words of your own for the sandbox, NAME=VALUE")
	return c
}

// attachInner is what attach starts in the namespaces: it becomes the command.
func attachInner() *cobra.Command {
	return &cobra.Command{Use: attach.InnerCommand, Hidden: true, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error { return exit(attach.Inner(args)) }}
}

func (a *app) attachRun(ctx context.Context, f attachFlags, argv []string) error {
	ctx = context.WithoutCancel(ctx) // signals are the command's
	api, err := a.client()
	if err != nil {
		return err
	}
	life := f.timeout
	if life == 0 {
		life = attachLife
	}
	body := map[string]any{"kind": "attached", "timeout_seconds": int64(life.Seconds())}
	if f.policy != "" {
		body["policy"] = f.policy
	}
	if len(f.labels) > 0 {
		body["labels"] = f.labels
	}
	var made box
	if err := api.Do(ctx, http.MethodPost, "/sandbox/create", body, &made); err != nil {
		return err
	}
	defer func() {
		if err := deleteBox(api, made.ID); err != nil {
			a.say("portreeve: error: deleting %s: %v", made.ID, err)
		}
	}()
	var door struct{ Socket, Trust string }
	if err := api.Do(ctx, http.MethodPost, "/sandbox/"+segment(made.ID)+"/door", map[string]any{"door": "socket"}, &door); err != nil {
		return err
	}
	if _, err := os.Stat(door.Socket); err != nil {
		return &client.Hinted{Err: fmt.Errorf("the sandbox's socket is out of reach: %w", err), Hint: "run it on the machine of the node, as root: sudo portreeve attach -- " + argv[0]}
	}
	dir, err := os.MkdirTemp("", "portreeve-attach-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	env, err := attach.Variables(os.Environ(), dir, door.Trust)
	if err != nil {
		return err
	}
	if f.timeout == 0 {
		stop := a.keepAttached(api, made.ID)
		defer stop()
	}
	code, err := attach.Run(ctx, attach.Config{Socket: door.Socket, Argv: argv, Env: env, Stdin: a.in, Stdout: a.out, Stderr: a.err})
	a.tellDenials(api, made.ID)
	if err == nil && code != 0 {
		return exit(code)
	}
	return err
}

// keepAttached moves the sandbox's end as long as its command runs, so that it ends soon after a runner that was killed.
func (a *app) keepAttached(api *client.Client, id string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(attachLife / 2); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				body := map[string]any{"additional_seconds": int64((attachLife / 2).Seconds())}
				if err := api.Do(ctx, http.MethodPost, "/sandbox/"+segment(id)+"/extend", body, nil); err != nil && ctx.Err() == nil {
					a.say("portreeve: error: the sandbox %s will end: %v", id, err)
				}
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
