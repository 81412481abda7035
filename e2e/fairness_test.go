package e2e

import (
	"strings"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// TestOneOrgsFloodLeavesAnotherAlone: while one org does all at once that costs the edge something, each request of another is
// answered. How much later than alone is printed, never judged: machines differ.
func TestOneOrgsFloodLeavesAnotherAlone(t *testing.T) {
	_, p := own(t)
	rule := allow("clear", "plain.test", "ports", []int{80}, "protocols", []string{"http"})
	ceiling(t, p, rule)
	loud := armed(t, p)

	theirs := otherOrg(t, p)
	ceiling(t, theirs, rule)
	quiet := armed(t, theirs)

	pace := func(when string) {
		t.Helper()
		open, said := quiet.hostile("pace", "100", "50ms", "plain.test", "/")
		if !open || !strings.HasPrefix(said, "ok 100 of 100 ") {
			t.Errorf("%s: %s", when, said)
		}
		t.Logf("%s: %s", when, said)
	}
	pace("alone")
	loud.background("/workspace/hostile flood 30 plain.test evil.test")
	if err := lab.Await(20*time.Second, "flood that has begun", func() bool { return len(loud.flows()) > 20 }); err != nil {
		t.Fatal(err)
	}
	pace("while another org floods")
	if n := len(loud.flows()); n < 20 {
		t.Errorf("the flood was over too early: %d connections", n)
	}
	loud.decided("refuses some of the flood", func(d decision) bool { return d.Verdict == "deny" })
}
