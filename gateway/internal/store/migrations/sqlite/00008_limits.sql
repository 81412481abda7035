-- +goose Up
CREATE TABLE org_limits (
    org_id     TEXT PRIMARY KEY REFERENCES orgs (id),
    limits     TEXT NOT NULL,
    version    INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE egress_usage (
    org_id     TEXT NOT NULL REFERENCES orgs (id),
    month      TEXT NOT NULL,
    source     TEXT NOT NULL,
    bytes_in   INTEGER NOT NULL,
    bytes_out  INTEGER NOT NULL,
    PRIMARY KEY (org_id, month, source)
) STRICT;

CREATE TABLE quota_notes (
    org_id TEXT NOT NULL REFERENCES orgs (id),
    month  TEXT NOT NULL,
    state  TEXT NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (org_id, month, state)
) STRICT;
