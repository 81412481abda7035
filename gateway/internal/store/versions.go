package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"portreeve.dev/egress/decisions"
)

const (
	// VersionsKept is how many versions of a document are kept, the current one among them.
	VersionsKept = 200
	// usedFor is how long a version is kept beyond that after the last decision that names it: as long as decisions are.
	usedFor = 30 * 24 * time.Hour
)

// A PolicyVersionInfo is a version without its document.
type PolicyVersionInfo struct {
	Version   int64
	Bytes     int64 // of the document
	Restored  int64 // the version that it is again; 0: a new one
	CreatedBy string
	CreatedAt time.Time
}

// PolicyVersions lists the versions of a document, newest first, those of a deleted policy too. before is a version that the
// list stays below; 0: none.
func (r reads) PolicyVersions(ctx context.Context, org, name string, before int64, limit int) ([]PolicyVersionInfo, error) {
	all, err := list(ctx, r.q, scanVersionInfo, `SELECT version, OCTET_LENGTH(document), restored, created_by, created_at FROM policy_versions
		WHERE org_id = $1 AND name = $2 AND (CAST($3 AS BIGINT) = 0 OR version < CAST($3 AS BIGINT)) ORDER BY version DESC LIMIT $4`, org, name, before, limit)
	return all, wrap(err, "listing versions of policy %q", name)
}

func scanVersionInfo(row rowScanner) (PolicyVersionInfo, error) {
	var v PolicyVersionInfo
	var at int64
	err := row.Scan(&v.Version, &v.Bytes, &v.Restored, &v.CreatedBy, &at)
	v.CreatedAt = fromMicros(at)
	return v, err
}

// forgetVersions deletes what is older than the last VersionsKept and named by no decision that is still kept.
func (tx *Tx) forgetVersions(ctx context.Context, name string, newest int64) error {
	if newest <= VersionsKept {
		return nil
	}
	since := micros(tx.earliest.Add(-usedFor))
	_, err := tx.q.ExecContext(ctx, `DELETE FROM policy_uses WHERE org_id = $1 AND name = $2 AND last < $3`, tx.Org(), name, since)
	if err != nil {
		return wrap(err, "forgetting uses of policy %q", name)
	}
	_, err = tx.q.ExecContext(ctx, `DELETE FROM policy_versions WHERE org_id = $1 AND name = $2 AND version <= $3
		AND version NOT IN (SELECT version FROM policy_uses WHERE org_id = $1 AND name = $2)`, tx.Org(), name, newest-VersionsKept)
	return wrap(err, "forgetting versions of policy %q", name)
}

// A use is a version that a decision names.
type use struct {
	org, name string
	version   int64
}

// noteUses writes down which versions a batch of decisions names, so that those outlast the decisions.
func noteUses(ctx context.Context, q querier, batch []decisions.Decision) error {
	last := make(map[use]time.Time)
	for _, d := range batch {
		name, ok := documentOf(d.RuleLayer)
		if !ok || d.Version <= 0 {
			continue
		}
		u := use{d.Org, name, d.Version}
		if d.Time.After(last[u]) {
			last[u] = d.Time
		}
	}
	for _, u := range inOrder(last) {
		_, err := q.ExecContext(ctx, `INSERT INTO policy_uses (org_id, name, version, last)
			SELECT o.id, CAST($2 AS TEXT), CAST($3 AS BIGINT), CAST($4 AS BIGINT) FROM orgs o WHERE o.id = $1
			ON CONFLICT (org_id, name, version) DO UPDATE SET last = excluded.last WHERE policy_uses.last < excluded.last`,
			u.org, u.name, u.version, micros(last[u]))
		if err != nil {
			return wrap(err, "noting a use of policy %q version %d", u.name, u.version)
		}
	}
	return nil
}

// inOrder sorts what is written, so that two batches at once never wait for each other in a ring.
func inOrder(last map[use]time.Time) []use {
	return slices.SortedFunc(maps.Keys(last), func(a, b use) int {
		return cmp.Or(strings.Compare(a.org, b.org), strings.Compare(a.name, b.name), cmp.Compare(a.version, b.version))
	})
}

// documentOf is the name under which the document of a decision's layer is kept.
func documentOf(layer string) (name string, ok bool) {
	if layer == "ceiling" {
		return Ceiling, true
	}
	return strings.CutPrefix(layer, "policy:")
}
