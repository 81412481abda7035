-- +goose Up
ALTER TABLE sandboxes ADD COLUMN kind TEXT NOT NULL DEFAULT 'own';

CREATE TABLE door_keys (
    org_id     TEXT NOT NULL REFERENCES orgs (id),
    version    BIGINT NOT NULL,
    sealed     BYTEA NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, version)
);
