-- +goose Up
CREATE TABLE access_requests (
    id         TEXT PRIMARY KEY,
    org_id     TEXT NOT NULL REFERENCES orgs (id),
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (id),
    host       TEXT NOT NULL,
    port       INTEGER NOT NULL,
    protocol   TEXT NOT NULL,
    methods    TEXT NOT NULL,
    paths      TEXT NOT NULL,
    width      TEXT NOT NULL,
    why        TEXT NOT NULL,
    lasts      INTEGER NOT NULL,
    state      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    decided_at INTEGER,
    decided_by TEXT NOT NULL DEFAULT '',
    reason     TEXT NOT NULL DEFAULT '',
    rule_id    TEXT NOT NULL DEFAULT '',
    layers     TEXT NOT NULL DEFAULT '[]'
) STRICT;
CREATE INDEX access_requests_org ON access_requests (org_id, created_at);
CREATE INDEX access_requests_sandbox ON access_requests (sandbox_id, state);
