-- +goose Up
CREATE TABLE decision_orgs (
    org_id           TEXT PRIMARY KEY REFERENCES orgs (id),
    seq              BIGINT NOT NULL DEFAULT 0,
    count            BIGINT NOT NULL DEFAULT 0,
    bytes            BIGINT NOT NULL DEFAULT 0,
    forgotten        BIGINT NOT NULL DEFAULT 0,
    forgotten_seq    BIGINT NOT NULL DEFAULT 0,
    forgotten_before BIGINT,
    best_effort      BIGINT NOT NULL DEFAULT 0,
    paths            TEXT NOT NULL DEFAULT 'full',
    keep_days        BIGINT NOT NULL DEFAULT 30,
    version          BIGINT NOT NULL DEFAULT 0
);
INSERT INTO decision_orgs (org_id, seq, count, bytes)
    SELECT o.id, coalesce(max(d.seq), 0), count(d.id), coalesce(sum(octet_length(d.body) + 200), 0) FROM orgs o LEFT JOIN decisions d ON d.org_id = o.id GROUP BY o.id;

DROP INDEX decisions_org;
DROP INDEX decisions_sandbox;
DROP INDEX decisions_tail;
ALTER TABLE decisions
    DROP CONSTRAINT decisions_seq_key,
    ADD COLUMN flow BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN spool TEXT NOT NULL DEFAULT '',
    ADD COLUMN life BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN size BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN before BIGINT NOT NULL DEFAULT 0;
UPDATE decisions SET size = octet_length(body) + 200;
CREATE INDEX decisions_org ON decisions (org_id, time DESC, id DESC);
CREATE INDEX decisions_sandbox ON decisions (org_id, sandbox_id, time DESC, id DESC);
CREATE INDEX decisions_tail ON decisions (org_id, seq);
CREATE INDEX decisions_open ON decisions (spool, life) WHERE closed = 0 AND flow = 1;
DELETE FROM counters WHERE name = 'decisions';

CREATE TABLE decision_spools (
    id       TEXT PRIMARY KEY,
    node     TEXT NOT NULL,
    life     BIGINT NOT NULL,
    run      TEXT NOT NULL,
    settled  BIGINT NOT NULL,
    error    TEXT NOT NULL,
    seen_at  BIGINT NOT NULL,
    ended_at BIGINT
);

CREATE TABLE decision_numbers (
    spool    TEXT NOT NULL REFERENCES decision_spools (id),
    org_id   TEXT NOT NULL REFERENCES orgs (id),
    highest  BIGINT NOT NULL,
    received BIGINT NOT NULL,
    reserved BIGINT NOT NULL,
    written  BIGINT NOT NULL,
    budget   BIGINT NOT NULL,
    unsure   BIGINT NOT NULL,
    bytes    BIGINT NOT NULL,
    oldest   BIGINT,
    missing  TEXT NOT NULL,
    PRIMARY KEY (spool, org_id)
);
CREATE INDEX decision_numbers_org ON decision_numbers (org_id);
