package policies

import (
	"encoding/json"
	"strings"
	"time"
)

// How a document and a rule are written: the order of the fields, for JSON and YAML alike. A field is left out where
// leaving it out says the same; what has a default is written.
type wireDocument struct {
	Rules        []Rule     `json:"rules" yaml:"rules"`
	ObserveUntil string     `json:"observe_until,omitempty" yaml:"observe_until,omitempty"`
	FailureMode  string     `json:"failure_mode" yaml:"failure_mode"`
	MaxStale     string     `json:"max_stale,omitempty" yaml:"max_stale,omitempty"`
	DoH          string     `json:"doh,omitempty" yaml:"doh,omitempty"`
	Tests        []wireTest `json:"tests,omitempty" yaml:"tests,omitempty"`
}

type wireRule struct {
	ID                 string   `json:"id" yaml:"id"`
	Action             string   `json:"action" yaml:"action"`
	Hosts              []string `json:"hosts,omitempty" yaml:"hosts,omitempty"`
	Any                bool     `json:"any,omitempty" yaml:"any,omitempty"`
	CIDRs              []string `json:"cidrs,omitempty" yaml:"cidrs,omitempty"`
	Ports              []any    `json:"ports,omitempty" yaml:"ports,omitempty,flow"`
	Protocols          []string `json:"protocols,omitempty" yaml:"protocols,omitempty,flow"`
	TLS                string   `json:"tls" yaml:"tls"`
	Methods            []string `json:"methods,omitempty" yaml:"methods,omitempty,flow"`
	Paths              []string `json:"paths,omitempty" yaml:"paths,omitempty"`
	ForeignCredentials string   `json:"foreign_credentials,omitempty" yaml:"foreign_credentials,omitempty"`
	DNS                string   `json:"dns,omitempty" yaml:"dns,omitempty"`
	Log                string   `json:"log,omitempty" yaml:"log,omitempty"`
	ExpiresAt          string   `json:"expires_at,omitempty" yaml:"expires_at,omitempty"`
	Enabled            bool     `json:"enabled" yaml:"enabled"`
	Message            string   `json:"message,omitempty" yaml:"message,omitempty"`
	Shared             bool     `json:"shared,omitempty" yaml:"shared,omitempty"`
}

func (d Document) wire() wireDocument {
	w := wireDocument{Rules: d.Rules, ObserveUntil: wireTime(d.ObserveUntil), FailureMode: d.FailureMode.String(), MaxStale: wireDuration(d.MaxStale), DoH: d.DoH.String(), Tests: wireTests(d.Tests)}
	if w.Rules == nil {
		w.Rules = []Rule{}
	}
	return w
}

func (r Rule) wire() wireRule {
	w := wireRule{
		ID: r.ID, Action: r.Action.String(), Hosts: r.Hosts, Any: r.Any, Protocols: r.Protocols.Names(), TLS: r.TLS.String(),
		Methods: r.Methods, Paths: r.Paths, ExpiresAt: wireTime(r.ExpiresAt), Enabled: !r.Disabled, Message: r.Message, Shared: r.Shared,
	}
	for _, p := range r.CIDRs {
		w.CIDRs = append(w.CIDRs, p.String())
	}
	for _, p := range r.Ports {
		if p.First == p.Last {
			w.Ports = append(w.Ports, p.First)
		} else {
			w.Ports = append(w.Ports, p.String())
		}
	}
	if r.ForeignCredentials != nil {
		w.ForeignCredentials = r.ForeignCredentials.String()
	}
	if r.DNS != nil {
		w.DNS = r.DNS.String()
	}
	if r.Log != nil {
		w.Log = r.Log.String()
	}
	return w
}

func wireTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// wireDuration is Go's form without the zero units at its end.
func wireDuration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	return s
}

// MarshalJSON writes the document as it stands; of what Parse or Normal returned, that is the normal form.
func (d Document) MarshalJSON() ([]byte, error) { return json.Marshal(d.wire()) }

// MarshalYAML writes the same for YAML.
func (d Document) MarshalYAML() (any, error) { return d.wire(), nil }

// UnmarshalJSON is Parse, and as strict.
func (d *Document) UnmarshalJSON(data []byte) error {
	parsed, err := Parse(data)
	if err != nil {
		return err
	}
	*d = *parsed
	return nil
}

// MarshalJSON writes the rule as it stands in its document.
func (r Rule) MarshalJSON() ([]byte, error) { return json.Marshal(r.wire()) }

// MarshalYAML writes the same for YAML.
func (r Rule) MarshalYAML() (any, error) { return r.wire(), nil }

// UnmarshalJSON reads one rule as Parse would in a document, and returns it in normal form.
func (r *Rule) UnmarshalJSON(data []byte) error {
	tree, err := readTree(data)
	if err != nil {
		return err
	}
	var read reader
	rule := read.rule(tree, "")
	if read.errs == nil {
		normalRule(&rule, func(field string) string { return strings.TrimPrefix(field, ".") }, &read.errs)
	}
	if err := read.errs.orNil(); err != nil {
		return err
	}
	*r = rule
	return nil
}
