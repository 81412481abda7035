package policies

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"portreeve.dev/policies/netaddr"
)

var (
	documentKeys = []string{"presets", "rules", "observe_until", "failure_mode", "max_stale", "doh", "tests"}
	ruleKeys     = []string{
		"id", "action", "hosts", "any", "cidrs", "ports", "protocols", "tls", "methods", "paths",
		"foreign_credentials", "dns", "log", "expires_at", "enabled", "message", "shared",
	}
)

// Parse reads a document, JSON or YAML, and returns its normal form. One thing that it does not understand refuses all of it:
// the error is Errors, each with the path of its field. The known form (mode, allowed_domains, ...) is converted to rules.
func Parse(data []byte) (*Document, error) { return ParseAt(data, time.Time{}) }

// ParseAt is Parse with a clock, for the one thing that needs it: "enforcement": "log_only" in the known form without an
// end gets one, 24 hours after now.
func ParseAt(data []byte, now time.Time) (*Document, error) {
	d, _, err := parseAt(data, now)
	return d, err
}

// parseAt also returns the place that each rule comes from; nil in the known form.
func parseAt(data []byte, now time.Time) (*Document, []string, error) {
	tree, err := readTree(data)
	if err != nil {
		if one := (*FieldError)(nil); errors.As(err, &one) {
			return nil, nil, Errors{one}
		}
		return nil, nil, Errors{{Message: err.Error()}}
	}
	r := reader{now: now}
	var d *Document
	if isKnownForm(tree) {
		d = r.knownForm(tree)
	} else {
		d = r.document(tree)
	}
	if err := r.errs.orNil(); err != nil {
		return nil, nil, err
	}
	normal, err := d.normal(r.origins)
	if err != nil {
		return nil, nil, err
	}
	if text, err := normal.MarshalJSON(); err != nil || len(text) > MaxBytes {
		return nil, nil, Errors{{Message: fmt.Sprintf("with all defaults written out, %d bytes are more than %d", len(text), MaxBytes)}}
	}
	return normal, r.origins, nil
}

func (r *reader) document(n *node) *Document {
	d := &Document{}
	fields := r.object(n, "", documentKeys)
	if fields == nil {
		return d
	}
	rules, ok := fields["rules"]
	switch {
	case !ok && fields["presets"] != nil:
	case !ok:
		r.errs.add("rules", "to deny everything, write an empty list", "is missing")
	case rules.kind != kindList:
		r.errs.add("rules", "", "is %s, not a list", rules.kind)
	case len(rules.values) > MaxRules:
		r.errs.add("rules", "", "%d rules are more than %d", len(rules.values), MaxRules)
	default:
		d.Rules = make([]Rule, 0, len(rules.values))
		for i, one := range rules.values {
			r.expand(d, one, at("rules", i))
		}
	}
	if n, ok := fields["presets"]; ok {
		r.presets(d, n)
	}
	if n, ok := fields["tests"]; ok {
		d.Tests = r.tests(n)
	}
	r.failure(fields, d)
	return d
}

// failure reads the fields that both forms have.
func (r *reader) failure(fields map[string]*node, d *Document) {
	if n, ok := fields["observe_until"]; ok {
		d.ObserveUntil = r.time(n, "observe_until")
	}
	if n, ok := fields["failure_mode"]; ok {
		if n.text == "open" {
			r.errs.add("failure_mode", "use closed, or last_known with max_stale", "a policy can't fail open")
		} else {
			d.FailureMode = FailureMode(r.choice(n, "failure_mode", failureNames))
		}
	}
	if n, ok := fields["doh"]; ok {
		d.DoH = DoHMode(r.choice(n, "doh", dohNames[1:]) + 1)
	}
	if n, ok := fields["max_stale"]; ok {
		if d.MaxStale = r.duration(n, "max_stale"); d.MaxStale == 0 {
			r.errs.add("max_stale", "use failure_mode closed instead", "no time at all")
		}
	}
}

// expand appends the rule, or the rules that it stands for, each with the place that it comes from.
func (r *reader) expand(d *Document, n *node, path string) {
	rules := []Rule{}
	if n.kind == kindObject && slices.Contains(n.keys, "git") {
		rules = r.git(n, path)
	} else {
		rules = append(rules, r.rule(n, path))
	}
	r.add(d, path, rules...)
}

// add appends rules that come from one place.
func (r *reader) add(d *Document, path string, rules ...Rule) {
	for _, one := range rules {
		d.Rules = append(d.Rules, one)
		r.origins = append(r.origins, path)
	}
}

func (r *reader) rule(n *node, path string) (rule Rule) {
	fields := r.object(n, path, ruleKeys)
	if fields == nil {
		return rule
	}
	for _, needed := range []string{"id", "action"} {
		if fields[needed] == nil {
			r.errs.add(join(path, needed), "", "is missing")
		}
	}
	for _, key := range n.keys { // in the author's order, so that errors come in it
		if v := fields[key]; v != nil {
			r.field(&rule, key, v, join(path, key))
		}
	}
	return rule
}

func (r *reader) field(rule *Rule, key string, n *node, path string) {
	switch key {
	case "id":
		rule.ID = r.string(n, path)
	case "action":
		rule.Action = Action(r.choice(n, path, actionNames))
	case "hosts":
		rule.Hosts = r.strings(n, path, MaxTargets)
	case "any":
		if rule.Any = r.bool(n, path); !rule.Any && n.kind == kindBool {
			r.errs.add(path, "leave it out", "false says nothing")
		}
	case "cidrs":
		for i, s := range r.strings(n, path, MaxTargets) {
			p, err := netaddr.ParsePrefix(s)
			if err != nil {
				r.errs.add(at(path, i), "", "%v", err)
			}
			rule.CIDRs = append(rule.CIDRs, p)
		}
	case "ports":
		rule.Ports = r.ports(n, path, MaxPorts)
	case "protocols":
		for i, v := range r.list(n, path, len(protocolNames)) {
			rule.Protocols |= 1 << r.choice(v, at(path, i), protocolNames)
		}
	case "tls":
		rule.TLS = TLSMode(r.choice(n, path, tlsNames))
	case "methods":
		rule.Methods = r.strings(n, path, MaxMethods)
	case "paths":
		rule.Paths = r.strings(n, path, MaxPaths)
	case "foreign_credentials":
		v := ForeignCredentials(r.choice(n, path, foreignNames))
		rule.ForeignCredentials = &v
	case "dns":
		v := DNSMode(r.choice(n, path, dnsNames))
		rule.DNS = &v
	case "log":
		v := LogMode(r.choice(n, path, logNames))
		rule.Log = &v
	case "expires_at":
		rule.ExpiresAt = r.time(n, path)
	case "enabled":
		rule.Disabled = !r.bool(n, path)
	case "message":
		rule.Message = r.string(n, path)
	case "shared":
		rule.Shared = r.bool(n, path)
	}
}

// isKnownForm reports whether the object is one of the known form, or is meant to be.
func isKnownForm(n *node) bool {
	if n.kind != kindObject || slices.Contains(n.keys, "rules") {
		return false
	}
	return slices.ContainsFunc(n.keys, func(key string) bool {
		return slices.Contains(knownKeys, key) && !slices.Contains(documentKeys, key)
	})
}
