package resolver

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/decisions"
	"portreeve.dev/policies"
	"portreeve.dev/policies/hostname"
)

// An outcome is a verdict that was recorded, with what follows from it.
type outcome struct {
	verdict policies.Verdict
	addr    netip.Addr    // the synthetic one, if allowed
	real    []netip.Addr  // instead, under dns: real
	ttl     time.Duration // of real
	failed  int           // instead, the code of a lookup that had no answer
	id      string        // of the decision
}

// resolve judges the name, gives it its address and records both. raw is the name as asked; with address, an address is.
func (s *Server) resolve(ctx context.Context, b egress.Binding, x *box, raw string, address bool) outcome {
	host, err := hostname.Normalize(raw)
	if err != nil {
		return s.record(ctx, b, x, outcome{verdict: policies.Denied(policies.ReasonHostInvalid)}, subject{})
	}
	if host == Self {
		return outcome{verdict: policies.Verdict{Action: policies.Allow, Reason: policies.ReasonAllowed}, addr: s.cfg.Names.Self()}
	}
	v, snapshot, revision := s.judge(b, host)
	if v.Allowed() {
		if about, ok := s.withinWildcard(b, x, snapshot, host); !ok {
			return s.record(ctx, b, x, outcome{verdict: policies.Denied(policies.ReasonNameBudget)}, subject{host: about, revision: revision})
		}
	}
	if v.Allowed() && v.DNS == policies.DNSReal && s.cfg.Lookup != nil {
		return s.real(ctx, b, x, subject{host: host, revision: revision}, v, address)
	}
	o := outcome{verdict: v}
	if v.Allowed() {
		o.addr, err = s.cfg.Names.AddressWithin(b.Sandbox, b.Incarnation, host, s.cfg.DistinctNames, s.cfg.NameBytes)
		if errors.Is(err, ErrNamesFull) {
			o.verdict = policies.Denied(policies.ReasonBudget)
			host = "" // one line about the budget, not one per name
		} else if err != nil {
			o.verdict = policies.Denied(policies.ReasonRecordFailed)
			s.complain.Do(func() { s.cfg.Log.Warn("name not answered", "sandbox", b.Sandbox, "err", err) })
		}
	}
	return s.record(ctx, b, x, o, subject{host: host, revision: revision})
}

// judge asks the floor, then the policy. Both go stale together: a floor that nobody vouches for says nothing about the name.
func (s *Server) judge(b egress.Binding, host string) (policies.Verdict, *policies.Snapshot, uint64) {
	snapshot, revision, err := s.cfg.Policies.Snapshot(b)
	if err != nil || revision < b.MinRevision {
		return policies.Denied(policies.ReasonStalePolicy), nil, revision
	}
	floor := s.cfg.Floor()
	if floor == nil { // there is none while no policy is fresh: not the name is at fault
		return policies.Denied(policies.ReasonStalePolicy), nil, 0
	}
	return floor.Evaluate(b.Org, snapshot, &policies.Request{Stage: policies.StageName, Host: host, Now: s.cfg.Now()}), snapshot, revision
}

// A subject is what a decision is about.
type subject struct {
	host     string
	addr     netip.Addr
	revision uint64
}

// record writes the outcome down, once per window, and counts it within; if it can't, the outcome becomes a denial.
func (s *Server) record(ctx context.Context, b egress.Binding, x *box, o outcome, about subject) outcome {
	v := o.verdict
	key := verdictKey{host: about.host, action: v.Action, reason: v.Reason, rule: v.Rule, revision: about.revision}
	now := s.cfg.Now()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RecordTimeout)
	defer cancel()
	window := s.cfg.Coalesce
	if v.Reason == policies.ReasonNameBudget {
		window = alarmWindow
	}
	id, err := s.once(ctx, x, key, line{b, v, about}, now, window)
	if err != nil {
		s.stats.unrecorded.Add(1)
		s.complain.Do(func() {
			s.cfg.Log.Warn("name not answered, its decision can't be recorded", "sandbox", b.Sandbox, "err", err)
		})
		return outcome{verdict: policies.Denied(policies.ReasonRecordFailed)}
	}
	o.id = id
	return o
}

func decision(b egress.Binding, v policies.Verdict, about subject, now time.Time) *decisions.Decision {
	d := &decisions.Decision{ID: decisions.NewID(), Time: now.UTC(), Org: b.Org, Sandbox: b.Sandbox, Incarnation: b.Incarnation, Layer: "dns",
		Verdict: v.Action.String(), Reason: v.Reason.String(), Rule: v.Rule, RuleLayer: v.Layer, Revision: about.revision, Version: v.Version,
		Host: about.host, Protocol: "dns", Fold: v.Allowed() && v.Log == policies.LogCount && !v.Observed}
	if about.addr.IsValid() {
		d.Addr = about.addr.String()
	}
	if !v.Allowed() {
		d.Guidance = v.Guidance()
	}
	return d
}
