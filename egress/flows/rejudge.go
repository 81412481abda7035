package flows

import (
	"cmp"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
)

// Rejudge judges every flow under the newest snapshot of its sandbox, ends those that are denied now, and says how many. It returns
// when each of them was told. What it is judged by is asked for once, however many flows there are.
func (t *Table) Rejudge() (ended int) {
	s := t.sit()
	for _, e := range t.entries(nil) {
		v := s.judge(&e.Flow)
		if v.Allowed() {
			e.allowed.Store(true)
			continue
		}
		if !e.allowed.Load() && v.Reason != policies.ReasonUnbound {
			continue
		}
		if e.kill(reason(v)) {
			ended++
		}
	}
	return ended
}

// reason is what the flow is told: a changed policy is "revoked" whatever rule did it; other reasons say more.
func reason(v policies.Verdict) policies.Reason {
	switch v.Reason {
	case policies.ReasonStalePolicy, policies.ReasonNoPolicy, policies.ReasonUnbound, policies.ReasonFloorHard, policies.ReasonFloorSoft, policies.ReasonPort25:
		return v.Reason
	}
	return policies.ReasonRevoked
}

// judge asks whose the connection is, the policy and the floor.
func (s *sitting) judge(f *Flow) policies.Verdict {
	b, ok := s.cfg.Bindings.Current(f.Binding)
	if !ok || b.Sandbox != f.Binding.Sandbox || b.Incarnation != f.Binding.Incarnation {
		return policies.Denied(policies.ReasonUnbound)
	}
	if f.Local {
		return policies.Verdict{Action: policies.Allow, Reason: policies.ReasonAllowed}
	}
	snapshot, revision, err := s.snapshot(b)
	if err != nil || revision < b.MinRevision {
		return policies.Denied(policies.ReasonStalePolicy)
	}
	r := f.Request
	r.Now = s.now
	if r.Host != "" && f.Remote.IsValid() {
		r.Addr = f.Remote.Addr() // a range denied since ends the flow, under whatever name it was dialled
	}
	floor := s.floor()
	v := floor.Evaluate(b.Org, snapshot, &r)
	if v.Allowed() && f.Opaque && s.mustSee(b, f, v) {
		return policies.Denied(policies.ReasonRevoked)
	}
	if v.Allowed() && !s.holds(b, f) {
		return policies.Denied(policies.ReasonRevoked)
	}
	if v.Allowed() && deniesClaim(snapshot, f, s.now) {
		return policies.Denied(policies.ReasonRevoked)
	}
	if !v.Allowed() || !f.Remote.IsValid() {
		return v
	}
	under := floor.Judge(b.Org, f.Remote.Addr(), f.Remote.Port())
	switch {
	case !under.Allowed():
		return under
	case under.Named && !v.Named: // only by an exemption, which a policy that names nothing may not use
		return policies.NotNamed(f.Remote.Addr())
	}
	return v
}

// mustSee reports whether a flow that passes unseen would be opened, or refused, if it began now.
func (s *sitting) mustSee(b egress.Binding, f *Flow, v policies.Verdict) bool {
	if f.Request.Protocol == policies.HTTPS && v.TLS == policies.Inspect {
		return true
	}
	host := cmp.Or(f.Request.Host, f.Claim)
	return host != "" && s.cfg.MustSee != nil &&
		remember(s.seen, toHost{b, host}, func() bool { return s.cfg.MustSee(b, host) })
}

// deniesClaim reports whether a rule denies the name that a flow by address claims. It needs no rule that allows it.
func deniesClaim(s *policies.Snapshot, f *Flow, now time.Time) bool {
	if f.Claim == "" {
		return false
	}
	v := s.Evaluate(&policies.Request{Stage: policies.StageConnect, Host: f.Claim, Port: f.Request.Port, Protocol: f.Request.Protocol, Now: now})
	return !v.Allowed() && v.Reason != policies.ReasonNoRule
}

// holds reports whether every secret that a flow carries is still granted. A newer version of it changes nothing: what is under way
// was let through with the older one, and providers keep both for a while.
func (s *sitting) holds(b egress.Binding, f *Flow) bool {
	for _, c := range f.Carries {
		if s.cfg.Holds == nil {
			return false
		}
		held := remember(s.held, carriedTo{toHost{b, f.Request.Host}, f.Request.Port, c},
			func() bool { return s.cfg.Holds(b, f.Request.Host, f.Request.Port, c) })
		if !held {
			return false
		}
	}
	return true
}
