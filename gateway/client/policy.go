package client

import (
	"encoding/json"
	"fmt"
	"time"

	"portreeve.dev/policies"
)

// What the commands read of policies. --output json prints the API's own answers.

// A Finding is something in a document that is probably not meant.
type Finding struct {
	Path    string `json:"path"`
	Rule    string `json:"rule"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

// A FailedTest is a test that does not hold; of another policy if that is named.
type FailedTest struct {
	Policy   string `json:"policy"`
	Name     string `json:"name"`
	Message  string `json:"message"`
	Layer    string `json:"layer"` // that decided otherwise
	ToldOnly bool   `json:"told_only"`
}

// A TestResult is what became of one test of a document.
type TestResult struct {
	Name     string `json:"name"`
	Passed   bool   `json:"passed"`
	Message  string `json:"message"`
	ToldOnly bool   `json:"told_only,omitempty"` // it fails, and refuses no change: the platform's floor is at fault, and the document in force fails it too
}

// Refuses reports whether a change would be refused for the test.
func (r TestResult) Refuses() bool { return !r.Passed && !r.ToldOnly }

// Tested is how a document's tests went under the server's ceiling.
type Tested struct {
	Passed   int          `json:"passed"`
	Failed   int          `json:"failed"`
	Results  []TestResult `json:"results"`
	Others   []FailedTest `json:"other_policies"`
	Warnings []Finding    `json:"warnings"`
}

// A Changed document: its version, and what else was said of it.
type Changed struct {
	Version  int64        `json:"version"`
	Warnings []Finding    `json:"warnings"`
	Failed   []FailedTest `json:"failed_tests"`
}

// A Difference is what two versions, or a version and a draft, differ in.
type Difference struct {
	From    int64 `json:"from"`
	To      int64 `json:"to"`
	Same    bool  `json:"same"`
	Changes struct {
		Rules  []RuleChange `json:"rules"`
		Fields []string     `json:"fields"`
	} `json:"changes"`
}

// A RuleChange is a rule that was added, removed or changed.
type RuleChange struct {
	ID     string                     `json:"id"`
	Kind   string                     `json:"kind"`
	Fields []string                   `json:"fields"`
	Before map[string]json.RawMessage `json:"before"`
	After  map[string]json.RawMessage `json:"after"`
}

// A Replayed draft: what it would have decided otherwise.
type Replayed struct {
	Looked       int         `json:"looked_at"`
	More         bool        `json:"more"`
	Since        time.Time   `json:"since"`
	NewlyDenied  []ReplayRow `json:"newly_denied"`
	NewlyAllowed []ReplayRow `json:"newly_allowed"`
	InVain       []ReplayRow `json:"closed_by_floor"`
	Denied       int         `json:"newly_denied_count"`
	Allowed      int         `json:"newly_allowed_count"`
	Closed       int         `json:"closed_by_floor_count"`
	Unjudged     int         `json:"unjudged"`
	Elsewhere    int         `json:"elsewhere"`
	Omitted      int         `json:"omitted"`
	OnAll        bool        `json:"tried_on_all"`
}

// A ReplayRow is what several decisions about the same have in common.
type ReplayRow struct {
	Stage     string `json:"stage"`
	Host      string `json:"host"`
	Address   string `json:"address"`
	Port      uint16 `json:"port"`
	Method    string `json:"method"`
	Path      string `json:"path"`
	Times     int    `json:"times"`
	Sandboxes int    `json:"sandboxes"`
	Decision  string `json:"decision_id"`
	Reason    string `json:"reason"`
	Rule      string `json:"rule"`
	Layer     string `json:"layer"`
}

// A LayerSays is what one layer says by itself to a question.
type LayerSays struct {
	Name   string `json:"name"` // floor, ceiling, policy:NAME, own
	Action string `json:"action"`
	Reason string `json:"reason"`
	Rule   string `json:"rule"`
	Detail string `json:"detail"` // a sentence, of the floor
}

// A Version is one of a policy's.
type Version struct {
	Version   int64     `json:"version"`
	Current   bool      `json:"current"`
	Restored  int64     `json:"restored_from"`
	Bytes     int64     `json:"bytes"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
}

// Lint looks at a document, JSON or YAML, by itself and the floor that is built in, without any server.
func Lint(text string, now time.Time) ([]Finding, error) {
	document, err := policies.ParseAt([]byte(text), now)
	if err != nil {
		return nil, fmt.Errorf("the policy is not valid: %w", err)
	}
	all := []Finding{}
	for _, f := range policies.Lint(document, policies.LintOptions{Now: now}) {
		all = append(all, Finding(f))
	}
	return all, nil
}

// RunTests reads a document, JSON or YAML, and runs its tests by the document alone, without any server.
func RunTests(text string, now time.Time) ([]TestResult, error) {
	document, err := policies.ParseAt([]byte(text), now)
	if err != nil {
		return nil, fmt.Errorf("the policy is not valid: %w", err)
	}
	snapshot, err := policies.Compile(policies.Layer{Name: "document", Document: document})
	if err != nil {
		return nil, err
	}
	all := []TestResult{}
	for _, r := range snapshot.RunTests(document.Tests, now) {
		all = append(all, TestResult{Name: r.Name, Passed: r.Passed, Message: r.Message})
	}
	return all, nil
}
