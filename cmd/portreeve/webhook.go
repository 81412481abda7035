package main

import (
	"net/http"
	"strings"

	"github.com/spf13/cobra"
)

// A webhook is what the commands read of an endpoint that is told of events.
type webhook struct {
	ID     string   `json:"id"`
	URL    string   `json:"url"`
	Events []string `json:"events"`
	Secret string   `json:"secret"`
}

func (a *app) webhook() *cobra.Command {
	c := &cobra.Command{Use: "webhook", Short: "Have endpoints told of requests and denials"}
	group(c)
	c.AddCommand(a.webhookCreate(), a.webhookList(), a.webhookTest(), a.webhookDelete())
	return c
}

func (a *app) webhookCreate() *cobra.Command {
	var events []string
	c := &cobra.Command{Use: "create URL", Short: "Have an endpoint told; prints the secret that signs, once", Args: exactly("URL"), RunE: func(c *cobra.Command, args []string) error {
		body := map[string]any{"url": args[0]}
		if len(events) > 0 {
			body["events"] = events
		}
		var made webhook
		return a.answer(c.Context(), http.MethodPost, "/webhooks", body, &made, func() {
			a.table([][]string{{"id", made.ID}, {"secret", made.Secret}})
			a.say("portreeve: keep the secret, it is not shown again; portreeve webhook test %s sends an event now", made.ID)
		})
	}}
	c.Flags().StringSliceVar(&events, "event", nil, "egress.request.created, egress.request.decided, egress.denied; default all")
	return c
}

func (a *app) webhookList() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the endpoints", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		var list struct {
			Webhooks []webhook `json:"webhooks"`
		}
		return a.answer(c.Context(), http.MethodGet, "/webhooks", nil, &list, func() {
			rows := [][]string{{"ID", "EVENTS", "URL"}}
			for _, w := range list.Webhooks {
				rows = append(rows, []string{w.ID, strings.Join(w.Events, ","), w.URL})
			}
			a.table(rows)
		})
	}}
}

func (a *app) webhookTest() *cobra.Command {
	return &cobra.Command{Use: "test ID", Short: "Send an event webhook.test, now and once; exit status 1 if it did not arrive", Args: exactly("ID"), RunE: func(c *cobra.Command, args []string) error {
		var outcome struct {
			Delivered bool   `json:"delivered"`
			Status    int    `json:"response_status"`
			Error     string `json:"error"`
		}
		err := a.answer(c.Context(), http.MethodPost, "/webhooks/"+segment(args[0])+"/test", nil, &outcome, func() {
			switch {
			case outcome.Delivered:
				a.say("portreeve: delivered, it answered %d", outcome.Status)
			case outcome.Status > 0:
				a.say("portreeve: not delivered: it answered %d", outcome.Status)
			default:
				a.say("portreeve: not delivered: %s", outcome.Error)
			}
		})
		if err == nil && !outcome.Delivered {
			return exit(1)
		}
		return err
	}}
}

func (a *app) webhookDelete() *cobra.Command {
	return &cobra.Command{Use: "delete ID", Short: "Tell an endpoint nothing more", Args: exactly("ID"), RunE: func(c *cobra.Command, args []string) error {
		return a.act(c.Context(), http.MethodDelete, "/webhooks/"+segment(args[0]), nil)
	}}
}
