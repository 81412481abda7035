-- +goose Up
-- No row: the org set none, and has the default.
CREATE TABLE ingress_policies (
    org_id     TEXT PRIMARY KEY REFERENCES orgs (id),
    policy     TEXT NOT NULL,
    version    BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
