-- +goose Up
-- org_id is whose key made it: its entries in the audit log are there. orgs are those that may use it, as JSON.
CREATE TABLE floor_exemptions (
    id         TEXT PRIMARY KEY,
    cidr       TEXT NOT NULL,
    ports      TEXT NOT NULL,
    orgs       TEXT NOT NULL,
    note       TEXT NOT NULL,
    org_id     TEXT NOT NULL REFERENCES orgs (id),
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT
);
