package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/webhooks"
	"portreeve.dev/secrets/seal"
	"portreeve.dev/sso"
)

const (
	webhooksMost = 20 // of an org

	webhookRetries = 8
	webhookDelay   = time.Second
	webhookTimeout = 10 * time.Second
)

// Webhooks tries a delivery now.
type Webhooks interface {
	Attempt(ctx context.Context, d webhooks.Delivery) webhooks.Outcome
}

type webhookView struct {
	ID        string    `json:"id"`
	URL       string    `json:"url"`
	Events    []string  `json:"events"`
	Enabled   bool      `json:"enabled"`
	Secret    string    `json:"secret,omitempty" doc:"Shown once, in the answer to its create."`
	Retries   int       `json:"retry_count"`
	DelayMS   int64     `json:"retry_delay_ms"`
	TimeoutMS int64     `json:"timeout_ms"`
	CreatedAt time.Time `json:"created_at"`
}

func viewWebhook(w store.Webhook) webhookView {
	return webhookView{ID: w.ID, URL: w.URL, Events: w.Events, Enabled: true, Retries: w.Retries, DelayMS: w.Delay.Milliseconds(), TimeoutMS: w.Timeout.Milliseconds(), CreatedAt: w.CreatedAt}
}

type webhookCreateIn struct {
	Body struct {
		URL       string `json:"url" maxLength:"2048" doc:"https, and a name that is no address. The floor holds: an address inside is not reached."`
		Events    any    `json:"events,omitempty" doc:"A list of egress.request.created, egress.request.decided, egress.denied; or *, the default."`
		Secret    string `json:"secret,omitempty" maxLength:"200" doc:"whsec_ and the base64 of 24 to 64 bytes; default a new one."`
		Retries   *int   `json:"retry_count,omitempty" minimum:"0" maximum:"20" doc:"Tries after the first; default 8."`
		DelayMS   int64  `json:"retry_delay_ms,omitempty" minimum:"100" maximum:"3600000" doc:"Before the second try, four times as long before each further one, up to an hour; default 1000."`
		TimeoutMS int64  `json:"timeout_ms,omitempty" minimum:"100" maximum:"30000" doc:"Of a try; more than 10000 is 10000, which is the default."`
	}
}

type webhookOut struct {
	Body webhookView
}

type webhookListOut struct {
	Body struct {
		Webhooks []webhookView `json:"webhooks" nullable:"false"`
	}
}

type webhookIDIn struct {
	ID string `path:"id"`
}

type webhookTestOut struct {
	Body webhooks.Outcome
}

func (s *Server) webhookRoutes() {
	tags := []string{"webhooks"}
	route(s, sso.ScopeAdmin, huma.Operation{OperationID: "create-webhook", Method: http.MethodPost, Path: "/webhooks", Summary: "Have an endpoint told of events",
		Description: "Signed as Standard Webhooks say: webhook-id, webhook-timestamp, webhook-signature.", DefaultStatus: http.StatusCreated, Tags: tags}, s.createWebhook)
	route(s, sso.ScopeRead, huma.Operation{OperationID: "list-webhooks", Method: http.MethodGet, Path: "/webhooks", Summary: "List webhooks", Tags: tags}, s.listWebhooks)
	route(s, sso.ScopeAdmin, huma.Operation{OperationID: "delete-webhook", Method: http.MethodDelete, Path: "/webhooks/{id}", Summary: "Take an endpoint away, and what is queued for it", Tags: tags}, s.deleteWebhook)
	route(s, sso.ScopeAdmin, huma.Operation{OperationID: "test-webhook", Method: http.MethodPost, Path: "/webhooks/{id}/test", Summary: "Send an event webhook.test, now and once", Tags: tags}, s.testWebhook)
}

// WebhookRecord is what the sealed secrets of an endpoint are bound to.
func WebhookRecord(org, id string) seal.Record {
	return seal.Record{Kind: "webhook", Org: org, Name: id, Version: 1}
}

// OpenWebhookSecrets opens the active secrets of an endpoint.
func OpenWebhookSecrets(k *seal.Keyring, e webhooks.Endpoint, sealed []byte) ([][]byte, error) {
	text, err := k.Open(WebhookRecord(e.Org, e.ID), sealed)
	if err != nil {
		return nil, err
	}
	secret, err := webhooks.ParseSecret(string(text))
	return [][]byte{secret}, err
}

func (s *Server) createWebhook(ctx context.Context, c *caller, in *webhookCreateIn) (*webhookOut, error) {
	u, target, err := webhooks.ParseURL(in.Body.URL)
	if err != nil {
		return nil, invalid("body.url", err.Error())
	}
	if v := s.Floor.JudgeHost(target.Host); !v.Allowed() {
		return nil, invalid("body.url", "names a host that nobody may reach")
	}
	w := store.Webhook{Endpoint: webhooks.Endpoint{ID: store.NewID("whk"), Org: c.org(), URL: u.String(), Retries: webhookRetries, Delay: webhookDelay, Timeout: webhookTimeout}}
	if w.Events, err = eventsOf(in.Body.Events); err != nil {
		return nil, err
	}
	if in.Body.Retries != nil {
		w.Retries = *in.Body.Retries
	}
	if in.Body.DelayMS > 0 {
		w.Delay = time.Duration(in.Body.DelayMS) * time.Millisecond
	}
	if in.Body.TimeoutMS > 0 {
		w.Timeout = min(time.Duration(in.Body.TimeoutMS)*time.Millisecond, webhookTimeout)
	}
	secret := in.Body.Secret
	if secret == "" {
		secret = webhooks.NewSecret()
	}
	if _, err := webhooks.ParseSecret(secret); err != nil {
		return nil, invalid("body.secret", "must be whsec_ and the base64 of 24 to 64 bytes")
	}
	if w.Sealed, err = s.Keyring.Seal(WebhookRecord(w.Org, w.ID), []byte(secret)); err != nil {
		return nil, err
	}
	_, err = s.Store.Change(ctx, c.By, func(tx *store.Tx) (err error) {
		if w, err = tx.CreateWebhook(ctx, w, webhooksMost); err != nil {
			return err
		}
		return tx.Record(ctx, audit.WebhookCreate, w.ID, map[string]string{"host": target.Host})
	})
	if errors.Is(err, store.ErrLimit) {
		return nil, problem(http.StatusConflict, "too_many_webhooks", fmt.Sprintf("an org has at most %d webhooks", webhooksMost))
	}
	if err != nil {
		return nil, err
	}
	out := &webhookOut{viewWebhook(w)}
	out.Body.Secret = secret
	return out, nil
}

// eventsOf reads a list of events, or "*".
func eventsOf(v any) ([]string, error) {
	wrong := invalid("body.events", "must be * or a list of egress.request.created, egress.request.decided, egress.denied")
	list, ok := v.([]any)
	switch {
	case v == nil || v == any(webhooks.Every):
		return []string{webhooks.Every}, nil
	case !ok || len(list) == 0:
		return nil, wrong
	}
	var events []string
	for _, e := range list {
		name, ok := e.(string)
		if !ok || name != webhooks.Every && !slices.Contains(webhooks.Events(), name) {
			return nil, wrong
		}
		events = append(events, name)
	}
	slices.Sort(events)
	return slices.Compact(events), nil
}

func (s *Server) listWebhooks(ctx context.Context, c *caller, _ *struct{}) (*webhookListOut, error) {
	all, err := s.Store.Webhooks(ctx, c.org())
	if err != nil {
		return nil, err
	}
	out := &webhookListOut{}
	out.Body.Webhooks = []webhookView{}
	for _, w := range all {
		out.Body.Webhooks = append(out.Body.Webhooks, viewWebhook(w))
	}
	return out, nil
}

func (s *Server) deleteWebhook(ctx context.Context, c *caller, in *webhookIDIn) (*success, error) {
	return s.deleteRow(ctx, c, "webhook", in.ID, audit.WebhookDelete, (*store.Tx).DeleteWebhook)
}

func (s *Server) testWebhook(ctx context.Context, c *caller, in *webhookIDIn) (*webhookTestOut, error) {
	w, err := s.Store.Webhook(ctx, c.org(), in.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound("webhook")
	}
	if err != nil {
		return nil, err
	}
	if s.Webhooks == nil {
		return nil, problem(http.StatusServiceUnavailable, "no_webhooks", "this installation sends no webhooks")
	}
	body, err := webhooks.Body(webhooks.Test, s.Now(), map[string]string{"webhook_id": w.ID})
	if err != nil {
		return nil, err
	}
	if !s.testing.begin(c.org()) {
		return nil, problem(http.StatusTooManyRequests, "too_many_tests", "the org has a test under way").with("Retry-After", "10")
	}
	defer s.testing.end(c.org())
	return &webhookTestOut{s.Webhooks.Attempt(ctx, webhooks.Delivery{ID: store.NewID("whd"), Org: w.Org, Endpoint: w.Endpoint, Sealed: w.Sealed, Event: webhooks.Test, Body: string(body), Attempt: 1})}, nil
}
