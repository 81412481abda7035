package main

import (
	"context"
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

// A tunnel is what the commands read of one.
type tunnel struct {
	ID        string    `json:"id"`
	Sandbox   string    `json:"sandbox_id"`
	URL       string    `json:"url"`
	HTTPURL   string    `json:"http_url"` // without TLS; empty where tunnels answer over TLS only
	Port      uint16    `json:"port"`
	Public    bool      `json:"public"`
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at"`
}

// best is the URL to begin with. Browsers take plain HTTP under localhost as secure, and know no authority of ours.
func (t *tunnel) best() string {
	if t.HTTPURL != "" {
		return t.HTTPURL
	}
	return t.URL
}

func (a *app) tunnel() *cobra.Command {
	c := &cobra.Command{Use: "tunnel", Short: "Give ports of sandboxes public names, and take them back"}
	group(c)
	c.AddCommand(a.tunnelOpen(), a.tunnelList(), a.tunnelClose(), a.tunnelPolicy())
	return c
}

func (a *app) tunnelOpen() *cobra.Command {
	var sandbox string
	var public bool
	var lasts time.Duration
	c := &cobra.Command{Use: "open PORT", Short: "Give a port a name, for an hour unless --for says otherwise", Args: exactly("PORT"),
		Long: "Gives a port of a sandbox a URL. Without --public, who calls it needs the token that is shown, this once.\n" +
			"A sandbox that is paused wakes when somebody calls. The application may listen on 127.0.0.1 only.",
		RunE: func(c *cobra.Command, args []string) error {
			port, err := parsePort(c, args[0])
			if err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			id, err := a.pick(c.Context(), api, sandbox)
			if err != nil {
				return err
			}
			raw, t, err := openTunnel(c.Context(), api, id, port, public, lasts)
			if err != nil {
				return err
			}
			return a.print(raw, func() { a.showTunnel(t) })
		}}
	c.Flags().StringVar(&sandbox, "sandbox", "", "the sandbox; default the youngest that runs")
	c.Flags().BoolVar(&public, "public", false, "anybody who knows the URL may call it")
	c.Flags().DurationVar(&lasts, "for", time.Hour, "how long, at most until the sandbox ends")
	return c
}

func parsePort(c *cobra.Command, s string) (uint16, error) {
	port, err := strconv.ParseUint(s, 10, 16)
	if err != nil || port == 0 {
		return 0, &usageError{c.CommandPath(), fmt.Errorf("%q is not a port from 1 to 65535", s)}
	}
	return uint16(port), nil
}

func openTunnel(ctx context.Context, api *client.Client, sandbox string, port uint16, public bool, lasts time.Duration) (json.RawMessage, *tunnel, error) {
	body := map[string]any{"port": port, "expires_in": int64(lasts.Seconds())}
	if public {
		body["public"] = true
	}
	t := new(tunnel)
	raw, err := ask(ctx, api, http.MethodPost, "/sandbox/"+segment(sandbox)+"/tunnels", body, t)
	return raw, t, err
}

// showTunnel says how to use a new tunnel, the URL for browsers first.
func (a *app) showTunnel(t *tunnel) {
	rows := [][]string{{"url", t.best()}}
	if t.HTTPURL != "" {
		rows = append(rows, []string{"https", t.URL})
	}
	call := "curl " + t.best() + "/"
	if t.Token != "" {
		rows = append(rows, []string{"token", t.Token})
		call = fmt.Sprintf("curl -H 'X-Portreeve-Token: %s' %s/", t.Token, t.best())
	}
	rows = append(rows, []string{"try", call})
	if t.Token != "" {
		rows = append(rows, []string{"browser", t.best() + "/?portreeve_token=" + t.Token})
	}
	a.table(append(rows, []string{"ends", t.ExpiresAt.Format(time.RFC3339)}, []string{"id", t.ID}))
}

// tunnels lists those of one sandbox, or of all that live.
func tunnels(ctx context.Context, api *client.Client, sandbox string) ([]json.RawMessage, error) {
	ids := []string{sandbox}
	if sandbox == "" {
		all, err := boxes(ctx, api)
		if err != nil {
			return nil, err
		}
		ids = nil
		for _, b := range all {
			ids = append(ids, b.ID)
		}
	}
	found := []json.RawMessage{}
	for _, id := range ids {
		var list struct {
			Tunnels []json.RawMessage `json:"tunnels"`
		}
		err := api.Do(ctx, http.MethodGet, "/sandbox/"+segment(id)+"/tunnels", nil, &list)
		var p *client.Problem
		if sandbox == "" && errors.As(err, &p) && p.Status == http.StatusNotFound {
			continue // it ended meanwhile
		}
		if err != nil {
			return nil, err
		}
		found = append(found, list.Tunnels...)
	}
	return found, nil
}

func (a *app) tunnelList() *cobra.Command {
	var sandbox string
	c := &cobra.Command{Use: "list", Short: "List the tunnels, without their tokens", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		found, err := tunnels(c.Context(), api, sandbox)
		if err != nil {
			return err
		}
		rows := [][]string{{"ID", "SANDBOX", "PORT", "ACCESS", "ENDS", "URL"}}
		for _, raw := range found {
			var t tunnel
			if err := json.Unmarshal(raw, &t); err != nil {
				return err
			}
			access := "token"
			if t.Public {
				access = "public"
			}
			rows = append(rows, []string{t.ID, t.Sandbox, fmt.Sprint(t.Port), access, t.ExpiresAt.Format(time.RFC3339), t.best()})
		}
		return a.print(map[string]any{"tunnels": found}, func() { a.table(rows) })
	}}
	c.Flags().StringVar(&sandbox, "sandbox", "", "of this sandbox; default all")
	return c
}

func (a *app) tunnelClose() *cobra.Command {
	var sandbox string
	c := &cobra.Command{Use: "close ID", Short: "End a tunnel, and what is open through it", Args: exactly("ID"), RunE: func(c *cobra.Command, args []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		id := args[0]
		if sandbox == "" {
			if sandbox, err = ownerOf(c.Context(), api, id); err != nil {
				return err
			}
		}
		var raw json.RawMessage
		if err := api.Do(c.Context(), http.MethodDelete, "/sandbox/"+segment(sandbox)+"/tunnels/"+segment(id), nil, &raw); err != nil {
			return err
		}
		return a.print(raw, func() {})
	}}
	c.Flags().StringVar(&sandbox, "sandbox", "", "its sandbox; default the one that has it")
	return c
}

// ownerOf returns the sandbox that has a tunnel.
func ownerOf(ctx context.Context, api *client.Client, id string) (string, error) {
	found, err := tunnels(ctx, api, "")
	if err != nil {
		return "", err
	}
	for _, raw := range found {
		var t tunnel
		if err := json.Unmarshal(raw, &t); err != nil {
			return "", err
		}
		if t.ID == strings.TrimSpace(id) {
			return t.Sandbox, nil
		}
	}
	return "", &client.Hinted{Err: fmt.Errorf("no live sandbox has a tunnel %q", id), Hint: "portreeve tunnel list"}
}
