-- +goose Up
CREATE TABLE secrets (
    org_id     TEXT NOT NULL REFERENCES orgs (id),
    name       TEXT NOT NULL,
    id         TEXT NOT NULL UNIQUE,
    version    INTEGER NOT NULL,
    scope      TEXT NOT NULL,
    sealed     BLOB NOT NULL,
    grants     TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, name)
) STRICT;

CREATE TABLE authorities (
    org_id      TEXT PRIMARY KEY REFERENCES orgs (id),
    certificate BLOB NOT NULL,
    sealed_key  BLOB NOT NULL,
    created_at  INTEGER NOT NULL
) STRICT;
