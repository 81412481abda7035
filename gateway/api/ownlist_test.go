package api_test

import (
	"fmt"
	"strings"
	"testing"

	"portreeve.dev/gateway/api/apitest"
)

// TestOwnListIsBounded: the list of one sandbox goes to the edges with every change, so it can't be as long as a policy.
func TestOwnListIsBounded(t *testing.T) {
	c := apitest.New(t).Org("one")
	var rules []object
	for i := range 300 {
		long := rule(fmt.Sprint("r", i), "a.test")
		long["message"] = strings.Repeat("x", 450)
		rules = append(rules, long)
	}
	c.Do("POST", "/sandbox/create", object{"template": "tiny", "egress": document(rules...)}).Refused(422, "invalid_request", "body.egress")
	c.Sandbox(object{"egress": document(rule("a", "a.test"))})
}
