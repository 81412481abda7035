package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies"
)

// A trial is what a document's tests are run under.
type trial struct {
	floor  *policies.Floor
	org    string
	above  []store.Policy
	name   string
	before json.RawMessage // the document in force that it would replace; empty: none
	at     time.Time
}

// tried is how one test went.
type tried struct {
	policies.TestResult
	toldOnly bool // it fails, and refuses no change
}

// of runs the tests of a draft. What the platform opens and closes must not stand in the way of a change that has nothing to do with it: so a test
// that fails is only told if the rules alone would let it hold, and the document in force has it and fails it, too. One that the draft makes fail, or
// brings along, refuses it like any other.
func (t trial) of(d draftDocument) ([]tried, error) {
	snapshot, err := t.compile(d.normal)
	if err != nil {
		return nil, err
	}
	all := make([]tried, len(d.document.Tests))
	var doubtful []policies.Test
	alone := snapshot.RunTests(d.document.Tests, t.at)
	for i, r := range t.floor.RunTests(t.org, snapshot, d.document.Tests, t.at) {
		all[i].TestResult = r
		if !r.Passed && alone[i].Passed {
			doubtful = append(doubtful, d.document.Tests[i])
		}
	}
	failing, err := t.failingNow(doubtful)
	for i := range all {
		all[i].toldOnly = slices.Contains(failing, d.document.Tests[i])
	}
	return all, err
}

// failingNow returns those of the tests that the document in force has, and fails now.
func (t trial) failingNow(tests []policies.Test) (failing []policies.Test, err error) {
	if len(tests) == 0 || len(t.before) == 0 {
		return nil, nil
	}
	document, err := policies.Parse(t.before)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", layerName(t.name), err)
	}
	snapshot, err := t.compile(t.before)
	if err != nil {
		return nil, err
	}
	for i, r := range t.floor.RunTests(t.org, snapshot, tests, t.at) {
		if !r.Passed && slices.Contains(document.Tests, tests[i]) {
			failing = append(failing, tests[i])
		}
	}
	return failing, nil
}

func (t trial) compile(document json.RawMessage) (*policies.Snapshot, error) {
	return compileAll(slices.Concat(t.above, []store.Policy{{Name: t.name, Document: document}}))
}
