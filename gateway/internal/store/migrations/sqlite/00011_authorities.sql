-- +goose Up
-- A root without a state, which the zero value is, neither signs nor is trusted.
CREATE TABLE roots (
    org_id      TEXT NOT NULL REFERENCES orgs (id),
    version     INTEGER NOT NULL,
    state       TEXT NOT NULL DEFAULT '',
    certificate BLOB NOT NULL,
    sealed_key  BLOB NOT NULL,
    created_at  INTEGER NOT NULL,
    changes_at  INTEGER,
    PRIMARY KEY (org_id, version)
) STRICT;
INSERT INTO roots (org_id, version, state, certificate, sealed_key, created_at)
    SELECT org_id, 1, 'signing', certificate, sealed_key, created_at FROM authorities;
DROP TABLE authorities;

CREATE TABLE intermediates (
    org_id     TEXT NOT NULL REFERENCES orgs (id),
    serial     TEXT NOT NULL,
    root       INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    ends_at    INTEGER NOT NULL,
    revoked_at INTEGER,
    PRIMARY KEY (org_id, serial)
) STRICT;
