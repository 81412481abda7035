-- +goose Up
CREATE TABLE tunnels (
    id         TEXT PRIMARY KEY,
    org_id     TEXT NOT NULL REFERENCES orgs (id),
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (id),
    host       TEXT NOT NULL UNIQUE,
    port       BIGINT NOT NULL,
    public     BIGINT NOT NULL,
    token_hash BYTEA,
    auth_epoch BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    deleted_at BIGINT
);
CREATE INDEX tunnels_sandbox ON tunnels (sandbox_id);
CREATE INDEX tunnels_end ON tunnels (expires_at);

CREATE TABLE platform_keys (
    name        TEXT PRIMARY KEY,
    certificate BYTEA,
    sealed      BYTEA NOT NULL,
    created_at  BIGINT NOT NULL
);
