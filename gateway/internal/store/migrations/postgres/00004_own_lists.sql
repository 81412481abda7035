-- +goose Up
ALTER TABLE sandboxes ADD COLUMN own TEXT;
ALTER TABLE sandboxes ADD COLUMN own_version BIGINT NOT NULL DEFAULT 0;
UPDATE sandboxes SET own = spec::json ->> 'egress', own_version = 1 WHERE spec::json ->> 'egress' IS NOT NULL;

ALTER TABLE policy_versions ADD COLUMN source TEXT NOT NULL DEFAULT '';
ALTER TABLE policy_versions ADD COLUMN restored BIGINT NOT NULL DEFAULT 0;

ALTER TABLE policies ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;
UPDATE policies SET bytes = COALESCE((SELECT OCTET_LENGTH(v.document) FROM policy_versions v
    WHERE v.org_id = policies.org_id AND v.name = policies.name AND v.version = policies.version), 0);

CREATE TABLE policy_uses (
    org_id  TEXT NOT NULL REFERENCES orgs (id),
    name    TEXT NOT NULL,
    version BIGINT NOT NULL,
    last    BIGINT NOT NULL,
    PRIMARY KEY (org_id, name, version)
);
INSERT INTO policy_uses (org_id, name, version, last)
    SELECT org_id, CASE layer WHEN 'ceiling' THEN '' ELSE substr(layer, 8) END, version, max(time)
    FROM (SELECT org_id, time, body::json ->> 'rule_layer' AS layer, (body::json ->> 'policy_version')::bigint AS version FROM decisions) d
    WHERE version > 0 AND (layer = 'ceiling' OR layer LIKE 'policy:%')
    GROUP BY org_id, layer, version;
