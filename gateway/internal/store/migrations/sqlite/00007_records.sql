-- +goose Up
CREATE TABLE decision_orgs (
    org_id           TEXT PRIMARY KEY REFERENCES orgs (id),
    seq              INTEGER NOT NULL DEFAULT 0,
    count            INTEGER NOT NULL DEFAULT 0,
    bytes            INTEGER NOT NULL DEFAULT 0,
    forgotten        INTEGER NOT NULL DEFAULT 0,
    forgotten_seq    INTEGER NOT NULL DEFAULT 0,
    forgotten_before INTEGER,
    best_effort      INTEGER NOT NULL DEFAULT 0,
    paths            TEXT NOT NULL DEFAULT 'full',
    keep_days        INTEGER NOT NULL DEFAULT 30,
    version          INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO decision_orgs (org_id, seq, count, bytes)
    SELECT o.id, coalesce(max(d.seq), 0), count(d.id), coalesce(sum(length(d.body) + 200), 0) FROM orgs o LEFT JOIN decisions d ON d.org_id = o.id GROUP BY o.id;

DROP INDEX decisions_org;
DROP INDEX decisions_sandbox;
DROP INDEX decisions_tail;
ALTER TABLE decisions RENAME TO decisions_before;
CREATE TABLE decisions (
    id         TEXT PRIMARY KEY,
    org_id     TEXT NOT NULL REFERENCES orgs (id),
    seq        INTEGER NOT NULL,
    time       INTEGER NOT NULL,
    sandbox_id TEXT NOT NULL,
    verdict    TEXT NOT NULL,
    host       TEXT NOT NULL,
    flow       INTEGER NOT NULL,
    closed     INTEGER NOT NULL,
    spool      TEXT NOT NULL,
    life       INTEGER NOT NULL,
    size       INTEGER NOT NULL,
    before     INTEGER NOT NULL,
    body       TEXT NOT NULL
) STRICT;
INSERT INTO decisions SELECT id, org_id, seq, time, sandbox_id, verdict, host, 0, closed, '', 0, length(body) + 200, 0, body FROM decisions_before;
DROP TABLE decisions_before;
CREATE INDEX decisions_org ON decisions (org_id, time DESC, id DESC);
CREATE INDEX decisions_sandbox ON decisions (org_id, sandbox_id, time DESC, id DESC);
CREATE INDEX decisions_tail ON decisions (org_id, seq);
CREATE INDEX decisions_open ON decisions (spool, life) WHERE closed = 0 AND flow = 1;
DELETE FROM counters WHERE name = 'decisions';

CREATE TABLE decision_spools (
    id       TEXT PRIMARY KEY,
    node     TEXT NOT NULL,
    life     INTEGER NOT NULL,
    run      TEXT NOT NULL,
    settled  INTEGER NOT NULL,
    error    TEXT NOT NULL,
    seen_at  INTEGER NOT NULL,
    ended_at INTEGER
) STRICT;

CREATE TABLE decision_numbers (
    spool    TEXT NOT NULL REFERENCES decision_spools (id),
    org_id   TEXT NOT NULL REFERENCES orgs (id),
    highest  INTEGER NOT NULL,
    received INTEGER NOT NULL,
    reserved INTEGER NOT NULL,
    written  INTEGER NOT NULL,
    budget   INTEGER NOT NULL,
    unsure   INTEGER NOT NULL,
    bytes    INTEGER NOT NULL,
    oldest   INTEGER,
    missing  TEXT NOT NULL,
    PRIMARY KEY (spool, org_id)
) STRICT;
CREATE INDEX decision_numbers_org ON decision_numbers (org_id);
