package api_test

import (
	"strings"
	"sync"
	"testing"

	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/api/apitest"
)

func TestCeiling(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	fresh := c.Do("GET", "/settings/egress", nil).Want(200)
	if fresh.Header.Get("ETag") != `"v0"` || fresh.At("version") != 0.0 || len(fresh.At("rules").([]any)) != 0 {
		t.Errorf("%s", fresh.Body)
	}
	put := c.Do("PUT", "/settings/egress", document(object{"id": "api", "action": "allow", "hosts": []string{"api.test"}, "ports": []int{443}, "protocols": []string{"https"}, "tls": "inspect", "methods": []string{"GET"}, "paths": []string{"/v1/**"}})).Want(200)
	if put.Header.Get("ETag") != `"v1"` || put.At("version") != 1.0 || put.At("rules.0.id") != "api" || put.At("rules.0.paths.0") != "/v1/**" {
		t.Errorf("%s", put.Body)
	}
	if rev := put.At("revision").(float64); int64(rev) != w.Feed.Published()[len(w.Feed.Published())-1] {
		t.Errorf("revision %v, published %v", rev, w.Feed.Published())
	}
	got := c.Do("GET", "/settings/egress", nil).Want(200)
	// What was read can be sent back as it is.
	c.Do("PUT", "/settings/egress", got.Body).Want(200)
	c.Do("PUT", "/settings/egress", put.Body).Refused(412, "version_changed")

	known := c.Do("PUT", "/settings/egress", object{"mode": "allowed_domains", "allowed_domains": []string{"api.test"}}).Want(200)
	if known.At("rules.0.hosts.0") != "api.test" || known.At("mode") != nil {
		t.Errorf("the known form is shown as %s", known.Body)
	}
	c.Do("PUT", "/settings/egress", "rules:\n  - {id: a, action: allow, hosts: [api.test]}\n").Want(200)
	// With no document there is nothing to store.
	before := c.Do("GET", "/settings/egress", nil)
	for body, location := range map[string]string{
		`{"rules":[{"id":"a","action":"allow","hosts":["*.com"]}]}`:                    "body.rules[0].hosts[0]",
		`{"rules":[{"id":"a","action":"allow","hosts":["api.test"],"ports":[0]}]}`:     "body.rules[0].ports[0]",
		`{"rules":[{"id":"a","action":"allow","hosts":["api.test"],"ports":[65536]}]}`: "body.rules[0].ports[0]",
		`{"rules":[{"id":"a","action":"allow","hostz":["api.test"]}]}`:                 "body.rules[0].hostz",
		`{"rulez":[]}`:                          "body.rulez",
		`{"rules":[{"action":"allow"}]}`:        "body.rules[0].id",
		`{"rules":{}}`:                          "body.rules",
		`{"rules":[],"version":"x"}`:            "body.version",
		`{"rules":[],"failure_mode":"open"}`:    "body.failure_mode",
		`{"mode":"allowed_domains","allow":[]}`: "body.allow",
	} {
		c.Do("PUT", "/settings/egress", body).Refused(422, "invalid_policy", location)
	}
	c.Do("PUT", "/settings/egress", `{"rules":`).Refused(422, "invalid_policy", "body.rules")
	c.Do("PUT", "/settings/egress", ``).Want(400)
	if after := c.Do("GET", "/settings/egress", nil); string(after.Body) != string(before.Body) {
		t.Errorf("a refused document changed it: %s", after.Body)
	}
}

func TestStaleIfMatchIsRefused(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	for _, path := range []string{"/settings/egress", "/policies/web"} {
		c.Also("If-Match", `"v1"`).Do("PUT", path, document()).Refused(412, "version_changed")
		c.Also("If-Match", "*").Do("PUT", path, document()).Refused(412, "version_changed")
		c.Also("If-Match", `"v0"`).Do("PUT", path, document()).Want(200)
		c.Also("If-Match", `"v0"`).Do("PUT", path, document()).Refused(412, "version_changed")
		c.Also("If-None-Match", "*").Do("PUT", path, document()).Refused(412, "version_changed")
		second := c.Also("If-Match", `"v1"`).Do("PUT", path, document(rule("two", "two.test"))).Want(200)
		c.Also("If-Match", `"v1"`).Do("PUT", path, document()).Refused(412, "version_changed")
		c.Also("If-Match", `"zzz"`).Do("PUT", path, document()).Refused(412, "version_changed", "header.If-Match")
		c.Do("PUT", path, object{"rules": []any{}, "version": 1}).Refused(412, "version_changed")
		c.Also("If-Match", `"v2"`).Do("PUT", path, object{"rules": []any{}, "version": 1}).Refused(412, "version_changed")
		if got := c.Do("GET", path, nil).Want(200); got.Header.Get("ETag") != second.Header.Get("ETag") || got.At("rules.0.id") != "two" {
			t.Errorf("%s after stale writes: %s", path, got.Body)
		}
		c.Also("If-Match", "*").Do("PUT", path, document()).Want(200)
		c.Do("PUT", path, document()).Want(200) // no precondition: the last write wins
		var wait sync.WaitGroup
		statuses := make([]int, 6)
		for i := range statuses {
			wait.Go(func() { statuses[i] = c.Also("If-Match", `"v4"`).Do("PUT", path, document()).Status })
		}
		wait.Wait()
		won := 0
		for _, s := range statuses {
			if s == 200 {
				won++
			} else if s != 412 {
				t.Errorf("status %d", s)
			}
		}
		if won != 1 {
			t.Errorf("%d of 6 writers of one version won", won)
		}
	}
	c.Also("If-Match", `"v1"`).Do("DELETE", "/policies/web", nil).Refused(412, "version_changed")
	c.Also("If-Match", `"v5"`).Do("DELETE", "/policies/web", nil).Want(200)
}

func TestNamedPolicies(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	c.Do("PUT", "/policies/web", document(rule("one", "one.test"))).Want(200)
	c.Do("PUT", "/policies/web", document(rule("two", "two.test"), rule("three", "three.test"))).Want(200)
	if a := c.Do("GET", "/policies/web?version=1", nil).Want(200); a.At("rules.0.id") != "one" || a.At("version") != 1.0 {
		t.Errorf("%s", a.Body)
	}
	c.Do("GET", "/policies/web?version=3", nil).Refused(404, "policy_not_found")
	if a := c.Do("GET", "/policies", nil).Want(200); a.String("policies.0.name") != "web" || a.At("policies.0.version") != 2.0 || a.At("policies.0.rules") != 2.0 || a.At("policies.0.default") != false {
		t.Errorf("%s", a.Body)
	}
	for _, name := range []string{"Web", "-web", "we_b", "ceiling", "check", strings.Repeat("a", 64)} {
		c.Do("PUT", "/policies/"+name, document()).Refused(422, "invalid_request", "path.name")
	}
	c.Do("GET", "/policies/nowhere", nil).Refused(404, "policy_not_found")
	c.Do("DELETE", "/policies/nowhere", nil).Refused(404, "policy_not_found")

	c.Do("PUT", "/settings", object{"default_policy": "nowhere"}).Refused(422, "invalid_request", "body.default_policy")
	set := c.Do("PUT", "/settings", object{"default_policy": "web"}).Want(200)
	if got := c.Do("GET", "/settings", nil).Want(200); got.String("default_policy") != "web" || got.Header.Get("ETag") != set.Header.Get("ETag") {
		t.Errorf("%s", got.Body)
	}
	c.Also("If-Match", `"v0"`).Do("PUT", "/settings", object{"default_policy": nil}).Refused(412, "version_changed")
	c.Do("DELETE", "/policies/web", nil).Refused(409, "policy_in_use")
	box := c.Sandbox()
	c.Also("If-Match", `"v1"`).Do("PUT", "/settings", object{"default_policy": nil}).Want(200)
	c.Do("DELETE", "/policies/web", nil).Refused(409, "policy_in_use")
	c.Do("DELETE", "/sandbox/"+box, nil).Want(200)
	c.Do("DELETE", "/policies/web", nil).Want(200)
	c.Do("GET", "/policies/web", nil).Refused(404, "policy_not_found")
}

func TestWaitApplied(t *testing.T) {
	w := apitest.New(t, func(c *api.Config) { c.Applied = 1 })
	c := w.Org("one")
	c.Do("PUT", "/policies/web?wait=applied", document()).Want(200)
	if applied := w.Feed.Applied(); applied != w.Feed.Published()[len(w.Feed.Published())-1] {
		t.Errorf("waited for %d, published %v", applied, w.Feed.Published())
	}
	w.Feed.Silent(true)
	c.Do("PUT", "/policies/web", document()).Want(200)
	c.Do("PUT", "/policies/web?wait=applied", document(rule("late", "late.test"))).Refused(504, "not_applied")
	if a := c.Do("GET", "/policies/web", nil); a.At("rules.0.id") != "late" {
		t.Errorf("the change is not stored: %s", a.Body)
	}
	c.Do("PUT", "/policies/web?wait=forever", document()).Refused(422, "invalid_request", "query.wait")
}

func TestCheck(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	c.Do("PUT", "/settings/egress", document(
		object{"id": "api", "action": "allow", "hosts": []string{"api.test"}, "tls": "inspect", "methods": []string{"GET"}, "paths": []string{"/v1/**"}},
		object{"id": "bad", "action": "deny", "hosts": []string{"bad.test"}, "message": "not that one"},
		object{"id": "db", "action": "allow", "hosts": []string{"db.test"}, "ports": []int{5432}, "protocols": []string{"postgres"}},
	)).Want(200)
	c.Do("PUT", "/policies/narrow", document(rule("db", "db.test"))).Want(200)
	box := c.Sandbox(object{"policy": "narrow"})
	for _, q := range []struct {
		ask                   object
		verdict, reason, rule string
	}{
		{object{"host": "api.test"}, "allow", "allowed", "api"},
		{object{"host": "API.test."}, "allow", "allowed", "api"},
		{object{"url": "https://api.test/v1/x", "method": "GET"}, "allow", "allowed", "api"},
		{object{"url": "https://api.test/v1/x", "method": "POST"}, "deny", "no_rule", ""},
		{object{"url": "https://api.test/v2", "method": "GET"}, "deny", "no_rule", ""},
		{object{"host": "api.test", "port": 444}, "deny", "no_rule", ""},
		{object{"host": "api.test", "protocol": "http"}, "deny", "no_rule", ""},
		{object{"host": "sub.api.test"}, "deny", "no_rule", ""},
		{object{"host": "bad.test"}, "deny", "rule_denied", "bad"},
		{object{"host": "db.test", "protocol": "postgres"}, "allow", "allowed", "db"},
		{object{"host": "metadata.google.internal"}, "deny", "floor_hard", ""},
		{object{"host": "169.254.169.254"}, "deny", "floor_hard", ""},
		{object{"host": "10.0.0.1"}, "deny", "floor_soft", ""},
		{object{"host": "api.test", "policy": "narrow"}, "deny", "no_rule", ""},
		{object{"host": "api.test", "policy": "ceiling"}, "allow", "allowed", "api"},
		{object{"host": "api.test", "policy": "ceiling", "document": document()}, "deny", "no_rule", ""},
		{object{"host": "api.test", "sandbox": box}, "deny", "no_rule", ""},
		{object{"host": "new.test", "document": document(rule("n", "new.test"))}, "allow", "allowed", "n"},
		{object{"host": "api.test", "document": document()}, "deny", "no_rule", ""},
		{object{"host": "api.test", "policy": "narrow", "document": document(rule("n", "api.test"))}, "allow", "allowed", ""},
	} {
		a := c.Do("POST", "/policies/check", q.ask).Want(200)
		if a.String("verdict") != q.verdict || a.String("reason") != q.reason || q.rule != "" && a.String("rule") != q.rule || a.At("explanation") == nil {
			t.Errorf("%v: %s", q.ask, a.Body)
		}
		if (a.String("verdict") == "deny") != (a.String("agent_guidance") != "") {
			t.Errorf("%v: guidance %q", q.ask, a.String("agent_guidance"))
		}
	}
	if a := c.Do("POST", "/policies/check", object{"host": "bad.test"}); a.String("message") != "not that one" || a.String("layer") != "ceiling" || a.At("version") != 1.0 {
		t.Errorf("%s", a.Body)
	}
	for body, location := range map[string]string{
		`{}`: "body.host", `{"host":"a b"}`: "body.host", `{"host":"api.test","port":70000}`: "body.port", `{"host":"api.test","protocol":"smtp"}`: "body.protocol",
		`{"url":"ftp://x/"}`: "body.url", `{"url":"https://u:p@x/"}`: "body.url", `{"url":"https://x/","host":"y"}`: "body.url", `{"url":"https://x:0/"}`: "body.url",
		`{"host":"api.test","protocol":"ssh","method":"GET"}`: "body.method", `{"host":"api.test","method":"GET","path":"/a/../b%2e%2e"}`: "body.path",
		`{"host":"api.test","protocol":"tcp"}`: "body.port", `{"host":"api.test","sandbox":"` + box + `","policy":"narrow"}`: "body.policy",
	} {
		a := c.Do("POST", "/policies/check", body)
		if location == "body.path" && a.Status == 200 {
			continue // canonical after all
		}
		a.Refused(422, "invalid_request", location)
	}
	c.Do("POST", "/policies/check", object{"host": "x.test", "document": object{"rules": []object{{"id": "a", "action": "allow", "hosts": []string{"*.com"}}}}}).Refused(422, "invalid_policy", "body.document.rules[0].hosts[0]")
	c.Do("POST", "/policies/check", object{"host": "x.test", "policy": "nowhere"}).Refused(404, "policy_not_found")
}
