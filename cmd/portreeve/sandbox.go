package main

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"portreeve.dev/gateway/client"
)

// A box is what the commands read of a sandbox; --output json prints the API's own answer.
type box struct {
	ID        string          `json:"sandbox_id"`
	Status    string          `json:"status"`
	Reason    string          `json:"reason"`
	Addr      string          `json:"addr"`
	Policy    string          `json:"policy"`
	Template  string          `json:"template"`
	CreatedAt time.Time       `json:"created_at"`
	ExpiresAt time.Time       `json:"expires_at"`
	Egress    json.RawMessage `json:"egress"` // a list of its own
}

// createFlags are the flags of each command that makes a sandbox.
type createFlags struct {
	template, policy, memory, cpus string
	kind                           string // own, the default, or attached
	timeout                        time.Duration
	env                            map[string]string
}

func (f *createFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.template, "template", "", "image: tiny (busybox) or base; default base once it is built, else tiny")
	c.Flags().StringVar(&f.policy, "policy", "", "named policy; default the org's")
	c.Flags().StringVar(&f.memory, "memory", "", "memory, like 512Mi")
	c.Flags().StringVar(&f.cpus, "cpus", "", "processors, like 2 or 500m")
	c.Flags().DurationVar(&f.timeout, "timeout", 0, "lifetime, like 10m")
	c.Flags().StringToStringVar(&f.env, "env", nil, "environment of its processes, NAME=VALUE")
}

func (f *createFlags) body() map[string]any {
	body := map[string]any{}
	for name, value := range map[string]string{"template": f.template, "policy": f.policy, "memory": f.memory, "cpus": f.cpus, "kind": f.kind} {
		if value != "" {
			body[name] = value
		}
	}
	if f.timeout > 0 {
		body["timeout_seconds"] = int(f.timeout.Seconds())
	}
	if len(f.env) > 0 {
		body["env"] = f.env
	}
	return body
}

func (a *app) sandbox() *cobra.Command {
	c := &cobra.Command{Use: "sandbox", Short: "Make, look at and end sandboxes"}
	group(c)
	c.AddCommand(a.sandboxCreate(), a.sandboxList(), a.sandboxInspect(), a.sandboxExec(), a.sandboxExtend(),
		a.sandboxVerb("stop", "Stop and delete a sandbox", http.MethodPost, "/stop"),
		a.sandboxVerb("delete", "Delete a sandbox", http.MethodDelete, ""),
		a.sandboxEgress(), a.sandboxPolicy(), a.sandboxDoor(),
		a.sandboxVerb("pause", "Stop a sandbox's clock; its memory stays", http.MethodPost, "/pause"),
		a.sandboxVerb("resume", "Let a paused sandbox go on", http.MethodPost, "/resume"))
	return c
}

func (a *app) sandboxCreate() *cobra.Command {
	var f createFlags
	var attached bool
	c := &cobra.Command{Use: "create", Short: "Make a sandbox", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		if attached {
			f.kind = "attached"
		}
		raw, made, err := createBox(c.Context(), api, f)
		if err != nil {
			return err
		}
		return a.print(raw, func() {
			a.table([][]string{{made.ID}})
			if attached {
				a.say("portreeve: hint: portreeve sandbox door %s says where its traffic comes in", made.ID)
			}
		})
	}}
	f.register(c)
	c.Flags().BoolVar(&attached, "attached", false, "somebody else runs it: only its traffic comes here, by a door")
	return c
}

func createBox(ctx context.Context, api *client.Client, f createFlags) (json.RawMessage, box, error) {
	var made box
	raw, err := ask(ctx, api, http.MethodPost, "/sandbox/create", f.body(), &made)
	return raw, made, err
}

func (a *app) sandboxList() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the sandboxes", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		var list struct {
			Sandboxes []box `json:"sandboxes"`
		}
		return a.answer(c.Context(), http.MethodGet, "/sandboxes", nil, &list, func() {
			rows := [][]string{{"ID", "STATUS", "IMAGE", "POLICY", "ENDS"}}
			for _, b := range list.Sandboxes {
				rows = append(rows, []string{b.ID, b.Status, orDash(b.Template), orDash(b.Policy), b.ExpiresAt.Format(time.RFC3339)})
			}
			a.table(rows)
		})
	}}
}

func (a *app) sandboxInspect() *cobra.Command {
	return &cobra.Command{Use: "inspect ID", Short: "Show a sandbox", Args: exactly("ID"), RunE: func(c *cobra.Command, args []string) error {
		var b box
		return a.answer(c.Context(), http.MethodGet, "/sandbox/"+segment(args[0]), nil, &b, func() {
			a.table([][]string{{"id", b.ID}, {"status", b.Status}, {"reason", orDash(b.Reason)}, {"address", orDash(b.Addr)},
				{"image", orDash(b.Template)}, {"policy", orDash(b.Policy)}, {"own list", ownText(b)}, {"made", b.CreatedAt.Format(time.RFC3339)}, {"ends", b.ExpiresAt.Format(time.RFC3339)}})
		})
	}}
}

func (a *app) sandboxVerb(verb, short, method, path string) *cobra.Command {
	return &cobra.Command{Use: verb + " ID", Short: short, Args: exactly("ID"), RunE: func(c *cobra.Command, args []string) error {
		return a.act(c.Context(), method, "/sandbox/"+segment(args[0])+path, nil)
	}}
}

func (a *app) sandboxExtend() *cobra.Command {
	var by time.Duration
	c := &cobra.Command{Use: "extend ID", Short: "Move a sandbox's end", Args: exactly("ID"), RunE: func(c *cobra.Command, args []string) error {
		return a.act(c.Context(), http.MethodPost, "/sandbox/"+segment(args[0])+"/extend", map[string]int{"additional_seconds": int(by.Seconds())})
	}}
	c.Flags().DurationVar(&by, "by", 10*time.Minute, "how much later it ends")
	return c
}
