-- +goose Up
-- A root without a state, which the zero value is, neither signs nor is trusted.
CREATE TABLE roots (
    org_id      TEXT NOT NULL REFERENCES orgs (id),
    version     BIGINT NOT NULL,
    state       TEXT NOT NULL DEFAULT '',
    certificate BYTEA NOT NULL,
    sealed_key  BYTEA NOT NULL,
    created_at  BIGINT NOT NULL,
    changes_at  BIGINT,
    PRIMARY KEY (org_id, version)
);
INSERT INTO roots (org_id, version, state, certificate, sealed_key, created_at)
    SELECT org_id, 1, 'signing', certificate, sealed_key, created_at FROM authorities;
DROP TABLE authorities;

CREATE TABLE intermediates (
    org_id     TEXT NOT NULL REFERENCES orgs (id),
    serial     TEXT NOT NULL,
    root       BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    ends_at    BIGINT NOT NULL,
    revoked_at BIGINT,
    PRIMARY KEY (org_id, serial)
);
