package api

import (
	"fmt"
	"time"

	"portreeve.dev/policies"
)

// parseDocument reads a document that is to come into force. What the language has a word for and the edge does not do yet is
// refused: a rule that is kept and not held would be worse than none.
func parseDocument(text []byte, now time.Time) (*policies.Document, error) {
	d, err := policies.ParseAt(text, now)
	if err != nil {
		return nil, err
	}
	var wrong policies.Errors
	for i, r := range d.Rules {
		if r.DNS != nil && *r.DNS == policies.DNSReal {
			wrong = append(wrong, &policies.FieldError{Path: fmt.Sprintf("rules[%d].dns", i), Message: "real is not supported yet", Hint: "leave it out: synthetic"})
		}
		if r.Log != nil && *r.Log == policies.LogCount {
			wrong = append(wrong, &policies.FieldError{Path: fmt.Sprintf("rules[%d].log", i), Message: "count is not supported yet", Hint: "leave it out: full"})
		}
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	return d, nil
}
