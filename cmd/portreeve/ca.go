package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// An authority is what the commands read of the one under which TLS is opened.
type authority struct {
	Trust   string `json:"trust"`
	Waiting int    `json:"waiting_sandboxes"`
	Roots   []struct {
		Version   int64      `json:"version"`
		State     string     `json:"state"`
		ID        string     `json:"id"`
		EndsAt    time.Time  `json:"ends_at"`
		ChangesAt *time.Time `json:"changes_at"`
	} `json:"roots"`
	Intermediates []struct {
		Serial    string     `json:"serial"`
		Root      int64      `json:"root"`
		EndsAt    time.Time  `json:"ends_at"`
		RevokedAt *time.Time `json:"revoked_at"`
	} `json:"intermediates"`
}

func (a *app) ca() *cobra.Command {
	c := &cobra.Command{Use: "ca", Short: "The authority under which TLS is opened for sandboxes"}
	group(c)
	c.AddCommand(a.caShow(), a.caRotate(), a.caRevoke())
	return c
}

// callCA makes a call that answers with the authority, and prints it.
func (a *app) callCA(ctx context.Context, method, path string, body any, print func(authority)) error {
	var now authority
	return a.answer(ctx, method, path, body, &now, func() { print(now) })
}

func (a *app) caShow() *cobra.Command {
	var pem bool
	c := &cobra.Command{Use: "show", Short: "Show its roots, and what they signed for edges", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		return a.callCA(c.Context(), http.MethodGet, "/settings/ca", nil, func(now authority) {
			if pem {
				fmt.Fprint(a.out, now.Trust)
				return
			}
			a.showCA(now)
		})
	}}
	c.Flags().BoolVar(&pem, "pem", false, "print the certificates that sandboxes trust, and nothing else")
	return c
}

func (a *app) showCA(now authority) {
	rows := [][]string{{"ROOT", "STATE", "ENDS", "CHANGES", "ID"}}
	for _, r := range now.Roots {
		rows = append(rows, []string{fmt.Sprint(r.Version), r.State, r.EndsAt.UTC().Format(time.DateOnly), moment(r.ChangesAt), r.ID})
	}
	a.table(rows)
	if len(now.Intermediates) > 0 {
		fmt.Fprintln(a.out)
		rows = [][]string{{"INTERMEDIATE", "ROOT", "ENDS", "REVOKED"}}
		for _, m := range now.Intermediates {
			rows = append(rows, []string{m.Serial, fmt.Sprint(m.Root), moment(&m.EndsAt), moment(m.RevokedAt)})
		}
		a.table(rows)
	}
	a.sayWaiting(now)
}

func moment(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.DateTime)
}

// sayWaiting says for what a new root waits.
func (a *app) sayWaiting(now authority) {
	for _, r := range now.Roots {
		if r.State == "next" && r.ChangesAt != nil {
			a.say("portreeve: root %d signs once no sandbox lives that was made before it (%d now), and from %s on at the latest", r.Version, now.Waiting, moment(r.ChangesAt))
		}
	}
}

func (a *app) caRotate() *cobra.Command {
	var after time.Duration
	var now bool
	c := &cobra.Command{Use: "rotate", Short: "Begin a new root, beside the old one for a while", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		if now && c.Flags().Changed("after") {
			return &usageError{c.CommandPath(), fmt.Errorf("--now and --after exclude each other")}
		}
		if !now && after < time.Second {
			return &usageError{c.CommandPath(), fmt.Errorf("--after %v: it is a second at least; --now is for a root that can't be trusted any more", after)}
		}
		if now {
			after = 0
		}
		body := map[string]any{"after_seconds": int64(after.Seconds())}
		return a.callCA(c.Context(), http.MethodPost, "/settings/ca/rotate?wait=applied", body, func(v authority) {
			a.say("portreeve: a new root is there, and sandboxes get it")
			a.sayWaiting(v)
			if now {
				a.say("portreeve: it signs already, and every other root is retired: start again what runs in sandboxes, and attached commands")
			}
		})
	}}
	c.Flags().DurationVar(&after, "after", 24*time.Hour, "how long it waits at most for sandboxes that were made before it to end")
	c.Flags().BoolVar(&now, "now", false, "sign with it at once and retire every other: for a root that can't be trusted any more")
	return c
}

func (a *app) caRevoke() *cobra.Command {
	return &cobra.Command{Use: "revoke SERIAL", Short: "Take back an intermediate; edges ask for another", Args: exactly("SERIAL"), RunE: func(c *cobra.Command, args []string) error {
		return a.callCA(c.Context(), http.MethodPost, "/settings/ca/intermediates/"+segment(args[0])+"/revoke?wait=applied", nil, func(authority) {
			a.say("portreeve: %s is on the list of its root, and signs no more", args[0])
			a.say("portreeve: hint: most clients ask for no list: if somebody else has its key, portreeve ca rotate --now")
		})
	}}
}
