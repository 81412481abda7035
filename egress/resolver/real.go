package resolver

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
)

// real answers with the addresses that the name has. The verdict is recorded before anything leaves; what the lookup finds is judged by the
// dialer, and a denial of that is a decision of its own. Other types than A are empty, and not asked for.
func (s *Server) real(ctx context.Context, b egress.Binding, x *box, about subject, v policies.Verdict, address bool) outcome {
	o := s.record(ctx, b, x, outcome{verdict: v}, about)
	if !o.verdict.Allowed() || !address {
		return o
	}
	if !x.lookups.AllowN(s.cfg.Now(), 1) {
		s.stats.overBudget.Add(1)
		return s.record(ctx, b, x, outcome{verdict: policies.Denied(policies.ReasonBudget)}, subject{revision: about.revision})
	}
	looking, cancel := context.WithTimeout(ctx, s.cfg.LookupTimeout)
	defer cancel()
	addrs, ttl, err := s.cfg.Lookup(looking, s.question(b, about.host, v))
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		return s.record(ctx, b, x, outcome{verdict: refused.Verdict}, subject{host: about.host, addr: refused.Addr, revision: about.revision})
	case errors.Is(err, ErrNoSuchName):
		o.failed = dns.RcodeNameError
		return o
	case err != nil:
		o.failed = dns.RcodeServerFailure
		return o
	}
	for _, a := range addrs {
		if a = a.Unmap(); a.Is4() && len(o.real) < maxReal { // a sandbox has no IPv6
			o.real = append(o.real, a)
		}
	}
	o.ttl = min(max(ttl.Truncate(time.Second), minRealTTL), maxRealTTL)
	s.cfg.Names.Pin(b.Sandbox, b.Incarnation, about.host, o.real, s.cfg.Now(), o.ttl)
	return o
}

// question is about one name, with the rules for what it leads to: those that deny hold under every name.
func (s *Server) question(b egress.Binding, host string, v policies.Verdict) Question {
	return Question{Org: b.Org, Host: host, Named: v.Named,
		Address: func(a netip.Addr) policies.Verdict { return s.evaluate(b, policies.Request{Host: host, Addr: a}) },
		Alias: func(name string) policies.Verdict {
			if v := s.evaluate(b, policies.Request{Host: name}); !v.Allowed() && v.Reason != policies.ReasonNoRule {
				return v
			}
			return policies.Verdict{Action: policies.Allow, Reason: policies.ReasonAllowed}
		},
	}
}

func (s *Server) evaluate(b egress.Binding, r policies.Request) policies.Verdict {
	snapshot, revision, err := s.cfg.Policies.Snapshot(b)
	if err != nil || revision < b.MinRevision {
		return policies.Denied(policies.ReasonStalePolicy)
	}
	r.Stage, r.Now = policies.StageName, s.cfg.Now()
	return snapshot.Evaluate(&r)
}
