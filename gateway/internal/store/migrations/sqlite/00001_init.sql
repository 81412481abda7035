-- +goose Up
CREATE TABLE orgs (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    slug       TEXT NOT NULL UNIQUE,
    plan       TEXT NOT NULL,
    audit_seq  INTEGER NOT NULL DEFAULT 0,
    audit_head TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE users (
    id         TEXT PRIMARY KEY,
    org_id     TEXT NOT NULL REFERENCES orgs (id),
    email      TEXT NOT NULL,
    role       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (org_id, email)
) STRICT;

CREATE TABLE setup_tokens (
    hash    BLOB PRIMARY KEY,
    used_at INTEGER NOT NULL
) STRICT;

CREATE TABLE api_keys (
    id           TEXT PRIMARY KEY,
    org_id       TEXT NOT NULL REFERENCES orgs (id),
    name         TEXT NOT NULL,
    prefix       TEXT NOT NULL,
    hash         BLOB NOT NULL UNIQUE,
    scopes       TEXT NOT NULL,
    policies     TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER,
    revoked_at   INTEGER
) STRICT;
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
    incarnation  INTEGER NOT NULL DEFAULT 0,
    generation   INTEGER NOT NULL DEFAULT 0,
    min_revision INTEGER NOT NULL DEFAULT 0,
    metrics      TEXT NOT NULL DEFAULT '{}',
    version      INTEGER NOT NULL,
    created_by   TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    ended_at     INTEGER
) STRICT;
CREATE INDEX sandboxes_org ON sandboxes (org_id, created_at, id);
CREATE INDEX sandboxes_live ON sandboxes (status) WHERE ended_at IS NULL;

CREATE TABLE policies (
    org_id     TEXT NOT NULL REFERENCES orgs (id),
    name       TEXT NOT NULL,
    id         TEXT NOT NULL UNIQUE,
    version    INTEGER NOT NULL,
    deleted    INTEGER NOT NULL DEFAULT 0,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, name)
) STRICT;

CREATE TABLE policy_versions (
    org_id     TEXT NOT NULL,
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    document   TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, name, version),
    FOREIGN KEY (org_id, name) REFERENCES policies (org_id, name)
) STRICT;

CREATE TABLE settings (
    org_id         TEXT PRIMARY KEY REFERENCES orgs (id),
    default_policy TEXT NOT NULL DEFAULT '',
    version        INTEGER NOT NULL
) STRICT;

CREATE TABLE decisions (
    id         TEXT PRIMARY KEY,
    org_id     TEXT NOT NULL REFERENCES orgs (id),
    seq        INTEGER NOT NULL UNIQUE,
    time       INTEGER NOT NULL,
    sandbox_id TEXT NOT NULL,
    verdict    TEXT NOT NULL,
    host       TEXT NOT NULL,
    closed     INTEGER NOT NULL,
    body       TEXT NOT NULL
) STRICT;
CREATE INDEX decisions_org ON decisions (org_id, time DESC, seq DESC);
CREATE INDEX decisions_sandbox ON decisions (org_id, sandbox_id, time DESC, seq DESC);
CREATE INDEX decisions_tail ON decisions (org_id, seq);

CREATE TABLE audit (
    org_id     TEXT NOT NULL REFERENCES orgs (id),
    seq        INTEGER NOT NULL,
    id         TEXT NOT NULL UNIQUE,
    time       INTEGER NOT NULL,
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
) STRICT;

CREATE TABLE idempotency (
    org_id       TEXT NOT NULL REFERENCES orgs (id),
    key          TEXT NOT NULL,
    request_hash BLOB NOT NULL,
    done         INTEGER NOT NULL DEFAULT 0,
    status       INTEGER NOT NULL DEFAULT 0,
    header       TEXT NOT NULL DEFAULT '{}',
    body         BLOB,
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (org_id, key)
) STRICT;

CREATE TABLE counters (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT;
INSERT INTO counters (name, value) VALUES ('revision', 1), ('decisions', 0);
