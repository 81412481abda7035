-- +goose Up
CREATE TABLE secrets (
    org_id     TEXT NOT NULL REFERENCES orgs (id),
    name       TEXT NOT NULL,
    id         TEXT NOT NULL UNIQUE,
    version    BIGINT NOT NULL,
    scope      TEXT NOT NULL,
    sealed     BYTEA NOT NULL,
    grants     TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, name)
);

CREATE TABLE authorities (
    org_id      TEXT PRIMARY KEY REFERENCES orgs (id),
    certificate BYTEA NOT NULL,
    sealed_key  BYTEA NOT NULL,
    created_at  BIGINT NOT NULL
);
