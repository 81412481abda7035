package policies

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"portreeve.dev/policies/netaddr"
)

// maxExplained is how many rules of a layer are listed.
const maxExplained = 50

// An Explanation is a verdict with everything that led to it.
type Explanation struct {
	Verdict  Verdict            `json:"verdict"`
	Guidance string             `json:"guidance"`
	Request  ExplainedRequest   `json:"request"`
	Layers   []LayerExplanation `json:"layers"`
}

// An ExplainedRequest is what was asked.
type ExplainedRequest struct {
	Stage    Stage      `json:"stage"`
	Host     string     `json:"host,omitempty"`
	Address  string     `json:"address,omitempty"`
	Port     uint16     `json:"port,omitempty"`
	Protocol string     `json:"protocol,omitempty"`
	Method   string     `json:"method,omitempty"`
	Path     string     `json:"path,omitempty"`
	Time     *time.Time `json:"time,omitempty"`
}

// A LayerExplanation is what one document, or the floor, says by itself.
type LayerExplanation struct {
	Name     string            `json:"name"`
	Version  int64             `json:"version"`
	Action   Action            `json:"action"`
	Reason   Reason            `json:"reason"`
	Rule     string            `json:"rule,omitempty"`
	Watching bool              `json:"watching"`         // observe_until: the layer would decide so, but does not yet
	Detail   string            `json:"detail,omitempty"` // of the floor: a sentence
	Rules    []RuleExplanation `json:"rules"`            // those for this destination or close to it, matching ones first
	Omitted  int               `json:"omitted"`          // how many more there are
}

// A RuleExplanation is one rule that matched, or the first thing that kept it from matching.
type RuleExplanation struct {
	ID      string `json:"id"`
	Action  Action `json:"action"`
	Matched bool   `json:"matched"`
	Why     Why    `json:"why"`
	Detail  string `json:"detail"`
}

// Explain says what Evaluate does, and why: the floor is the first layer, as it is asked first. It is slow and meant for people.
func (f *Floor) Explain(org string, s *Snapshot, r *Request) Explanation {
	x := s.Explain(r)
	x.Verdict = f.Evaluate(org, s, r)
	x.Guidance = x.Verdict.Reason.Guidance()
	x.Layers = slices.Insert(x.Layers, 0, f.explain(org, r, x.Verdict))
	return x
}

// explain is what the floor says by itself of a question to which the answer was v. What an exemption opens is closed to a policy that allows
// it without naming it.
func (f *Floor) explain(org string, r *Request, v Verdict) LayerExplanation {
	x := LayerExplanation{Name: FloorLayer, Reason: ReasonFloorHard, Rules: []RuleExplanation{}, Detail: "closed, whatever the rules say"}
	if f == nil {
		return x
	}
	if reason := malformed(r); reason != "" {
		x.Reason, x.Detail = reason, ""
		return x
	}
	under := f.destination(org, r.Host, r.Addr, r.Port)
	x.Action, x.Reason = under.Action, under.Reason
	switch {
	case !under.Allowed():
	case v.Layer == FloorLayer:
		x.Action, x.Reason, x.Detail = v.Action, v.Reason, "an exemption opens it, but only to rules that name the address"
	case under.Named:
		x.Detail = "an exemption opens it, to rules that name the address"
	case r.Host != "":
		x.Detail = "the name is open; what it leads to is judged when it is dialled"
	default:
		x.Detail = "the address is open"
	}
	return x
}

// Explain says what Evaluate does, and why. It is slow and meant for people.
func (s *Snapshot) Explain(r *Request) Explanation {
	x := Explanation{Verdict: s.Evaluate(r)}
	x.Guidance = x.Verdict.Reason.Guidance()
	if r == nil || s == nil {
		return x
	}
	x.Request = explained(r)
	e := evaluation{s: s, r: r}
	unreadable := e.run()
	for i := range s.layers {
		x.Layers = append(x.Layers, e.explainLayer(i, unreadable))
	}
	return x
}

func explained(r *Request) ExplainedRequest {
	x := ExplainedRequest{Stage: r.Stage, Host: r.Host, Port: r.Port, Protocol: r.Protocol.String(), Method: r.Method, Path: r.Path}
	if r.Addr.IsValid() {
		x.Address = netaddr.Canonical(r.Addr).String()
	}
	if !r.Now.IsZero() {
		now := r.Now.UTC()
		x.Time = &now
	}
	return x
}

func (e *evaluation) explainLayer(i int, unreadable Reason) LayerExplanation {
	s, r := e.s, e.r
	l := &s.layers[i]
	x := LayerExplanation{Name: l.Name, Version: l.Version, Rules: []RuleExplanation{}, Watching: l.observeUntil > clockOf(r).allow}
	if l.Document == nil {
		x.Reason = ReasonNoPolicy
		return x
	}
	if unreadable != "" {
		x.Reason = unreadable
		return x
	}
	x.Action, x.Reason, x.Rule = e.alone(i)
	for at := range s.rules {
		if c := &s.rules[at]; int(c.layer) == i {
			if one, ok := c.explain(r); ok {
				x.Rules = append(x.Rules, one)
			}
		}
	}
	slices.SortStableFunc(x.Rules, func(a, b RuleExplanation) int { return cmp.Compare(order(a), order(b)) })
	if more := len(x.Rules) - maxExplained; more > 0 {
		x.Rules, x.Omitted = x.Rules[:maxExplained], more
	}
	return x
}

// alone is what layer i says when all others are left out.
func (e *evaluation) alone(i int) (Action, Reason, string) {
	o := e.join(^layerSet(1 << i))
	if o.protocols == 0 {
		v := e.denial(o)
		return Deny, v.Reason, v.Rule
	}
	return Allow, ReasonAllowed, e.s.rules[e.states[i].best-1].id
}

// order puts what matched first and what is only close last.
func order(x RuleExplanation) int {
	switch {
	case x.Matched:
		return 0
	case x.Why == WhyHost:
		return 2
	}
	return 1
}

// explain is false for a rule that has nothing to do with the destination.
func (c *rule) explain(r *Request) (RuleExplanation, bool) {
	x := RuleExplanation{ID: c.id, Action: c.action}
	target, near := c.target(r)
	switch {
	case target == "" && near == "":
		return x, false
	case target == "":
		x.Why, x.Detail = WhyHost, near
	case c.source.Disabled:
		x.Why, x.Detail = WhyDisabled, "the rule is not enabled"
	default:
		x.Why = c.why(r, clockOf(r))
		x.Matched = x.Why == WhyMatched
		x.Detail = c.detail(x.Why, target, r)
	}
	return x, true
}

func (c *rule) detail(why Why, target string, r *Request) string {
	source := c.source
	switch why {
	case WhyExpired:
		return fmt.Sprintf("the rule ended at %s", source.ExpiresAt.Format(time.RFC3339))
	case WhyPort:
		return fmt.Sprintf("the rule is for port %v, not %d", source.Ports, r.Port)
	case WhyProtocol:
		return fmt.Sprintf("the rule is for %v, not %v", source.Protocols, r.Protocol)
	case WhyMethod:
		return fmt.Sprintf("the rule is for %s, not %s", strings.Join(source.Methods, ", "), r.Method)
	case WhyPath:
		return fmt.Sprintf("none of the rule's paths (%s) matches %s", strings.Join(source.Paths, ", "), r.Path)
	case WhyStage:
		return "the rule denies a part only, and is asked again once the port or the request is known"
	}
	return target + " matches"
}

// target returns what of the rule names the destination, or else what comes close to it, as a sentence.
func (c *rule) target(r *Request) (target, near string) {
	if r.Host != "" {
		if c.source.Any {
			return "any: true", ""
		}
		for _, host := range c.source.Hosts {
			base, wildcard := strings.CutPrefix(host, "*.")
			below := strings.HasSuffix(r.Host, "."+base)
			switch {
			case wildcard && below, !wildcard && host == r.Host:
				return host, ""
			case wildcard && base == r.Host:
				near = fmt.Sprintf("%s is every name below %s, not %s itself", host, base, base)
			case below:
				near = fmt.Sprintf("%s is that host only, and no name below it", host)
			}
		}
	}
	if r.Addr.IsValid() && (r.Host == "" || c.action == Deny) {
		if p, ok := c.prefix(netaddr.Canonical(r.Addr)); ok {
			return p.String(), ""
		}
	}
	return "", near
}

func (c *rule) prefix(addr netip.Addr) (netip.Prefix, bool) {
	embedded := netaddr.Embed(addr)
	for _, p := range c.source.CIDRs {
		if p.Contains(addr) || c.action == Deny && slices.ContainsFunc(embedded.All(), p.Contains) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}
