package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/api/apitest"
)

func TestVersions(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	for _, path := range []string{"/settings/egress", "/policies/web"} {
		for i := range 3 {
			c.Do("PUT", path, document(rule(fmt.Sprint("r", i+1), "a.test"))).Want(200)
		}
		list := c.Do("GET", path+"/versions", nil).Want(200)
		if list.At("versions.0.version") != 3.0 || list.At("versions.0.current") != true || list.At("versions.2.version") != 1.0 || list.At("versions.2.current") != false ||
			list.At("versions.3") != nil || list.At("next_before") != nil || list.At("versions.0.restored_from") != nil || list.String("versions.0.created_by") == "" {
			t.Errorf("%s", list.Body)
		}
		page := c.Do("GET", path+"/versions?limit=2", nil).Want(200)
		if page.At("versions.1.version") != 2.0 || page.At("versions.2") != nil || page.At("next_before") != 2.0 {
			t.Errorf("%s", page.Body)
		}
		if page = c.Do("GET", path+"/versions?limit=2&before=2", nil).Want(200); page.At("versions.0.version") != 1.0 || page.At("next_before") != nil {
			t.Errorf("%s", page.Body)
		}
		if one := c.Do("GET", path+"/versions/1", nil).Want(200); one.At("rules.0.id") != "r1" || one.Header.Get("ETag") != `"v1"` {
			t.Errorf("%s", one.Body)
		}
		c.Do("GET", path+"/versions/4", nil).Refused(404, "version_not_found")

		c.Also("If-Match", `"v2"`).Do("POST", path+"/versions/1/restore", nil).Refused(412, "version_changed")
		back := c.Also("If-Match", `"v3"`).Do("POST", path+"/versions/1/restore?wait=applied", nil).Want(200)
		if back.At("version") != 4.0 || back.At("rules.0.id") != "r1" || int64(back.At("revision").(float64)) != w.Feed.Applied() {
			t.Errorf("%s", back.Body)
		}
		if now := c.Do("GET", path, nil).Want(200); now.At("rules.0.id") != "r1" || now.At("version") != 4.0 {
			t.Errorf("%s", now.Body)
		}
		if list := c.Do("GET", path+"/versions", nil).Want(200); list.At("versions.0.restored_from") != 1.0 || list.At("versions.1.restored_from") != nil {
			t.Errorf("%s", list.Body)
		}
		c.Do("POST", path+"/versions/9/restore", nil).Refused(404, "version_not_found")
	}
	entries := string(c.Do("GET", "/audit", nil).Want(200).Body)
	for _, action := range []string{`"egress.restore"`, `"policy.restore"`, `"restored":"1"`} {
		if !strings.Contains(entries, action) {
			t.Errorf("the audit log lacks %s: %s", action, entries)
		}
	}
	// A policy that was deleted comes back.
	c.Do("DELETE", "/policies/web", nil).Want(200)
	if list := c.Do("GET", "/policies/web/versions", nil).Want(200); list.At("versions.0.version") != 4.0 || list.At("versions.0.current") != false {
		t.Errorf("%s", list.Body)
	}
	if back := c.Also("If-None-Match", "*").Do("POST", "/policies/web/versions/2/restore", nil).Want(200); back.At("version") != 5.0 || back.At("rules.0.id") != "r2" {
		t.Errorf("%s", back.Body)
	}
	c.Do("GET", "/policies/nowhere/versions", nil).Refused(404, "policy_not_found")
	if list := w.Org("two").Do("GET", "/settings/egress/versions", nil).Want(200); list.At("versions.0") != nil {
		t.Errorf("a ceiling that was never written: %s", list.Body)
	}
	// What may not be in force today is not restored either.
	secret(c, "key")
	c.Do("PUT", "/secrets/key/grants", grants(grant("b.test"))).Want(200)
	c.Do("PUT", "/secrets/key/grants", grants()).Want(200)
	c.Do("PUT", "/settings/egress", document(rule("p", "b.test"))).Want(200)
	c.Do("PUT", "/settings/egress", document()).Want(200)
	c.Do("PUT", "/secrets/key/grants", grants(grant("b.test"))).Want(200)
	c.Do("POST", "/settings/egress/versions/5/restore", nil).Refused(422, "granted_host")
}

func TestYAMLStaysAsItWasWritten(t *testing.T) {
	c := apitest.New(t).Org("one")
	const text = "# who may\nrules:\n  - id: api # the usual\n    action: allow\n    hosts: [api.test]\n"
	yaml, json := c.Also("Accept", "application/yaml"), c.Also("Accept", "application/json")
	for _, path := range []string{"/settings/egress", "/policies/web"} {
		put := c.Do("PUT", path, text).Want(200)
		if put.Header.Get("Content-Type") != "application/json" || put.At("rules.0.id") != "api" {
			t.Errorf("%s: %s", put.Header.Get("Content-Type"), put.Body)
		}
		for _, at := range []string{path, path + "/versions/1"} {
			got := yaml.Do("GET", at, nil).Want(200)
			if string(got.Body) != text || got.Header.Get("Content-Type") != "application/yaml" || got.Header.Get("ETag") != `"v1"` || got.Header.Get("Vary") != "Accept" {
				t.Errorf("%s: %v %s", at, got.Header, got.Body)
			}
		}
		if got := json.Do("GET", path, nil).Want(200); got.At("rules.0.hosts.0") != "api.test" {
			t.Errorf("%s", got.Body)
		}
		// One that was written as JSON is shown as YAML that says the same.
		c.Do("PUT", path, document(object{"id": "no", "action": "allow", "hosts": []string{"a.test", "b.test"}, "ports": []any{443, "8000-8099"}, "message": ""})).Want(200)
		before := c.Do("GET", path, nil)
		made := yaml.Do("GET", path, nil).Want(200)
		if !strings.HasPrefix(string(made.Body), "rules:\n") || !strings.Contains(string(made.Body), "- a.test\n      - b.test\n") || !strings.Contains(string(made.Body), `id: "no"`) {
			t.Errorf("%s", made.Body)
		}
		c.Do("PUT", path, made.Body).Want(200)
		after := c.Do("GET", path, nil)
		if a, b := strings.TrimPrefix(string(before.Body), `{"version":2`), strings.TrimPrefix(string(after.Body), `{"version":3`); a != b {
			t.Errorf("as JSON %s, and over YAML %s", a, b)
		}
		// Restored, it has its comments again.
		yaml.Do("POST", path+"/versions/1/restore", nil).Want(200)
		if got := yaml.Do("GET", path, nil).Want(200); string(got.Body) != text {
			t.Errorf("%s", got.Body)
		}
	}
	yaml.Do("PUT", "/policies/web", "rules: [").Refused(422, "invalid_policy")
	yaml.Do("GET", "/policies/nowhere", nil).Refused(404, "policy_not_found")
	if a := c.Do("POST", "/policies/check", object{"host": "new.test", "document": "rules:\n  - {id: n, action: allow, hosts: [new.test]}\n"}).Want(200); a.String("verdict") != "allow" {
		t.Errorf("%s", a.Body)
	}
	c.Do("POST", "/policies/check", object{"host": "new.test", "document": "rulez: []"}).Refused(422, "invalid_policy", "body.document.rulez")
}

func TestEditsKeepTheComments(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	w := apitest.New(t, func(c *api.Config) { c.Now = func() time.Time { return now } })
	c := w.Org("one")
	yaml := c.Also("Accept", "application/yaml")
	c.Do("PUT", "/settings/egress", "# who may\nrules:\n  - id: api # the usual\n    action: allow\n    hosts: [api.test]\n").Want(200)
	c.Do("POST", "/allow", object{"host": "b.test", "for": "1h"}).Want(200)
	text := string(yaml.Do("GET", "/settings/egress", nil).Want(200).Body)
	if !strings.Contains(text, "# who may\n") || !strings.Contains(text, "id: api # the usual\n") || !strings.Contains(text, "- b.test\n") {
		t.Errorf("%s", text)
	}
	if a := c.Do("POST", "/settings/egress/prune", nil).Want(200); a.At("pruned.0") != nil || a.At("version") != 2.0 {
		t.Errorf("%s", a.Body)
	}
	check := func(want string) {
		t.Helper()
		if got := c.Do("POST", "/policies/check", object{"host": "b.test"}).Want(200).String("verdict"); got != want {
			t.Errorf("b.test: %s, want %s", got, want)
		}
	}
	check("allow")
	now = now.Add(time.Hour)
	check("deny") // by itself
	c.Also("If-Match", `"v1"`).Do("POST", "/settings/egress/prune", nil).Refused(412, "version_changed")
	pruned := c.Also("If-Match", `"v2"`).Do("POST", "/settings/egress/prune?wait=applied", nil).Want(200)
	if !strings.HasPrefix(pruned.String("pruned.0"), "allow-") || pruned.At("pruned.1") != nil || pruned.At("version") != 3.0 || pruned.Header.Get("ETag") != `"v3"` {
		t.Errorf("%s", pruned.Body)
	}
	if text = string(yaml.Do("GET", "/settings/egress", nil).Want(200).Body); !strings.Contains(text, "# the usual\n") || strings.Contains(text, "b.test") {
		t.Errorf("%s", text)
	}
	// A preset stays a preset.
	c.Do("PUT", "/policies/web", "presets: [ai-apis] # models\n").Want(200)
	c.Do("POST", "/allow", object{"host": "b.test", "policy": "web"}).Want(200)
	if text = string(yaml.Do("GET", "/policies/web", nil).Want(200).Body); !strings.Contains(text, "b.test") || !strings.HasPrefix(text, "presets: [ai-apis] # models\n") || strings.Contains(text, "api.openai.com") {
		t.Errorf("%.300s", text)
	}
	c.Do("POST", "/policies/nowhere/prune", nil).Refused(404, "policy_not_found")
}
