package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/api/apitest"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/webhooks"
)

// noHooks sends nothing, and says so.
type noHooks struct{}

func (noHooks) Attempt(context.Context, webhooks.Delivery) webhooks.Outcome {
	return webhooks.Outcome{Error: "not_reached"}
}

// due are the deliveries that wait.
func due(t *testing.T, w *apitest.World) []webhooks.Delivery {
	t.Helper()
	all, err := w.Store.DueWebhooks(t.Context(), time.Minute, func(string, string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestWebhookSecretIsShownOnce(t *testing.T) {
	w := apitest.New(t, func(c *api.Config) { c.Webhooks = noHooks{} })
	c := w.Org("one")
	made := c.Do("POST", "/webhooks", object{"url": "https://Hook.test:8443/in?a=b", "events": []string{"egress.denied", "egress.request.created"}, "retry_count": 3, "retry_delay_ms": 1000, "timeout_ms": 30000}).Want(201)
	secret, id := made.String("secret"), made.String("id")
	if !strings.HasPrefix(secret, "whsec_") || !strings.HasPrefix(id, "whk_") || made.At("retry_count") != 3.0 || made.At("timeout_ms") != 10000.0 || made.At("enabled") != true || made.String("url") != "https://Hook.test:8443/in?a=b" {
		t.Errorf("made is %s", made.Body)
	}
	kept, err := w.Store.Webhook(t.Context(), c.Org, id)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(kept.Sealed), secret) {
		t.Error("the secret is in the store as it is")
	}
	want, err := webhooks.ParseSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	open, err := api.OpenWebhookSecrets(w.Keyring, kept.Endpoint, kept.Sealed)
	if err != nil || len(open) != 1 || string(open[0]) != string(want) {
		t.Errorf("opened: %d, %v", len(open), err)
	}
	for name, change := range map[string]func(*webhooks.Endpoint){"another endpoint": func(e *webhooks.Endpoint) { e.ID = "whk_x" }, "another org": func(e *webhooks.Endpoint) { e.Org = "org_x" }} {
		e := kept.Endpoint
		change(&e)
		if _, err := api.OpenWebhookSecrets(w.Keyring, e, kept.Sealed); err == nil {
			t.Errorf("it opens for %s", name)
		}
	}
	test := c.Do("POST", "/webhooks/"+id+"/test", nil).Want(200)
	if test.At("delivered") != false || test.String("error") != "not_reached" {
		t.Errorf("test says %s", test.Body)
	}
	list := c.Do("GET", "/webhooks", nil).Want(200)
	if list.String("webhooks.0.id") != id {
		t.Errorf("listed: %s", list.Body)
	}
	for what, text := range map[string]string{"the list": string(list.Body), "the log": w.Log.String(), "the audit log": string(c.Do("GET", "/audit", nil).Want(200).Body), "the test": string(test.Body)} {
		if strings.Contains(text, secret) || strings.Contains(text, secret[len("whsec_"):]) {
			t.Errorf("the secret is in %s", what)
		}
	}
	mine := "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	if a := c.Do("POST", "/webhooks", object{"url": "https://hook.test/", "secret": mine}).Want(201); a.String("secret") != mine || fmt.Sprint(a.At("events")) != "[*]" {
		t.Errorf("with a secret of one's own: %s", a.Body)
	}
	c.Do("DELETE", "/webhooks/"+id, nil).Want(200)
	c.Do("DELETE", "/webhooks/"+id, nil).Refused(404, "webhook_not_found")
}

func TestWebhooksAreChecked(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	for _, r := range []struct {
		body  object
		field string
	}{
		{object{"url": "http://hook.test/"}, "body.url"}, {object{"url": "https://10.0.0.1/"}, "body.url"}, {object{"url": "https://localhost/"}, "body.url"},
		{object{"url": "https://metadata.google.internal/"}, "body.url"}, {object{"url": "https://u:p@hook.test/"}, "body.url"}, {object{"url": "hook.test"}, "body.url"},
		{object{"url": "https://hook.test/", "events": []string{"sandbox.created"}}, "body.events"}, {object{"url": "https://hook.test/", "events": []string{}}, "body.events"},
		{object{"url": "https://hook.test/", "events": "all"}, "body.events"}, {object{"url": "https://hook.test/", "secret": "whsec_AAAA"}, "body.secret"},
		{object{"url": "https://hook.test/", "retry_count": 21}, "body.retry_count"},
	} {
		c.Do("POST", "/webhooks", r.body).Refused(422, "invalid_request", r.field)
	}
	for range 20 {
		c.Do("POST", "/webhooks", object{"url": "https://hook.test/", "events": "*"}).Want(201)
	}
	c.Do("POST", "/webhooks", object{"url": "https://hook.test/"}).Refused(409, "too_many_webhooks")
	w.Org("two").Do("POST", "/webhooks", object{"url": "https://hook.test/"}).Want(201)
}

// TestEventsAreQueuedWithTheirChange: for whom it is meant, once, and not for what did not happen.
func TestEventsAreQueuedWithTheirChange(t *testing.T) {
	w := apitest.New(t)
	c, other := w.Org("one"), w.Org("two")
	all := c.Do("POST", "/webhooks", object{"url": "https://all.test/"}).Want(201).String("id")
	c.Do("POST", "/webhooks", object{"url": "https://denied.test/", "events": []string{"egress.denied"}}).Want(201)
	other.Do("POST", "/webhooks", object{"url": "https://other.test/"}).Want(201)
	queued := w.Store.WebhooksQueued()
	box := c.Sandbox()
	id := asked(t, w, c, box, "api.test")
	select {
	case <-queued:
	default:
		t.Error("nobody was told that something is queued")
	}
	asked(t, w, c, box, "api.test") // an equal one is no event
	got := due(t, w)
	if len(got) != 1 || got[0].Endpoint.ID != all || got[0].Event != "egress.request.created" || !strings.Contains(got[0].Body, id) || !strings.Contains(got[0].Body, `"type":"egress.request.created"`) || got[0].Attempt != 1 {
		t.Fatalf("queued is %+v", got)
	}
	if again := due(t, w); len(again) != 0 {
		t.Errorf("claimed, and claimed again: %+v", again)
	}
	if err := w.Store.SettleWebhook(t.Context(), got[0].ID, webhooks.Outcome{Status: 500}, time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if again := due(t, w); len(again) != 1 || again[0].ID != got[0].ID || again[0].Attempt != 2 {
		t.Errorf("after a failure: %+v", again)
	}
	if err := w.Store.SettleWebhook(t.Context(), got[0].ID, webhooks.Outcome{Delivered: true, Status: 200}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	// A change that fails queues nothing.
	failed := errors.New("no")
	_, err := w.Store.Change(t.Context(), principal(c), func(tx *store.Tx) error {
		if err := tx.Enqueue(t.Context(), webhooks.RequestDecided, "x"); err != nil {
			return err
		}
		return failed
	})
	if !errors.Is(err, failed) || len(due(t, w)) != 0 {
		t.Errorf("a change that failed: %v", err)
	}
	c.Do("POST", "/requests/"+id+"/deny", object{"reason": "no"}).Want(200)
	if got = due(t, w); len(got) != 1 || got[0].Event != "egress.request.decided" || !strings.Contains(got[0].Body, `"state":"denied"`) {
		t.Errorf("queued is %+v", got)
	}
	if err := w.Store.EnqueueWebhooks(t.Context(), c.Org, webhooks.Denied, webhooks.DeniedSummary{Total: 3}); err != nil {
		t.Fatal(err)
	}
	if got = due(t, w); len(got) != 2 {
		t.Errorf("of a summary, for two endpoints: %+v", got)
	}
	kept, err := w.Store.WebhookDeliveries(t.Context(), c.Org, all, 10)
	if err != nil || len(kept) != 3 {
		t.Errorf("%d deliveries are kept, %v", len(kept), err)
	}
	// An endpoint that is gone is told of nothing.
	c.Do("DELETE", "/webhooks/"+all, nil).Want(200)
	if kept, err := w.Store.WebhookDeliveries(t.Context(), c.Org, all, 10); err != nil || len(kept) != 0 {
		t.Errorf("%d deliveries are left, %v", len(kept), err)
	}
}
