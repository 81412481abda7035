-- +goose Up
ALTER TABLE sandboxes ADD COLUMN kind TEXT NOT NULL DEFAULT 'own';

CREATE TABLE door_keys (
    org_id     TEXT NOT NULL REFERENCES orgs (id),
    version    INTEGER NOT NULL,
    sealed     BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, version)
) STRICT;
