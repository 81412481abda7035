package proxy

import (
	"context"
	"errors"
	"net/netip"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/policies"
)

// What a decision was given on, and which identity it knew.
const (
	layerConnect = "connect"
	layerHTTP    = "http"

	levelHTTP    = "http"    // the inside is seen: Host, method, path
	levelSNI     = "sni"     // the TLS server name; the inside is not seen
	levelAddress = "address" // the destination address, or the name that it stands for
)

// A judgement is a verdict with what it was about.
type judgement struct {
	req      policies.Request
	v        policies.Verdict
	revision uint64
}

// deny turns the judgement into a refusal for a reason of ours.
func (j judgement) deny(reason policies.Reason) judgement {
	j.v = policies.Denied(reason)
	return j
}

// request says what is known of the connection's destination.
func (c *connection) request(stage policies.Stage, protocol policies.Protocol) policies.Request {
	r := policies.Request{Stage: stage, Host: c.host, Port: c.dst.Port(), Protocol: protocol, Now: c.p.cfg.Now()}
	if c.host == "" {
		r.Addr = c.dst.Addr()
	}
	return r
}

// judge asks the floor and the snapshot in force now. Without a fresh one of at least the binding's revision, nothing is allowed.
func (c *connection) judge(req policies.Request) judgement {
	j := judgement{req: req}
	s, revision, err := c.p.cfg.Policies.Snapshot(c.binding)
	switch {
	case errors.Is(err, ErrStalePolicy):
		j.v = policies.Denied(policies.ReasonStalePolicy)
	case err != nil || s == nil:
		j.v = policies.Denied(policies.ReasonNoPolicy)
	case revision < c.binding.MinRevision:
		j.v, j.revision = policies.Denied(policies.ReasonStalePolicy), revision
	default:
		j.v, j.revision = c.verdict(s, &req), revision
	}
	return j
}

// verdict asks the floor, then the policy. A connection by address is told what the floor closes before it is told what a rule lacks.
func (c *connection) verdict(s *policies.Snapshot, req *policies.Request) policies.Verdict {
	floor := c.p.cfg.Floor()
	if floor == nil { // there is none while no policy is fresh
		return policies.Denied(policies.ReasonStalePolicy)
	}
	return floor.Evaluate(c.binding.Org, s, req)
}

// target is what may be dialled for a judgement: its host and port, and the questions that the dialer must ask.
func (c *connection) target(j judgement) Target {
	return Target{
		Org: c.binding.Org, Host: j.req.Host, Addr: j.req.Addr, Port: j.req.Port, Named: j.v.Named, Pin: c.pin,
		Address: func(a netip.Addr) policies.Verdict { return c.judgeAddress(j.req, a) },
		Alias:   func(name string) policies.Verdict { return c.judgeAlias(j.req, name) },
	}
}

// judgeAddress asks again with the address that a name has: deny rules on ranges hold under every name.
func (c *connection) judgeAddress(req policies.Request, a netip.Addr) policies.Verdict {
	req.Addr = a
	return c.judge(req).v
}

// judgeAlias refuses only what a rule denies: an alias needs no allow rule of its own.
func (c *connection) judgeAlias(req policies.Request, name string) policies.Verdict {
	req.Host, req.Addr = name, netip.Addr{}
	if v := c.judge(req).v; !v.Allowed() && v.Reason != policies.ReasonNoRule {
		return v
	}
	return policies.Verdict{Action: policies.Allow, Reason: policies.ReasonAllowed}
}

// decision writes down a judgement.
func (c *connection) decision(layer, level string, j judgement) *decisions.Decision {
	d := &decisions.Decision{
		Time: j.req.Now.UTC(), Org: c.binding.Org, Sandbox: c.binding.Sandbox, Incarnation: c.binding.Incarnation,
		Flow: c.id, Layer: layer, Level: level, Verdict: j.v.Action.String(), Reason: j.v.Reason.String(),
		Rule: j.v.Rule, RuleLayer: j.v.Layer, Revision: j.revision, Version: j.v.Version,
		Host: j.req.Host, Port: j.req.Port, Protocol: j.req.Protocol.String(), Method: j.req.Method, Path: j.req.Path,
		Fold: j.v.Allowed() && j.v.Log == policies.LogCount && !j.v.Observed,
	}
	if j.req.Addr.IsValid() {
		d.Addr = j.req.Addr.String()
	} else if j.v.Reason == policies.ReasonNoName {
		d.Addr = c.dst.Addr().String()
	}
	if !j.v.Allowed() {
		d.Guidance = j.v.Guidance()
	}
	return d
}

// record writes the decision before anything is done about it. Its context is not the connection's: also the refusal of a
// client that has left is written down.
func (c *connection) record(d *decisions.Decision) error {
	d.ID = decisions.NewID()
	if err := c.p.cfg.Recorder.Record(context.WithoutCancel(c.ctx), d); err != nil {
		c.p.complain.Do(func() { c.p.cfg.Log.Error("recording a decision", "err", err, "sandbox", c.binding.Sandbox) })
		return err
	}
	return nil
}

// complete closes a recorded decision.
func (c *connection) complete(d *decisions.Decision, end Closing) {
	c.p.cfg.Recorder.Close(context.WithoutCancel(c.ctx), d.ID, end)
}
