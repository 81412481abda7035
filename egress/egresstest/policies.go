package egresstest

import (
	"sync"
	"testing"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
)

// Compile makes a snapshot of a document alone, as version 3 of a layer "ceiling".
func Compile(t testing.TB, document string) *policies.Snapshot {
	t.Helper()
	d, err := policies.Parse([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	s, err := policies.Compile(policies.Layer{Name: "ceiling", Version: 3, Document: d})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Policies give one snapshot to all. Safe for concurrent use.
type Policies struct {
	mu       sync.Mutex
	snapshot *policies.Snapshot
	revision uint64
	err      error
}

// NewPolicies begins with rules in JSON, without their brackets, at revision 8.
func NewPolicies(t testing.TB, rules string) *Policies {
	t.Helper()
	p := &Policies{revision: 7}
	p.Set(t, rules)
	return p
}

// Snapshot returns what is in force.
func (p *Policies) Snapshot(egress.Binding) (*policies.Snapshot, uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.snapshot, p.revision, p.err
}

// Set puts other rules in force, as the next revision.
func (p *Policies) Set(t testing.TB, rules string) {
	t.Helper()
	p.SetDocument(t, `{"rules": [`+rules+`]}`)
}

// SetDocument puts a whole document in force, as the next revision.
func (p *Policies) SetDocument(t testing.TB, document string) {
	t.Helper()
	s := Compile(t, document)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.snapshot = s
	p.revision++
}

// Forget leaves nothing to judge by.
func (p *Policies) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.snapshot = nil
}

// Fail has each call fail with err; nil ends that.
func (p *Policies) Fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}
