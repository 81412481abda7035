package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

// A door is what the commands read of where an attached sandbox comes in.
type door struct {
	Door      string     `json:"door"`
	URL       string     `json:"url"`
	Username  string     `json:"username"`
	Password  string     `json:"password"`
	Source    string     `json:"source"`
	ExpiresAt *time.Time `json:"expires_at"`
	Socket    string     `json:"socket"`
	CA        string     `json:"ca"`
	Trust     string     `json:"trust"`
}

func (a *app) sandboxDoor() *cobra.Command {
	var kind, source, dir string
	c := &cobra.Command{Use: "door ID", Short: "Get where an attached sandbox's traffic comes in, with a password that is good for 15 minutes", Args: exactly("ID"),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			body := map[string]string{"door": kind}
			if source != "" {
				body["source"] = source
			}
			var d door
			raw, err := ask(c.Context(), api, http.MethodPost, "/sandbox/"+segment(args[0])+"/door", body, &d)
			if err != nil {
				return err
			}
			if err := d.write(dir); err != nil {
				return err
			}
			return a.print(raw, func() { a.showDoor(d) })
		}}
	c.Flags().StringVar(&kind, "door", "http", "http or socks on the network, or socket on this machine")
	c.Flags().StringVar(&source, "source", "", "the one address from which the password may be used; default this one")
	c.Flags().StringVar(&dir, "certificates", "", "folder for door-ca.pem, who signs the door, and trust.pem, which the sandbox must trust")
	return c
}

// write keeps the certificates that go with the door; those it has.
func (d *door) write(dir string) error {
	for name, pem := range map[string]string{"door-ca.pem": d.CA, "trust.pem": d.Trust} {
		if dir == "" || pem == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(pem), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) showDoor(d door) {
	if d.Socket != "" {
		a.table([][]string{{"socket", d.Socket}})
		return
	}
	rows := [][]string{{"url", d.URL}, {"user", d.Username}, {"password", d.Password}, {"from", d.Source}}
	if d.ExpiresAt != nil {
		rows = append(rows, []string{"until", d.ExpiresAt.UTC().Format(time.RFC3339)})
	}
	a.table(rows)
	at, err := url.Parse(d.URL)
	if err != nil || d.Door != "http" {
		return
	}
	at.User = url.UserPassword(d.Username, d.Password)
	fmt.Fprintf(a.out, "\nexport https_proxy=%s http_proxy=%[1]s\n", at)
}
