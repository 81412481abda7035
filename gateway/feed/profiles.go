package feed

import (
	"encoding/json"
	"fmt"

	"portreeve.dev/policies"
	"portreeve.dev/secrets"
)

// profiles compiles the policies of one org, each at most once: sandboxes under the same policy share a snapshot.
type profiles struct {
	ceiling policies.Layer
	named   map[string]policies.Layer
	ready   map[string]*policies.Snapshot // by policy name, for sandboxes without a list of their own

	injector *secrets.Injector
}

// nothing is the policy of whatever has none that can be used: it denies everything.
var nothing = deny()

func deny() *policies.Snapshot {
	s, err := policies.Compile(policies.Layer{Name: "ceiling"})
	if err != nil {
		panic("compiling no rule at all: " + err.Error())
	}
	return s
}

// newProfiles reads the documents of an org. One that can't be read closes those that stand under it: a named policy the
// sandboxes that have it, the ceiling every one.
func newProfiles(o Org) (*profiles, []Closed) {
	p := &profiles{named: make(map[string]policies.Layer, len(o.Policies)), ready: make(map[string]*policies.Snapshot)}
	var closed []Closed
	read := func(name string, of Policy) policies.Layer {
		l, err := layer(name, of.Version, of.Document)
		if err != nil {
			closed = append(closed, Closed{Org: o.ID, Reason: err.Error()})
			l.Document = nil // which denies
		}
		return l
	}
	p.ceiling = read("ceiling", o.Ceiling)
	for _, named := range o.Policies {
		p.named[named.Name] = read("policy:"+named.Name, named)
	}
	injector, faults := newInjector(o.ID, o.Secrets)
	p.injector = injector
	return p, append(closed, faults...)
}

func layer(name string, version int64, document json.RawMessage) (policies.Layer, error) {
	l := policies.Layer{Name: name, Version: version}
	if len(document) == 0 || string(document) == "null" {
		l.Document = &policies.Document{} // no rule: denies all
		return l, nil
	}
	var err error
	if l.Document, err = policies.Parse(document); err != nil {
		return l, fmt.Errorf("%s: %w", name, err)
	}
	return l, nil
}

func (p *profiles) snapshot(box Sandbox) (*policies.Snapshot, error) {
	if s, ok := p.ready[box.Policy]; ok && len(box.Own) == 0 {
		return s, nil
	}
	layers := []policies.Layer{p.ceiling}
	if box.Policy != "" {
		named, ok := p.named[box.Policy]
		if !ok {
			return nil, fmt.Errorf("policy %q is not in the state", box.Policy)
		}
		layers = append(layers, named)
	}
	if len(box.Own) > 0 {
		own, err := layer("own", box.OwnVersion, box.Own)
		if err != nil {
			return nil, err
		}
		layers = append(layers, own)
	}
	s, err := policies.Compile(layers...)
	if err == nil && len(box.Own) == 0 {
		p.ready[box.Policy] = s
	}
	return s, err
}
