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

func newProfiles(o Org) (*profiles, error) {
	p := &profiles{named: make(map[string]policies.Layer, len(o.Policies)), ready: make(map[string]*policies.Snapshot)}
	var err error
	if p.ceiling, err = layer("ceiling", o.Ceiling.Version, o.Ceiling.Document); err != nil {
		return nil, err
	}
	for _, named := range o.Policies {
		if p.named[named.Name], err = layer("policy:"+named.Name, named.Version, named.Document); err != nil {
			return nil, err
		}
	}
	p.injector, err = newInjector(o.Secrets)
	return p, err
}

// newInjector takes the values out of a state. An error names the secret and never holds its value.
func newInjector(list []Secret) (*secrets.Injector, error) {
	var all []secrets.Secret
	for _, s := range list {
		value, err := secrets.NewValue(s.Value)
		if err != nil {
			return nil, fmt.Errorf("secret %q: %w", s.ID, err)
		}
		all = append(all, secrets.Secret{ID: s.ID, Version: s.Version, Value: value, Grants: s.Grants})
	}
	return secrets.NewInjector(all)
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
		own, err := layer("own", 0, box.Own)
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
