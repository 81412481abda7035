package policies

import (
	"slices"
	"time"
)

// Kinds of change of a rule.
const (
	RuleAdded   = "added"
	RuleRemoved = "removed"
	RuleChanged = "changed"
)

// A DocumentChange is what two documents differ in, by what they mean: neither the order of rules nor of what a rule
// lists counts. Its zero value is no difference.
type DocumentChange struct {
	Rules  []RuleChange `json:"rules"`
	Fields []string     `json:"fields"` // fields of the document itself, as they are written: observe_until, tests, ...
}

// A RuleChange is a rule, by its id, that was added, removed or changed.
type RuleChange struct {
	ID     string   `json:"id"`
	Kind   string   `json:"kind"`
	Fields []string `json:"fields,omitempty"` // of a changed rule, as they are written
	Before *Rule    `json:"before,omitempty"`
	After  *Rule    `json:"after,omitempty"`
}

// Empty reports whether there is no difference.
func (c DocumentChange) Empty() bool { return len(c.Rules) == 0 && len(c.Fields) == 0 }

// Diff compares two documents in normal form. Nil is a document without rules. What was removed or changed comes in the order of from,
// what was added after it in the order of to.
func Diff(from, to *Document) DocumentChange {
	if from == nil {
		from = &Document{}
	}
	if to == nil {
		to = &Document{}
	}
	c := DocumentChange{Rules: []RuleChange{}, Fields: documentFields(from, to)}
	after := make(map[string]*Rule, len(to.Rules))
	for i := range to.Rules {
		after[to.Rules[i].ID] = &to.Rules[i]
	}
	known := make(map[string]bool, len(from.Rules))
	for i := range from.Rules {
		before := &from.Rules[i]
		known[before.ID] = true
		now, ok := after[before.ID]
		if !ok {
			c.Rules = append(c.Rules, RuleChange{ID: before.ID, Kind: RuleRemoved, Before: before})
		} else if fields := ruleFields(before, now); len(fields) > 0 {
			c.Rules = append(c.Rules, RuleChange{ID: before.ID, Kind: RuleChanged, Fields: fields, Before: before, After: now})
		}
	}
	for i := range to.Rules {
		if now := &to.Rules[i]; !known[now.ID] {
			c.Rules = append(c.Rules, RuleChange{ID: now.ID, Kind: RuleAdded, After: now})
		}
	}
	return c
}

func documentFields(a, b *Document) []string {
	fields := []string{}
	add := func(name string, same bool) {
		if !same {
			fields = append(fields, name)
		}
	}
	add("observe_until", a.ObserveUntil.Equal(b.ObserveUntil))
	add("failure_mode", a.FailureMode == b.FailureMode)
	add("doh", a.DoH == b.DoH)
	add("max_stale", a.MaxStale == b.MaxStale)
	add("tests", sameSet(a.Tests, b.Tests))
	return fields
}

// ruleFields names the fields in which two rules of the same id differ, in the order in which they are written.
func ruleFields(a, b *Rule) []string {
	var fields []string
	add := func(name string, same bool) {
		if !same {
			fields = append(fields, name)
		}
	}
	add("action", a.Action == b.Action)
	add("hosts", sameSet(a.Hosts, b.Hosts))
	add("any", a.Any == b.Any)
	add("cidrs", sameSet(a.CIDRs, b.CIDRs))
	add("ports", slices.Equal(a.Ports, b.Ports))
	add("protocols", a.Protocols == b.Protocols)
	add("tls", a.TLS == b.TLS)
	add("methods", sameSet(a.Methods, b.Methods))
	add("paths", sameSet(a.Paths, b.Paths))
	add("foreign_credentials", sameOpinion(a.ForeignCredentials, b.ForeignCredentials))
	add("dns", sameOpinion(a.DNS, b.DNS))
	add("log", sameOpinion(a.Log, b.Log))
	add("expires_at", sameTime(a.ExpiresAt, b.ExpiresAt))
	add("enabled", a.Disabled == b.Disabled)
	add("message", a.Message == b.Message)
	add("shared", a.Shared == b.Shared)
	return fields
}

func sameTime(a, b time.Time) bool { return a.Equal(b) }

func sameOpinion[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// sameSet compares lists that have nothing twice, as those of a normal form.
func sameSet[T comparable](a, b []T) bool {
	if slices.Equal(a, b) {
		return true
	}
	if len(a) != len(b) {
		return false
	}
	in := make(map[T]bool, len(a))
	for _, v := range a {
		in[v] = true
	}
	return !slices.ContainsFunc(b, func(v T) bool { return !in[v] })
}
