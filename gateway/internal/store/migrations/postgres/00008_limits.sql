-- +goose Up
CREATE TABLE org_limits (
    org_id     TEXT PRIMARY KEY REFERENCES orgs (id),
    limits     TEXT NOT NULL,
    version    BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE TABLE egress_usage (
    org_id     TEXT NOT NULL REFERENCES orgs (id),
    month      TEXT NOT NULL,
    source     TEXT NOT NULL,
    bytes_in   BIGINT NOT NULL,
    bytes_out  BIGINT NOT NULL,
    PRIMARY KEY (org_id, month, source)
);

CREATE TABLE quota_notes (
    org_id TEXT NOT NULL REFERENCES orgs (id),
    month  TEXT NOT NULL,
    state  TEXT NOT NULL,
    at     BIGINT NOT NULL,
    PRIMARY KEY (org_id, month, state)
);
