package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/webhooks"
)

func webhooksAreKept(t *testing.T, open Open) {
	now := time.Date(2026, 3, 29, 1, 59, 59, 123_456_789, time.UTC)
	w := NewWorld(t, open, store.Options{Now: func() time.Time { return now }})
	one, two := w.Org("one"), w.Org("two")
	make := func(by store.By, limit int) (made store.Webhook, err error) {
		err = w.change(by, func(tx *store.Tx) (err error) {
			made, err = tx.CreateWebhook(ctx(t), store.Webhook{Endpoint: webhooks.Endpoint{ID: store.NewID("whk"), URL: "https://a.test/", Events: []string{"*"}, Retries: 2, Delay: time.Second, Timeout: 5 * time.Second},
				Sealed: []byte("sealed \x00\xff")}, limit)
			return err
		})
		return made, err
	}
	first, err := make(one, 2)
	w.must(err)
	second, err := make(one, 2)
	w.must(err)
	if _, err := make(one, 2); !errors.Is(err, store.ErrLimit) {
		t.Errorf("a third of two: %v", err)
	}
	theirs, err := make(two, 2)
	w.must(err)
	all, err := w.Webhooks(ctx(t), one.Principal.Org)
	w.must(err)
	if diff := cmp.Diff([]store.Webhook{first, second}, all); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
	if _, err := w.Webhook(ctx(t), one.Principal.Org, theirs.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another org's: %v", err)
	}
	if err := w.change(one, func(tx *store.Tx) error { return tx.DeleteWebhook(ctx(t), theirs.ID) }); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("deleting another org's: %v", err)
	}
	w.must(w.change(one, func(tx *store.Tx) error { return tx.Enqueue(ctx(t), webhooks.RequestCreated, "x") }))
	take := func(org, _ string) bool { return org == one.Principal.Org }
	claim := func() []webhooks.Delivery {
		t.Helper()
		due, err := w.DueWebhooks(ctx(t), time.Minute, take)
		w.must(err)
		return due
	}
	due := claim()
	if len(due) != 2 || due[0].Org != one.Principal.Org || string(due[0].Sealed) != string(first.Sealed) || due[0].Endpoint.Retries != 2 {
		t.Fatalf("due is %+v", due)
	}
	if again := claim(); len(again) != 0 {
		t.Errorf("claimed twice: %+v", again)
	}
	// A process that died had it for as long as its lease.
	now = now.Add(time.Minute)
	if again := claim(); len(again) != 2 || again[0].Attempt != 2 {
		t.Errorf("after the lease: %+v", again)
	}
	w.must(w.SettleWebhook(ctx(t), due[0].ID, webhooks.Outcome{Delivered: true, Status: 200}, time.Time{}))
	w.must(w.SettleWebhook(ctx(t), due[1].ID, webhooks.Outcome{Error: "timeout"}, time.Time{}))
	now = now.Add(time.Hour)
	if again := claim(); len(again) != 0 {
		t.Errorf("settled, and due: %+v", again)
	}
	states := map[string]bool{}
	for _, id := range []string{first.ID, second.ID} {
		kept, err := w.WebhookDeliveries(ctx(t), one.Principal.Org, id, 5)
		w.must(err)
		if len(kept) != 1 || kept[0].Attempts != 2 {
			t.Fatalf("kept is %+v", kept)
		}
		states[kept[0].State] = true
	}
	if !states["delivered"] || !states["failed"] {
		t.Errorf("states are %v", states)
	}
	w.must(w.ForgetWebhookDeliveries(ctx(t), now))
	if kept, err := w.WebhookDeliveries(ctx(t), one.Principal.Org, first.ID, 5); err != nil || len(kept) != 0 {
		t.Errorf("%+v, %v", kept, err)
	}
	// What was queued, or put off, while the clock was ahead doesn't wait until then.
	now = now.AddDate(1, 0, 0)
	w.must(w.change(one, func(tx *store.Tx) error { return tx.Enqueue(ctx(t), webhooks.RequestCreated, "x") }))
	if due := claim(); len(due) != 2 {
		t.Fatalf("due while the clock is ahead: %+v", due)
	}
	now = now.AddDate(-1, 0, 0)
	due = claim()
	if len(due) != 2 {
		t.Fatalf("due once it is right again: %+v", due)
	}
	if again := claim(); len(again) != 0 {
		t.Errorf("claimed twice: %+v", again)
	}
	for _, d := range due {
		w.must(w.SettleWebhook(ctx(t), d.ID, webhooks.Outcome{Delivered: true, Status: 200}, time.Time{}))
	}
	w.must(w.change(one, func(tx *store.Tx) error { return tx.Enqueue(ctx(t), webhooks.RequestCreated, "x") }))
	w.must(w.change(one, func(tx *store.Tx) error { return tx.DeleteWebhook(ctx(t), first.ID) }))
	if due := claim(); len(due) != 1 || due[0].Endpoint.ID != second.ID {
		t.Errorf("of two endpoints, one of which is gone: %+v", due)
	}
}
