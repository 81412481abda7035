package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"portreeve.dev/gateway/webhooks"
)

// A Webhook is a row: where an org wants to be told of events. Its secrets only as sealed bytes.
type Webhook struct {
	webhooks.Endpoint
	Sealed    []byte // as seal.Record{Kind: "webhook", Org, Name: ID, Version: 1}
	CreatedBy string
	CreatedAt time.Time
}

// CreateWebhook keeps an endpoint of the org; ErrLimit when it has limit of them.
func (tx *Tx) CreateWebhook(ctx context.Context, w Webhook, limit int) (Webhook, error) {
	w.Org, w.CreatedBy, w.CreatedAt = tx.Org(), tx.by.Principal.ID, tx.now
	have, err := tx.Webhooks(ctx, tx.Org())
	if err != nil {
		return w, err
	}
	if len(have) >= limit {
		return w, fmt.Errorf("creating a webhook: there are %d: %w", len(have), ErrLimit)
	}
	events, err := json.Marshal(w.Events)
	if err != nil {
		return w, err
	}
	_, err = tx.q.ExecContext(ctx, `INSERT INTO webhooks (id, org_id, url, events, sealed, retry_count, retry_delay_ms, timeout_ms, created_by, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, w.ID, w.Org, w.URL, string(events), w.Sealed, int64(w.Retries), w.Delay.Milliseconds(), w.Timeout.Milliseconds(),
		w.CreatedBy, micros(w.CreatedAt))
	return w, wrap(err, "creating webhook %q", w.ID)
}

// DeleteWebhook takes an endpoint away, and what is queued for it.
func (tx *Tx) DeleteWebhook(ctx context.Context, id string) error {
	if _, err := tx.q.ExecContext(ctx, `DELETE FROM webhook_deliveries WHERE org_id = $1 AND webhook_id = $2`, tx.Org(), id); err != nil {
		return wrap(err, "deleting webhook %q", id)
	}
	res, err := tx.q.ExecContext(ctx, `DELETE FROM webhooks WHERE org_id = $1 AND id = $2`, tx.Org(), id)
	return wrap(one(res, err, ErrNotFound), "deleting webhook %q", id)
}

// Webhook returns one endpoint of the org.
func (r reads) Webhook(ctx context.Context, org, id string) (Webhook, error) {
	w, err := scanWebhook(r.q.QueryRowContext(ctx, webhookColumns+` WHERE org_id = $1 AND id = $2`, org, id))
	return w, wrap(err, "reading webhook %q", id)
}

// Webhooks lists the endpoints of the org, oldest first.
func (r reads) Webhooks(ctx context.Context, org string) ([]Webhook, error) {
	all, err := list(ctx, r.q, scanWebhook, webhookColumns+` WHERE org_id = $1 ORDER BY created_at, id`, org)
	return all, wrap(err, "listing webhooks of %q", org)
}

const webhookColumns = `SELECT id, org_id, url, events, sealed, retry_count, retry_delay_ms, timeout_ms, created_by, created_at FROM webhooks`

func scanWebhook(row rowScanner) (Webhook, error) {
	var w Webhook
	var events string
	var retries, delay, timeout, created int64
	if err := row.Scan(&w.ID, &w.Org, &w.URL, &events, &w.Sealed, &retries, &delay, &timeout, &w.CreatedBy, &created); err != nil {
		return w, err
	}
	w.Retries, w.Delay, w.Timeout, w.CreatedAt = int(retries), time.Duration(delay)*time.Millisecond, time.Duration(timeout)*time.Millisecond, fromMicros(created)
	return w, json.Unmarshal([]byte(events), &w.Events)
}

// queueMost is how much waits for one endpoint. What comes on top is dropped: a receiver that is away for long has to ask.
const queueMost = 1000

// Enqueue has an event sent to each endpoint of the org that wants it, once this change is committed: with the change, or not at all.
func (tx *Tx) Enqueue(ctx context.Context, event string, data any) error {
	queued, err := enqueue(ctx, tx.reads, tx.Org(), event, data, tx.now)
	tx.queued = tx.queued || queued
	return err
}

// EnqueueWebhooks is Enqueue for an event that is no change: a summary.
func (s *Store) EnqueueWebhooks(ctx context.Context, org, event string, data any) error {
	queued, err := enqueue(ctx, reads{q: s.write}, org, event, data, s.now().UTC())
	if queued {
		s.announceWebhooks()
	}
	return err
}

func enqueue(ctx context.Context, r reads, org, event string, data any, now time.Time) (queued bool, err error) {
	all, err := r.Webhooks(ctx, org)
	if err != nil || len(all) == 0 {
		return false, err
	}
	body, err := webhooks.Body(event, now, data)
	if err != nil {
		return false, err
	}
	for _, w := range all {
		if !w.Wants(event) {
			continue
		}
		res, err := r.q.ExecContext(ctx, `INSERT INTO webhook_deliveries (id, org_id, webhook_id, event, body, state, next_at, created_at)
			SELECT CAST($1 AS TEXT), w.org_id, w.id, CAST($4 AS TEXT), CAST($5 AS TEXT), 'pending', CAST($6 AS BIGINT), CAST($6 AS BIGINT) FROM webhooks w WHERE w.org_id = $2 AND w.id = $3
			AND (SELECT COUNT(*) FROM webhook_deliveries d WHERE d.webhook_id = w.id AND d.state = 'pending') < $7`,
			NewID("whd"), org, w.ID, event, string(body), micros(now), queueMost)
		if err != nil {
			return queued, wrap(err, "queueing %s for webhook %q", event, w.ID)
		}
		n, err := res.RowsAffected()
		if err != nil {
			return queued, wrap(err, "queueing %s for webhook %q", event, w.ID)
		}
		queued = queued || n > 0
	}
	return queued, nil
}

// longestWait is more than any delivery waits for its next attempt. One that seems to wait longer was written while the clock was ahead.
const longestWait = 24 * time.Hour

// DueWebhooks claims the longest due delivery of each endpoint for which take says yes: nobody else has it before now + lease. What
// is claimed and not settled comes again.
func (s *Store) DueWebhooks(ctx context.Context, lease time.Duration, take func(org, endpoint string) bool) ([]webhooks.Delivery, error) {
	now := s.now().UTC()
	type row struct {
		d    webhooks.Delivery
		next int64
		hook string
	}
	due, err := list(ctx, s.write, func(sc rowScanner) (row, error) {
		var r row
		var attempts int64
		err := sc.Scan(&r.d.ID, &r.d.Org, &r.hook, &r.d.Event, &r.d.Body, &attempts, &r.next)
		r.d.Attempt = int(attempts) + 1
		return r, err
	}, `SELECT id, org_id, webhook_id, event, body, attempts, next_at FROM webhook_deliveries d WHERE state = 'pending' AND (next_at <= $1 OR next_at > $2) AND id =
		(SELECT e.id FROM webhook_deliveries e WHERE e.webhook_id = d.webhook_id AND e.state = 'pending' AND (e.next_at <= $1 OR e.next_at > $2) ORDER BY e.next_at, e.id LIMIT 1)
		ORDER BY next_at, id LIMIT 1000`, micros(now), micros(now.Add(longestWait)))
	if err != nil {
		return nil, wrap(err, "reading due deliveries")
	}
	var claimed []webhooks.Delivery
	for _, r := range due {
		if !take(r.d.Org, r.hook) {
			continue
		}
		w, err := reads{q: s.write}.Webhook(ctx, r.d.Org, r.hook)
		if err != nil {
			return claimed, err
		}
		res, err := s.write.ExecContext(ctx, `UPDATE webhook_deliveries SET next_at = $3, attempts = attempts + 1, last_attempt_at = $4 WHERE id = $1 AND state = 'pending' AND next_at = $2`,
			r.d.ID, r.next, micros(now.Add(lease)), micros(now))
		if one(res, err, ErrVersion) != nil {
			if err != nil {
				return claimed, wrap(err, "claiming delivery %q", r.d.ID)
			}
			continue // another's now
		}
		r.d.Endpoint, r.d.Sealed = w.Endpoint, w.Sealed
		claimed = append(claimed, r.d)
	}
	return claimed, nil
}

// SettleWebhook writes down how an attempt ended: delivered, to be tried again, or given up.
func (s *Store) SettleWebhook(ctx context.Context, id string, o webhooks.Outcome, again time.Time) error {
	state, next := "failed", int64(0)
	switch {
	case o.Delivered:
		state = "delivered"
	case !again.IsZero():
		state, next = "pending", micros(again)
	}
	_, err := s.write.ExecContext(ctx, `UPDATE webhook_deliveries SET state = $2, next_at = $3, response_status = $4, error = $5 WHERE id = $1`, id, state, next, int64(o.Status), o.Error)
	return wrap(err, "settling delivery %q", id)
}

// A WebhookDelivery is how one stands.
type WebhookDelivery struct {
	ID, Webhook, Event, State, Error string
	Attempts, Status                 int
	LastAttempt, CreatedAt           time.Time
}

// WebhookDeliveries lists the newest deliveries to an endpoint of the org.
func (r reads) WebhookDeliveries(ctx context.Context, org, webhook string, limit int) ([]WebhookDelivery, error) {
	all, err := list(ctx, r.q, func(row rowScanner) (WebhookDelivery, error) {
		var d WebhookDelivery
		var last sql.NullInt64
		var attempts, status, created int64
		err := row.Scan(&d.ID, &d.Webhook, &d.Event, &d.State, &d.Error, &attempts, &status, &last, &created)
		d.Attempts, d.Status, d.LastAttempt, d.CreatedAt = int(attempts), int(status), fromOptional(last), fromMicros(created)
		return d, err
	}, `SELECT id, webhook_id, event, state, error, attempts, response_status, last_attempt_at, created_at FROM webhook_deliveries
		WHERE org_id = $1 AND webhook_id = $2 ORDER BY created_at DESC, id DESC LIMIT $3`, org, webhook, limit)
	return all, wrap(err, "listing deliveries to %q", webhook)
}

// ForgetWebhookDeliveries deletes what was settled and is older than before.
func (s *Store) ForgetWebhookDeliveries(ctx context.Context, before time.Time) error {
	_, err := s.write.ExecContext(ctx, `DELETE FROM webhook_deliveries WHERE state <> 'pending' AND created_at < $1`, micros(before))
	return wrap(err, "deleting old deliveries")
}

// WebhooksQueued returns a channel that is closed when something is next queued by this process.
func (s *Store) WebhooksQueued() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queued
}

func (s *Store) announceWebhooks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.queued)
	s.queued = make(chan struct{})
}
