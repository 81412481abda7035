package api_test

import (
	"fmt"
	"strings"
	"testing"

	"portreeve.dev/egress/decisions"
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
	box := c.Sandbox(object{"egress": document(rule("a", "a.test"))})
	c.Do("PUT", "/sandbox/"+box+"/egress", document(rules...)).Refused(422, "invalid_request", "body")
	// Nor are they together more than the edges take.
	for i := range rules {
		rules[i]["message"] = strings.Repeat("x", 200)
	}
	n := 0
	for ; n < 50; n++ {
		if c.Do("PUT", "/sandbox/"+box+"/egress", document(rules...)).Status != 200 {
			break
		}
		box = c.Sandbox()
	}
	if n < 30 || n > 45 {
		t.Errorf("%d sandboxes have a list of some 100 KiB", n)
	}
	c.Do("PUT", "/sandbox/"+box+"/egress", document(rules...)).Refused(409, "limit_reached", "body")
	c.Do("PUT", "/sandbox/"+box+"/egress", document()).Want(200)
}

func TestOwnListIsChangedLive(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	c.Do("PUT", "/settings/egress", document(rule("a", "a.test"), rule("b", "b.test"))).Want(200)
	box := c.Sandbox()
	at := "/sandbox/" + box + "/egress"
	allowed := func(want string) {
		t.Helper()
		for _, host := range []string{"a.test", "b.test", "c.test"} {
			got := c.Do("POST", "/policies/check", object{"host": host, "sandbox": box}).Want(200).String("verdict") == "allow"
			if got != strings.Contains(want, host) {
				t.Errorf("%s is allowed: %v, want only %q", host, got, want)
			}
		}
	}
	allowed("a.test b.test")
	c.Do("GET", at, nil).Refused(404, "own_list_not_found")
	c.Do("DELETE", at, nil).Refused(404, "own_list_not_found")
	c.Also("If-Match", "*").Do("PUT", at, document()).Refused(412, "version_changed")
	put := c.Also("If-None-Match", "*").Do("PUT", at+"?wait=applied", document(rule("x", "a.test"), rule("y", "c.test"))).Want(200)
	if put.Header.Get("ETag") != `"v1"` || put.At("rules.0.id") != "x" || int64(put.At("revision").(float64)) != w.Feed.Applied() {
		t.Errorf("%s, applied %d", put.Body, w.Feed.Applied())
	}
	allowed("a.test")
	c.Also("If-None-Match", "*").Do("PUT", at, document()).Refused(412, "version_changed")
	c.Also("If-Match", `"v2"`).Do("PUT", at, document()).Refused(412, "version_changed")
	// It survives a pause, and is changed while one lasts.
	c.Do("POST", "/sandbox/"+box+"/pause", nil).Want(200)
	allowed("a.test")
	c.Also("If-Match", `"v1"`).Do("PUT", at, "rules:\n  - {id: z, action: allow, hosts: [b.test]}\n").Want(200)
	c.Do("POST", "/sandbox/"+box+"/resume", nil).Want(200)
	allowed("b.test")
	if got := c.Do("GET", "/sandbox/"+box, nil).Want(200); got.At("egress.rules.0.id") != "z" || got.At("egress_version") != 2.0 {
		t.Errorf("%s", got.Body)
	}
	got := c.Do("GET", at, nil).Want(200)
	c.Do("PUT", at, got.Body).Want(200) // what was read can be sent back
	if yaml := c.Also("Accept", "application/yaml").Do("GET", at, nil).Want(200); yaml.Header.Get("Content-Type") != "application/yaml" || !strings.Contains(string(yaml.Body), "- b.test\n") {
		t.Errorf("%s %s", yaml.Header.Get("Content-Type"), yaml.Body)
	}
	for body, location := range map[string]string{`{"rulez":[]}`: "body.rulez", `{"rules":[{"id":"a","action":"allow","hosts":["*.com"]}]}`: "body.rules[0].hosts[0]"} {
		c.Do("PUT", at, body).Refused(422, "invalid_policy", location)
	}
	// What opens a host opens it there too.
	if a := c.Do("POST", "/allow", object{"host": "a.test", "sandbox": box}).Want(200); a.String("layers.0") != "own" || a.At("layers.1") != nil {
		t.Errorf("%s", a.Body)
	}
	allowed("a.test b.test")
	// A decision of the list is explained as long as it is the same.
	byOwn := record(t, w, c.Org, box, "b.test", func(d *decisions.Decision) { d.RuleLayer, d.Rule, d.Version = "own", "z", 4 })
	older := record(t, w, c.Org, box, "b.test", func(d *decisions.Decision) { d.RuleLayer, d.Rule, d.Version = "own", "z", 1 })
	if a := c.Do("GET", "/decisions/"+byOwn, nil).Want(200); a.String("rule.hosts.0") != "b.test" {
		t.Errorf("%s", a.Body)
	}
	if a := c.Do("GET", "/decisions/"+older, nil).Want(200); a.At("rule") != nil {
		t.Errorf("%s", a.Body)
	}
	c.Also("If-Match", `"v1"`).Do("DELETE", at, nil).Refused(412, "version_changed")
	c.Also("If-Match", `"v4"`).Do("DELETE", at+"?wait=applied", nil).Want(200)
	allowed("a.test b.test")
	c.Do("GET", at, nil).Refused(404, "own_list_not_found")
	entries := string(c.Do("GET", "/audit?sandbox_id="+box, nil).Want(200).Body)
	if n := strings.Count(entries, `"sandbox.egress"`); n != 4 {
		t.Errorf("%d entries of changes, want 4: %s", n, entries)
	}
	c.Do("DELETE", "/sandbox/"+box, nil).Want(200)
	c.Do("PUT", at, document()).Refused(409, "sandbox_not_running")
	c.Do("PUT", "/sandbox/"+box+"/policy", object{"policy": nil}).Refused(409, "sandbox_not_running")
}

func TestOwnListNeedsItsPolicy(t *testing.T) {
	w := apitest.New(t)
	owner := w.Org("one")
	for _, name := range []string{"web", "db", "usual"} {
		owner.Do("PUT", "/policies/"+name, document()).Want(200)
	}
	bare := owner.Sandbox(object{"egress": document()}) // under the ceiling alone
	owner.Do("PUT", "/settings", object{"default_policy": "usual"}).Want(200)
	c := owner.With([]string{"read", "write"}, "web")
	reader, all := owner.With([]string{"read"}, "*"), owner.With([]string{"read", "write"}, "*")
	make := func(policy string) string { return owner.Sandbox(object{"policy": policy, "egress": document()}) }
	web, db, usual := make("web"), make("db"), make("usual")

	// A list of its own: set, widened and taken away by whoever may give the policy.
	for box, may := range map[string]bool{web: true, usual: true, db: false, bare: false} {
		for _, send := range []func(c *apitest.Client) *apitest.Answer{
			func(c *apitest.Client) *apitest.Answer { return c.Do("PUT", "/sandbox/"+box+"/egress", document()) },
			func(c *apitest.Client) *apitest.Answer { return c.Do("DELETE", "/sandbox/"+box+"/egress", nil) },
		} {
			if a := send(c); may {
				a.Want(200)
			} else {
				a.Refused(403, "policy_not_given")
				send(all).Want(200)
			}
			send(reader).Refused(403, "scope_missing")
		}
	}
	// Its policy: by whoever may give the old and the new one.
	move := func(c *apitest.Client, box string, policy any) *apitest.Answer {
		return c.Do("PUT", "/sandbox/"+box+"/policy?wait=applied", object{"policy": policy})
	}
	move(c, db, "web").Refused(403, "policy_not_given")
	move(c, bare, "web").Refused(403, "policy_not_given")
	move(c, web, "db").Refused(403, "policy_not_given", "body.policy")
	move(c, web, nil).Refused(403, "policy_not_given", "body.policy")
	move(reader, web, "usual").Refused(403, "scope_missing")
	if a := owner.Do("GET", "/sandbox/"+web, nil).Want(200); a.String("policy") != "web" {
		t.Errorf("after refusals: %s", a.Body)
	}
	if a := move(c, web, "usual").Want(200); a.String("policy") != "usual" || w.Feed.Applied() == 0 {
		t.Errorf("%s", a.Body)
	}
	move(c, web, "web").Want(200)
	move(all, db, "web").Want(200)
	move(all, bare, nil).Want(200)
	move(owner, web, "nowhere").Refused(422, "invalid_request", "body.policy")
	move(owner, web, "../x").Refused(422, "invalid_request", "body.policy")
	owner.Do("DELETE", "/policies/db", nil).Want(200) // no sandbox has it any more
	if entries := string(owner.Do("GET", "/audit?sandbox_id="+db, nil).Want(200).Body); !strings.Contains(entries, `"sandbox.policy"`) {
		t.Errorf("%s", entries)
	}
}
