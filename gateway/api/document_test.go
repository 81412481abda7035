package api

import (
	"testing"
	"time"
)

// Everything that the language has a word for is held by the edge, so everything may be stored.
func TestEveryWordOfTheLanguageMayBeStored(t *testing.T) {
	rule := func(more string) string {
		return `{"rules":[{"id":"a","action":"allow","hosts":["a.example.com"]` + more + `}]}`
	}
	for _, document := range []string{rule(""), rule(`,"dns":"real"`), rule(`,"dns":"synthetic","log":"full"`), rule(`,"log":"count"`),
		`{"failure_mode":"closed","rules":[]}`, `{"failure_mode":"last_known","max_stale":"5m","rules":[]}`} {
		if _, err := parseDocument([]byte(document), time.Now()); err != nil {
			t.Errorf("%s: %v", document, err)
		}
	}
	if _, err := parseDocument([]byte(rule(`,"log":"nothing"`)), time.Now()); err == nil {
		t.Error("a word that the language does not have was taken")
	}
}
