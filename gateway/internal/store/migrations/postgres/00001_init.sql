-- +goose Up
CREATE TABLE orgs (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    slug       TEXT NOT NULL UNIQUE,
    plan       TEXT NOT NULL,
    audit_seq  BIGINT NOT NULL DEFAULT 0,
    audit_head TEXT NOT NULL DEFAULT '',
    created_at BIGINT NOT NULL
);

CREATE TABLE users (
    id         TEXT PRIMARY KEY,
    org_id     TEXT NOT NULL REFERENCES orgs (id),
    email      TEXT NOT NULL,
    role       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (org_id, email)
);

CREATE TABLE setup_tokens (
    hash    BYTEA PRIMARY KEY,
    used_at BIGINT NOT NULL
);

CREATE TABLE api_keys (
    id           TEXT PRIMARY KEY,
    org_id       TEXT NOT NULL REFERENCES orgs (id),
    name         TEXT NOT NULL,
    prefix       TEXT NOT NULL,
    hash         BYTEA NOT NULL UNIQUE,
    scopes       TEXT NOT NULL,
    policies     TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT,
    last_used_at BIGINT,
    revoked_at   BIGINT
);
CREATE INDEX api_keys_org ON api_keys (org_id, created_at);

CREATE TABLE sandboxes (
    id           TEXT PRIMARY KEY,
    org_id       TEXT NOT NULL REFERENCES orgs (id),
    status       TEXT NOT NULL,
    reason       TEXT NOT NULL DEFAULT '',
    policy       TEXT NOT NULL DEFAULT '',
    spec         TEXT NOT NULL,
    addr         TEXT NOT NULL DEFAULT '',
    runsc_id     TEXT NOT NULL DEFAULT '',
    incarnation  BIGINT NOT NULL DEFAULT 0,
    generation   BIGINT NOT NULL DEFAULT 0,
    min_revision BIGINT NOT NULL DEFAULT 0,
    metrics      TEXT NOT NULL DEFAULT '{}',
    version      BIGINT NOT NULL,
    created_by   TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    ended_at     BIGINT
);
CREATE INDEX sandboxes_org ON sandboxes (org_id, created_at, id);
CREATE INDEX sandboxes_live ON sandboxes (status) WHERE ended_at IS NULL;

CREATE TABLE policies (
    org_id     TEXT NOT NULL REFERENCES orgs (id),
    name       TEXT NOT NULL,
    id         TEXT NOT NULL UNIQUE,
    version    BIGINT NOT NULL,
    deleted    BIGINT NOT NULL DEFAULT 0,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, name)
);

CREATE TABLE policy_versions (
    org_id     TEXT NOT NULL,
    name       TEXT NOT NULL,
    version    BIGINT NOT NULL,
    document   TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, name, version),
    FOREIGN KEY (org_id, name) REFERENCES policies (org_id, name)
);

CREATE TABLE settings (
    org_id         TEXT PRIMARY KEY REFERENCES orgs (id),
    default_policy TEXT NOT NULL DEFAULT '',
    version        BIGINT NOT NULL
);

CREATE TABLE decisions (
    id         TEXT PRIMARY KEY,
    org_id     TEXT NOT NULL REFERENCES orgs (id),
    seq        BIGINT NOT NULL UNIQUE,
    time       BIGINT NOT NULL,
    sandbox_id TEXT NOT NULL,
    verdict    TEXT NOT NULL,
    host       TEXT NOT NULL,
    closed     BIGINT NOT NULL,
    body       TEXT NOT NULL
);
CREATE INDEX decisions_org ON decisions (org_id, time DESC, seq DESC);
CREATE INDEX decisions_sandbox ON decisions (org_id, sandbox_id, time DESC, seq DESC);
CREATE INDEX decisions_tail ON decisions (org_id, seq);

CREATE TABLE audit (
    org_id     TEXT NOT NULL REFERENCES orgs (id),
    seq        BIGINT NOT NULL,
    id         TEXT NOT NULL UNIQUE,
    time       BIGINT NOT NULL,
    actor_kind TEXT NOT NULL,
    actor      TEXT NOT NULL,
    action     TEXT NOT NULL,
    object     TEXT NOT NULL,
    outcome    TEXT NOT NULL,
    address    TEXT NOT NULL,
    request_id TEXT NOT NULL,
    details    TEXT NOT NULL,
    prev_hash  TEXT NOT NULL,
    hash       TEXT NOT NULL,
    PRIMARY KEY (org_id, seq)
);

CREATE TABLE idempotency (
    org_id       TEXT NOT NULL REFERENCES orgs (id),
    key          TEXT NOT NULL,
    request_hash BYTEA NOT NULL,
    done         BIGINT NOT NULL DEFAULT 0,
    status       BIGINT NOT NULL DEFAULT 0,
    header       TEXT NOT NULL DEFAULT '{}',
    body         BYTEA,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (org_id, key)
);

CREATE TABLE counters (
    name  TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);
INSERT INTO counters (name, value) VALUES ('revision', 1), ('decisions', 0);
