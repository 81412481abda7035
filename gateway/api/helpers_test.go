package api_test

import (
	"testing"
	"time"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/api/apitest"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

// record keeps a denial, and returns its id.
func record(t *testing.T, w *apitest.World, org, sandbox, host string, change ...func(*decisions.Decision)) string {
	t.Helper()
	d := decisions.Decision{ID: store.NewID("dec"), Time: time.Now(), Org: org, Sandbox: sandbox, Incarnation: 1, Layer: "connect", Level: "sni", Verdict: "deny",
		Reason: "no_rule", RuleLayer: "ceiling", Host: host, Port: 443, Protocol: "https"}
	for _, f := range change {
		f(&d)
	}
	if err := w.Store.AppendDecisions(t.Context(), []decisions.Decision{d}); err != nil {
		t.Fatal(err)
	}
	return d.ID
}

func principal(c *apitest.Client) store.By {
	return store.By{Principal: sso.Principal{Kind: sso.KindKey, ID: "key_1", Org: c.Org, Scopes: sso.Scopes()}}
}

type object = map[string]any

func rule(id, host string) object {
	return object{"id": id, "action": "allow", "hosts": []string{host}}
}

func document(rules ...object) object {
	if rules == nil {
		rules = []object{}
	}
	return object{"rules": rules}
}
