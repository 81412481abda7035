package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies"
	"portreeve.dev/sso"
)

// TestsIn says what a failing test does.
type TestsIn struct {
	Tests string `query:"tests" enum:"report" doc:"report: failing tests of the document are told, and don't refuse the change."`
}

// A failedTest is one of a document that does not hold.
type failedTest struct {
	Policy  string `json:"policy,omitempty" doc:"The named policy whose test it is, if it is another document's."`
	Name    string `json:"name"`
	Message string `json:"message"`

	Layer    string `json:"layer,omitempty" doc:"Which layer decided otherwise: ceiling, policy:NAME, own or floor."`
	ToldOnly bool   `json:"told_only,omitempty" doc:"It refuses no change: only the floor is at fault, and it fails in the document in force too."`
}

type testIn struct {
	Body struct {
		Document json.RawMessage `json:"document" doc:"An object, or a string of JSON or YAML."`
		Policy   string          `json:"policy,omitempty" maxLength:"63" doc:"The policy that it would become: judged under the ceiling. Without: it would become the ceiling."`
	}
}

type testOut struct {
	Body struct {
		Passed  int                `json:"passed"`
		Failed  int                `json:"failed"`
		Refuses bool               `json:"refuses" doc:"A change to the document would be refused for its tests."`
		Results []testResult       `json:"results" nullable:"false" doc:"In the order of the document."`
		Others  []failedTest       `json:"other_policies" nullable:"false" doc:"Tests of named policies that hold now and would not under this ceiling."`
		Lint    []policies.Finding `json:"warnings" nullable:"false"`
	}
}

type testResult struct {
	Name    string `json:"name"`
	Passed  bool   `json:"passed"`
	Message string `json:"message,omitempty" doc:"What was expected, and what came."`
	Verdict string `json:"verdict" enum:"allow,deny"`
	Reason  string `json:"reason"`
	Rule    string `json:"rule,omitempty"`
	Layer   string `json:"layer,omitempty"`

	ToldOnly bool `json:"told_only,omitempty" doc:"It fails and refuses no change: only the floor is at fault, and it fails in the document in force too."`
}

func (s *Server) testRoutes() {
	route(s, sso.ScopeRead, huma.Operation{OperationID: "test-policy", Method: http.MethodPost, Path: "/policies/test", Summary: "Run the tests of a document",
		Description: "Nothing is stored. Judged as it would be: a named policy under the org's ceiling, and all under the floor with the org's exemptions.", Tags: []string{"policies"}}, s.testDocument)
}

func (s *Server) testDocument(ctx context.Context, c *caller, in *testIn) (*testOut, error) {
	d, err := s.readInside("document", in.Body.Document)
	if err != nil {
		return nil, err
	}
	name, err := draftName(in.Body.Policy)
	if err != nil {
		return nil, err
	}
	floor, err := s.FloorNow(ctx)
	if err != nil {
		return nil, err
	}
	results, err := s.runTests(ctx, s.Store, floor, c.org(), name, d)
	if err != nil {
		return nil, err
	}
	out := &testOut{}
	out.Body.Results = []testResult{}
	for _, r := range results {
		if r.Passed {
			out.Body.Passed++
		} else {
			out.Body.Failed++
			out.Body.Refuses = out.Body.Refuses || !r.toldOnly
		}
		out.Body.Results = append(out.Body.Results, testResult{r.Name, r.Passed, r.Message, r.Got.Action.String(), string(r.Got.Reason), r.Got.Rule, r.Got.Layer, r.toldOnly})
	}
	if out.Body.Others, err = s.othersBroken(ctx, floor, c.org(), name, d); err != nil {
		return nil, err
	}
	out.Body.Lint, err = s.lint(ctx, c.org(), name, d.document)
	return out, err
}

// draftName is the name of the document that a draft would become.
func draftName(policy string) (string, error) {
	if policy == "" || policy == "ceiling" {
		return store.Ceiling, nil
	}
	if !policyName.MatchString(policy) || slices.Contains(reservedNames, policy) {
		return "", invalid("body.policy", "is not a policy name")
	}
	return policy, nil
}

// documents is what tests are run among: the store, or a change under way.
type documents interface {
	Policy(ctx context.Context, org, name string) (store.Policy, error)
}

// runTests asks a document its own questions, judged as it will be: a named policy under the ceiling, and both under the floor as it is for the org.
func (s *Server) runTests(ctx context.Context, in documents, floor *policies.Floor, org, name string, d draftDocument) ([]tried, error) {
	if len(d.document.Tests) == 0 {
		return nil, nil
	}
	var above []store.Policy
	if name != store.Ceiling {
		ceiling, err := in.Policy(ctx, org, store.Ceiling)
		if err != nil {
			return nil, err
		}
		above = append(above, ceiling)
	}
	before, err := in.Policy(ctx, org, name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	return trial{floor, org, above, name, before.Document, s.Now()}.of(d)
}

// holdTests refuses a document whose tests fail, each of them named; with report it returns them instead.
func (s *Server) holdTests(ctx context.Context, in documents, floor *policies.Floor, org, name string, d draftDocument, report bool) ([]failedTest, error) {
	results, err := s.runTests(ctx, in, floor, org, name, d)
	if err != nil {
		return nil, err
	}
	return failedOf(results, report)
}

func failedOf(results []tried, report bool) ([]failedTest, error) {
	failed := []failedTest{}
	p := problem(http.StatusUnprocessableEntity, "tests_failed", "tests of the document fail: mend the rules or the tests, or send ?tests=report")
	for i, r := range results {
		if r.Passed {
			continue
		}
		failed = append(failed, failedTest{Name: r.Name, Message: r.Message, Layer: r.Got.Layer, ToldOnly: r.toldOnly})
		if !r.toldOnly {
			p.Errors = append(p.Errors, FieldError{fmt.Sprintf("body.tests[%d]", i), fmt.Sprintf("%q fails: %s", r.Name, r.Message)})
		}
	}
	if len(p.Errors) > 0 && !report {
		return nil, p
	}
	return failed, nil
}

// othersBroken returns the tests of named policies that hold under the ceiling as it is and not under the draft of it. It looks
// at so many policies as can be compiled in a moment.
func (s *Server) othersBroken(ctx context.Context, floor *policies.Floor, org, name string, d draftDocument) ([]failedTest, error) {
	broken := []failedTest{}
	if name != store.Ceiling {
		return broken, nil
	}
	now, err := s.Store.Policy(ctx, org, store.Ceiling)
	if err != nil {
		return nil, err
	}
	named, err := s.Store.Policies(ctx, org)
	if err != nil {
		return nil, err
	}
	at := s.Now()
	left := compiledMost
	for _, p := range named {
		document, err := policies.Parse(p.Document)
		if err != nil {
			return nil, fmt.Errorf("reading policy %q: %w", p.Name, err)
		}
		if len(document.Tests) == 0 {
			continue
		}
		if left -= 2 * (len(d.document.Rules) + len(document.Rules)); left < 0 {
			break
		}
		before, err := testsUnder(floor, org, now, p, document, at)
		if err != nil {
			return nil, err
		}
		after, err := testsUnder(floor, org, store.Policy{Document: d.normal}, p, document, at)
		if err != nil {
			return nil, err
		}
		for i, r := range after {
			if before[i].Passed && !r.Passed {
				broken = append(broken, failedTest{Policy: p.Name, Name: r.Name, Message: r.Message, Layer: r.Got.Layer})
			}
		}
	}
	return broken, nil
}

func testsUnder(floor *policies.Floor, org string, ceiling, p store.Policy, document *policies.Document, at time.Time) ([]policies.TestResult, error) {
	snapshot, err := compileAll([]store.Policy{ceiling, p})
	if err != nil {
		return nil, err
	}
	return floor.RunTests(org, snapshot, document.Tests, at), nil
}
