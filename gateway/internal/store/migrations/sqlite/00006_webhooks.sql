-- +goose Up
CREATE TABLE webhooks (
    id             TEXT PRIMARY KEY,
    org_id         TEXT NOT NULL REFERENCES orgs (id),
    url            TEXT NOT NULL,
    events         TEXT NOT NULL,
    sealed         BLOB NOT NULL,
    retry_count    INTEGER NOT NULL,
    retry_delay_ms INTEGER NOT NULL,
    timeout_ms     INTEGER NOT NULL,
    created_by     TEXT NOT NULL,
    created_at     INTEGER NOT NULL
) STRICT;
CREATE INDEX webhooks_org ON webhooks (org_id);

CREATE TABLE webhook_deliveries (
    id              TEXT PRIMARY KEY,
    org_id          TEXT NOT NULL REFERENCES orgs (id),
    webhook_id      TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    event           TEXT NOT NULL,
    body            TEXT NOT NULL,
    state           TEXT NOT NULL,
    attempts        INTEGER NOT NULL DEFAULT 0,
    next_at         INTEGER NOT NULL,
    last_attempt_at INTEGER,
    response_status INTEGER NOT NULL DEFAULT 0,
    error           TEXT NOT NULL DEFAULT '',
    created_at      INTEGER NOT NULL
) STRICT;
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (state, next_at);
CREATE INDEX webhook_deliveries_of ON webhook_deliveries (webhook_id, state);
