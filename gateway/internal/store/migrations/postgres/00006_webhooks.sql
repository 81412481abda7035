-- +goose Up
CREATE TABLE webhooks (
    id             TEXT PRIMARY KEY,
    org_id         TEXT NOT NULL REFERENCES orgs (id),
    url            TEXT NOT NULL,
    events         TEXT NOT NULL,
    sealed         BYTEA NOT NULL,
    retry_count    BIGINT NOT NULL,
    retry_delay_ms BIGINT NOT NULL,
    timeout_ms     BIGINT NOT NULL,
    created_by     TEXT NOT NULL,
    created_at     BIGINT NOT NULL
);
CREATE INDEX webhooks_org ON webhooks (org_id);

CREATE TABLE webhook_deliveries (
    id              TEXT PRIMARY KEY,
    org_id          TEXT NOT NULL REFERENCES orgs (id),
    webhook_id      TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    event           TEXT NOT NULL,
    body            TEXT NOT NULL,
    state           TEXT NOT NULL,
    attempts        BIGINT NOT NULL DEFAULT 0,
    next_at         BIGINT NOT NULL,
    last_attempt_at BIGINT,
    response_status BIGINT NOT NULL DEFAULT 0,
    error           TEXT NOT NULL DEFAULT '',
    created_at      BIGINT NOT NULL
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (state, next_at);
CREATE INDEX webhook_deliveries_of ON webhook_deliveries (webhook_id, state);
