package store

import (
	"context"
	"encoding/json"

	"portreeve.dev/egress/flows"
	"portreeve.dev/gateway/limits"
)

// OrgLimits are what an org set for itself, below the platform's. Version 0: nothing was ever set.
type OrgLimits struct {
	limits.Limits
	Version int64
}

// Limits returns the org's own limits.
func (r reads) Limits(ctx context.Context, org string) (OrgLimits, error) {
	text, version, err := r.own(ctx, "org_limits", "limits", org)
	if err != nil || version == 0 {
		return OrgLimits{}, err
	}
	l := OrgLimits{Version: version}
	return l, json.Unmarshal([]byte(text), &l.Limits)
}

// PutLimits stores limits if the stored version is still the expected one, or AnyVersion.
func (tx *Tx) PutLimits(ctx context.Context, l limits.Limits, expected int64) (OrgLimits, error) {
	version, err := tx.putOwn(ctx, "org_limits", "limits", l, expected)
	return OrgLimits{l, version}, err
}

// CountUsage keeps what a source counted in all. A count only grows: one that was kept before is as good as a higher one.
// Orgs that are unknown are left out.
func (s *Store) CountUsage(ctx context.Context, source string, counted []flows.Usage) error {
	if len(counted) == 0 {
		return nil
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return wrap(err, "counting usage")
	}
	defer tx.Rollback()
	for _, u := range counted {
		_, err := tx.ExecContext(ctx, `INSERT INTO egress_usage (org_id, month, source, bytes_in, bytes_out)
			SELECT o.id, CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS BIGINT), CAST($5 AS BIGINT) FROM orgs o WHERE o.id = $1
			ON CONFLICT (org_id, month, source) DO UPDATE SET
				bytes_in = CASE WHEN excluded.bytes_in > egress_usage.bytes_in THEN excluded.bytes_in ELSE egress_usage.bytes_in END,
				bytes_out = CASE WHEN excluded.bytes_out > egress_usage.bytes_out THEN excluded.bytes_out ELSE egress_usage.bytes_out END`,
			u.Org, u.Month, source, u.In, u.Out)
		if err != nil {
			return wrap(err, "counting usage of %q", u.Org)
		}
	}
	return wrap(tx.Commit(), "counting usage")
}

// A SourceUsage is what one source counted.
type SourceUsage struct {
	flows.Usage
	Source string
}

// Usage lists what each source counted for an org in a month.
func (r reads) Usage(ctx context.Context, org, month string) ([]SourceUsage, error) {
	all, err := list(ctx, r.q, func(row rowScanner) (SourceUsage, error) {
		u := SourceUsage{Usage: flows.Usage{Org: org, Month: month}}
		err := row.Scan(&u.Source, &u.In, &u.Out)
		return u, err
	}, `SELECT source, bytes_in, bytes_out FROM egress_usage WHERE org_id = $1 AND month = $2 ORDER BY source`, org, month)
	return all, wrap(err, "reading usage of %q", org)
}

// UsageByMonth lists what an org moved in its last months, the newest first.
func (r reads) UsageByMonth(ctx context.Context, org string, months int) ([]flows.Usage, error) {
	all, err := list(ctx, r.q, func(row rowScanner) (flows.Usage, error) {
		u := flows.Usage{Org: org}
		err := row.Scan(&u.Month, &u.In, &u.Out)
		return u, err
	}, `SELECT month, CAST(sum(bytes_in) AS BIGINT), CAST(sum(bytes_out) AS BIGINT) FROM egress_usage WHERE org_id = $1 GROUP BY month ORDER BY month DESC LIMIT $2`, org, months)
	return all, wrap(err, "reading usage of %q", org)
}

// NoteQuota writes down that the org came to a state of its quota in a month; false when that was written before.
func (tx *Tx) NoteQuota(ctx context.Context, month string, state limits.State) (first bool, err error) {
	res, err := tx.q.ExecContext(ctx, `INSERT INTO quota_notes (org_id, month, state, at) VALUES ($1, $2, $3, $4) ON CONFLICT (org_id, month, state) DO NOTHING`,
		tx.Org(), month, string(state), micros(tx.now))
	if err != nil {
		return false, wrap(err, "noting the quota of %q", tx.Org())
	}
	n, err := res.RowsAffected()
	return n == 1, wrap(err, "noting the quota of %q", tx.Org())
}

// QuotaNoted reports whether NoteQuota wrote that down.
func (r reads) QuotaNoted(ctx context.Context, org, month string, state limits.State) (bool, error) {
	var n int
	err := r.q.QueryRowContext(ctx, `SELECT count(*) FROM quota_notes WHERE org_id = $1 AND month = $2 AND state = $3`, org, month, string(state)).Scan(&n)
	return n > 0, wrap(err, "reading notes on the quota of %q", org)
}
