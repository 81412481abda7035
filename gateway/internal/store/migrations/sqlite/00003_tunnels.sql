-- +goose Up
CREATE TABLE tunnels (
    id         TEXT PRIMARY KEY,
    org_id     TEXT NOT NULL REFERENCES orgs (id),
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (id),
    host       TEXT NOT NULL UNIQUE,
    port       INTEGER NOT NULL,
    public     INTEGER NOT NULL,
    token_hash BLOB,
    auth_epoch INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    deleted_at INTEGER
) STRICT;
CREATE INDEX tunnels_sandbox ON tunnels (sandbox_id);
CREATE INDEX tunnels_end ON tunnels (expires_at);

CREATE TABLE platform_keys (
    name        TEXT PRIMARY KEY,
    certificate BLOB,
    sealed      BLOB NOT NULL,
    created_at  INTEGER NOT NULL
) STRICT;
