package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"
)

// A FeedState is everything that edge must know, as of one revision.
type FeedState struct {
	Revision int64
	Orgs     []OrgPolicies
	Exempt   []FloorExemption // also those that have ended
}

// OrgPolicies are the documents of an org and which live sandbox has which.
type OrgPolicies struct {
	Org       string
	Ceiling   Policy
	Named     []Policy
	Secrets   []Secret
	DoorKeys  []DoorKey
	Limits    OrgLimits
	Sandboxes []SandboxPolicy
	Decisions DecisionSettings // how they are recorded
	Authority string           // another one after each change of which root signs, or of what it signed and took back
}

// A SandboxPolicy says which named policy a live sandbox has; "" is the ceiling alone.
type SandboxPolicy struct {
	Sandbox string
	Policy  string
	Own     json.RawMessage // a list of its own; none: nil
	Version int64           // of that list

	Attached    bool // and it has not been told to end
	Incarnation uint64
	ExpiresAt   time.Time
}

// Revision returns the newest committed revision.
func (r reads) Revision(ctx context.Context) (int64, error) {
	var n int64
	err := r.q.QueryRowContext(ctx, `SELECT value FROM counters WHERE name = 'revision'`).Scan(&n)
	return n, wrap(err, "reading the revision")
}

// FeedState reads the whole state in one snapshot: what it holds is exactly what its revision means.
func (s *Store) FeedState(ctx context.Context) (FeedState, error) {
	tx, err := s.q.(*sql.DB).BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return FeedState{}, wrap(err, "reading the feed")
	}
	defer tx.Rollback()
	r := reads{q: tx}
	var f FeedState
	if f.Revision, err = r.Revision(ctx); err != nil {
		return FeedState{}, err
	}
	orgs, err := r.Orgs(ctx)
	if err != nil {
		return FeedState{}, err
	}
	live, err := r.LiveSandboxes(ctx)
	if err != nil {
		return FeedState{}, err
	}
	holdings, err := r.AllHoldings(ctx)
	if err != nil {
		return FeedState{}, err
	}
	records := make(map[string]DecisionSettings, len(holdings))
	for _, h := range holdings {
		records[h.Org] = h.DecisionSettings
	}
	if f.Exempt, err = r.FloorExemptions(ctx); err != nil {
		return FeedState{}, err
	}
	marks, err := r.authorityMarks(ctx)
	if err != nil {
		return FeedState{}, err
	}
	for _, o := range orgs {
		p := OrgPolicies{Org: o.ID, Decisions: records[o.ID], Authority: marks[o.ID]}
		if p.Ceiling, err = r.Policy(ctx, o.ID, Ceiling); err != nil {
			return FeedState{}, err
		}
		if p.Named, err = r.Policies(ctx, o.ID); err != nil {
			return FeedState{}, err
		}
		if p.Secrets, err = r.Secrets(ctx, o.ID); err != nil {
			return FeedState{}, err
		}
		if p.DoorKeys, err = r.DoorKeys(ctx, o.ID); err != nil {
			return FeedState{}, err
		}
		if p.Limits, err = r.Limits(ctx, o.ID); err != nil {
			return FeedState{}, err
		}
		for _, b := range live {
			if b.Org == o.ID {
				p.Sandboxes = append(p.Sandboxes, SandboxPolicy{Sandbox: b.ID, Policy: b.Policy, Own: b.Own, Version: b.OwnVersion,
					Attached: b.Kind == Attached && b.Status != Terminating, Incarnation: max(b.Incarnation, 1), ExpiresAt: b.ExpiresAt})
			}
		}
		f.Orgs = append(f.Orgs, p)
	}
	return f, nil
}
