package api

import (
	"strings"
	"testing"
	"time"
)

func TestWhatTheEdgeDoesNotHoldIsRefused(t *testing.T) {
	rule := func(more string) string {
		return `{"rules":[{"id":"a","action":"allow","hosts":["a.example.com"]` + more + `}]}`
	}
	for document, field := range map[string]string{
		rule(`,"log":"count"`): "rules[0].log",
	} {
		if _, err := parseDocument([]byte(document), time.Now()); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: got %v, want a refusal that names %s", document, err, field)
		}
	}
	for _, document := range []string{rule(""), rule(`,"dns":"real"`), rule(`,"dns":"synthetic","log":"full"`), `{"failure_mode":"closed","rules":[]}`, `{"failure_mode":"last_known","max_stale":"5m","rules":[]}`} {
		if _, err := parseDocument([]byte(document), time.Now()); err != nil {
			t.Errorf("%s: %v", document, err)
		}
	}
}
