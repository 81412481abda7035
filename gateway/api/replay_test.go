package api_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/api/apitest"
	"portreeve.dev/gateway/internal/store"
)

// allowed makes a recorded decision one that let something through.
func allowed(d *decisions.Decision) { d.Verdict, d.Reason, d.Rule = "allow", "allowed", "r" }

func inside(method, path string) func(*decisions.Decision) {
	return func(d *decisions.Decision) { d.Layer, d.Level, d.Method, d.Path = "http", "http", method, path }
}

func ago(d time.Duration) func(*decisions.Decision) {
	return func(r *decisions.Decision) { r.Time = time.Now().Add(-d) }
}

func TestReplayShowsWhatADraftWouldChange(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	c.Do("PUT", "/settings/egress", document(rule("a", "a.test"), rule("b", "b.test"), rule("c", "c.test"))).Want(200)
	c.Do("PUT", "/policies/web", document(rule("a", "a.test"), rule("b", "b.test"))).Want(200)
	web, other, plain := c.Sandbox(object{"policy": "web"}), c.Sandbox(object{"policy": "web", "egress": document(rule("a", "a.test"))}), c.Sandbox()
	for range 3 {
		record(t, w, c.Org, web, "b.test", allowed)
	}
	newest := record(t, w, c.Org, web, "b.test", allowed, inside("POST", "/v1/x"))
	record(t, w, c.Org, web, "a.test", allowed)
	record(t, w, c.Org, web, "c.test")
	record(t, w, c.Org, other, "c.test")
	record(t, w, c.Org, plain, "c.test", allowed)
	record(t, w, c.Org, web, "evil.test", func(d *decisions.Decision) { d.Reason, d.RuleLayer = "floor_hard", "floor" })
	record(t, w, c.Org, web, "b.test", allowed, ago(30*time.Hour))

	draft := document(rule("a", "a.test"), rule("c", "c.test"))
	got := c.Do("POST", "/policies/replay", object{"policy": "web", "document": draft}).Want(200)
	if got.At("looked_at") != 9.0 || got.At("more") != false || got.At("newly_denied_count") != 4.0 || got.At("newly_allowed_count") != 1.0 || got.At("unjudged") != 1.0 || got.At("elsewhere") != 1.0 ||
		got.At("same") != 2.0 || got.At("tried_on_all") != false {
		t.Errorf("%s", got.Body)
	}
	if got.String("newly_denied.0.host") != "b.test" || got.At("newly_denied.0.times") != 3.0 || got.At("newly_denied.0.sandboxes") != 1.0 || got.At("newly_denied.0.port") != 443.0 ||
		got.String("newly_denied.0.reason") != "no_rule" || got.String("newly_denied.0.layer") != "policy:web" || got.String("newly_denied.1.method") != "POST" ||
		got.String("newly_denied.1.path") != "/v1/x" || got.String("newly_denied.1.decision_id") != newest || got.At("newly_denied.2") != nil {
		t.Errorf("%s", got.Body)
	}
	// The one with a list of its own is not let through by the draft.
	if got.String("newly_allowed.0.host") != "c.test" || got.At("newly_allowed.0.times") != 1.0 || got.At("newly_allowed.1") != nil {
		t.Errorf("%s", got.Body)
	}
	// As the ceiling it concerns everybody.
	if all := c.Do("POST", "/policies/replay", object{"document": document(rule("a", "a.test"))}).Want(200); all.At("elsewhere") != 0.0 || all.At("newly_denied_count") != 5.0 || all.At("newly_allowed_count") != 0.0 {
		t.Errorf("%s", all.Body)
	}
	// A policy that isn't there yet is tried on all of them, one sandbox alone if it is named.
	if fresh := c.Do("POST", "/policies/replay", object{"policy": "new", "document": document()}).Want(200); fresh.At("tried_on_all") != true || fresh.At("newly_denied_count") != 6.0 {
		t.Errorf("%s", fresh.Body)
	}
	if one := c.Do("POST", "/policies/replay", object{"policy": "web", "document": document(), "sandbox": plain}).Want(200); one.At("looked_at") != 1.0 || one.At("newly_denied_count") != 1.0 {
		t.Errorf("%s", one.Body)
	}
	if long := c.Do("POST", "/policies/replay", object{"policy": "web", "document": draft, "since": "48h"}).Want(200); long.At("looked_at") != 10.0 || long.At("newly_denied_count") != 5.0 {
		t.Errorf("%s", long.Body)
	}
	// An older version in place of a draft.
	c.Do("PUT", "/policies/web", draft).Want(200)
	if old := c.Do("POST", "/policies/replay", object{"policy": "web", "version": 1}).Want(200); old.At("newly_denied_count") != 0.0 || old.At("newly_allowed_count") != 0.0 {
		t.Errorf("%s", old.Body)
	}
	if short := c.Do("POST", "/policies/replay", object{"document": draft, "most": 4}).Want(200); short.At("looked_at") != 4.0 || short.At("more") != true || short.String("oldest") == "" {
		t.Errorf("%s", short.Body)
	}
	// Two at once would take both processors.
	many := make([]*apitest.Answer, 6)
	var wait sync.WaitGroup
	for i := range many {
		wait.Go(func() { many[i] = c.Do("POST", "/policies/replay", object{"document": draft}) })
	}
	wait.Wait()
	for _, a := range many {
		if a.Status != 200 {
			a.Refused(429, "busy")
		}
	}
	for body, location := range map[string]string{`{}`: "body.document", `{"document":{"rules":[]},"version":1}`: "body.version", `{"document":{"rules":[]},"since":"never"}`: "body.since",
		`{"document":{"rules":[]},"policy":"No"}`: "body.policy", `{"document":{"rules":[]},"most":0}`: "body.most", `{"document":{"rules":[]},"most":100001}`: "body.most"} {
		if a := c.Do("POST", "/policies/replay", body); body != `{"document":{"rules":[]},"most":0}` || a.Status != 200 {
			a.Refused(422, "invalid_request", location)
		}
	}
	c.Do("POST", "/policies/replay", object{"document": object{"rulez": 1}}).Refused(422, "invalid_policy", "body.document.rulez")
	c.Do("POST", "/policies/replay", object{"policy": "web", "version": 9}).Refused(404, "version_not_found")
	c.Do("POST", "/policies/replay", object{"document": draft, "sandbox": "sbx_x"}).Refused(404, "sandbox_not_found")
	w.Org("two").Do("POST", "/policies/replay", object{"document": draft, "sandbox": web}).Refused(404, "sandbox_not_found")
	if theirs := w.Org("three").Do("POST", "/policies/replay", object{"document": draft}).Want(200); theirs.At("looked_at") != 0.0 {
		t.Errorf("another org's decisions are looked at: %s", theirs.Body)
	}
}

// TestReplayGoesThroughAllPages: what is looked at is more than one page of the store, and each decision once.
func TestReplayGoesThroughAllPages(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	box := c.Sandbox()
	var batch []decisions.Decision
	at := time.Now()
	for i := range 2345 {
		batch = append(batch, decisions.Decision{ID: store.NewID("dec"), Time: at.Add(-time.Duration(i/7) * time.Second), Org: c.Org, Sandbox: box, Layer: "connect",
			Verdict: "deny", Reason: "no_rule", RuleLayer: "ceiling", Host: fmt.Sprintf("h%d.test", i%3), Port: 443, Protocol: "https"})
	}
	if err := w.Store.AppendDecisions(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	got := c.Do("POST", "/policies/replay", object{"document": document(rule("h", "h1.test"))}).Want(200)
	if got.At("looked_at") != 2345.0 || got.At("newly_allowed.0.times") != 782.0 || got.At("same") != 1563.0 || got.At("more") != false {
		t.Errorf("%s", got.Body)
	}
}

func TestLearnDraftsWhatWasSeen(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	c.Do("PUT", "/settings/egress", document(rule("a", "a.test"))).Want(200)
	c.Do("PUT", "/policies/web", document()).Want(200)
	one, two := c.Sandbox(), c.Sandbox(object{"policy": "web"})
	record(t, w, c.Org, one, "a.test", allowed)
	record(t, w, c.Org, one, "api.test", inside("GET", "/v1/models"))
	record(t, w, c.Org, two, "api.test", inside("GET", "/v1/models"))
	record(t, w, c.Org, two, "plain.test")
	record(t, w, c.Org, two, "closed.test", func(d *decisions.Decision) { d.Reason, d.Rule = "rule_denied", "no" })
	record(t, w, c.Org, two, "cut.test", inside("GET", "/a/b/…"))
	record(t, w, c.Org, two, "old.test", ago(30*time.Hour))

	got := c.Do("POST", "/policies/learn", object{}).Want(200)
	var answer struct {
		Document struct {
			Rules []struct {
				ID             string
				Hosts          []string
				Methods, Paths []string
			}
		}
		Evidence []struct {
			Rule, Host, Left string
			Sandboxes, Times int
		}
		Looked int `json:"looked_at"`
	}
	got.JSON(&answer)
	hosts := map[string]string{}
	for _, r := range answer.Document.Rules {
		hosts[r.Hosts[0]] = fmt.Sprint(r.Methods, r.Paths)
		if strings.Contains(r.Hosts[0], "*") {
			t.Errorf("a wildcard: %v", r)
		}
	}
	if len(hosts) != 4 || hosts["api.test"] != "[[GET] [/v1/models]]" && hosts["api.test"] != "[GET] [/v1/models]" || hosts["plain.test"] != "[] []" || hosts["cut.test"] != "[] []" || answer.Looked != 6 {
		t.Errorf("%v\n%s", hosts, got.Body)
	}
	if got.String("evidence.0.rule") == "" || !strings.Contains(string(got.Body), `"left_out":"denied"`) {
		t.Errorf("%s", got.Body)
	}
	// It is a document that the language takes.
	raw := got.At("document")
	c.Do("POST", "/policies/lint", object{"document": raw}).Want(200)

	yaml := c.Also("Accept", "application/yaml").Do("POST", "/policies/learn", object{"sandbox": two, "only_new": true}).Want(200)
	text := string(yaml.Body)
	if yaml.Header.Get("Content-Type") != "application/yaml" || !strings.Contains(text, "# 1 time by 1 sandbox, first 20") || !strings.Contains(text, "closed.test port 443 (denied)") || strings.Contains(text, "- a.test\n") {
		t.Errorf("%s", text)
	}
	c.Do("PUT", "/policies/learnt", text).Want(200)
	if fresh := c.Do("POST", "/policies/learn", object{"only_new": true, "sandbox": one}).Want(200); strings.Contains(string(fresh.Body), `"a.test"`) || !strings.Contains(string(fresh.Body), "api.test") {
		t.Errorf("%s", fresh.Body)
	}
	if web := c.Do("POST", "/policies/learn", object{"policy": "web"}).Want(200); strings.Contains(string(web.Body), `"a.test"`) || !strings.Contains(string(web.Body), "plain.test") {
		t.Errorf("%s", web.Body)
	}
	c.Do("POST", "/policies/learn", object{"policy": "nowhere"}).Refused(404, "policy_not_found")
	c.Do("POST", "/policies/learn", object{"sandbox": "sbx_x"}).Refused(404, "sandbox_not_found")
	c.Do("POST", "/policies/learn", object{"since": "x"}).Refused(422, "invalid_request", "body.since")
	w.Org("two").Do("POST", "/policies/learn", object{"policy": "web"}).Refused(404, "policy_not_found")
}
