package api_test

import (
	"strings"
	"testing"

	"portreeve.dev/gateway/api/apitest"
)

// tested is a document with tests.
func tested(tests []object, rules ...object) object {
	d := document(rules...)
	d["tests"] = tests
	return d
}

func expects(name, host, expect string) object {
	return object{"name": name, "host": host, "expect": expect}
}

func TestFailingTestRefusesTheChange(t *testing.T) {
	c := apitest.New(t).Org("one")
	a, b := rule("a", "a.test"), rule("b", "b.test")
	good := []object{expects("a is open", "a.test", "allow"), expects("c stays shut", "c.test", "deny")}
	c.Do("PUT", "/settings/egress", tested(good, a, b)).Want(200)
	bad := tested([]object{expects("a is open", "a.test", "allow"), expects("b is shut", "b.test", "deny")}, a, b)
	for _, path := range []string{"/settings/egress", "/policies/web"} {
		refused := c.Do("PUT", path, bad).Refused(422, "tests_failed", "body.tests[1]")
		if text := string(refused.Body); !strings.Contains(text, "b is shut") || strings.Contains(text, "body.tests[0]") {
			t.Errorf("%s", text)
		}
		if got := c.Do("GET", path, nil); strings.Contains(string(got.Body), "b is shut") {
			t.Errorf("it is stored: %s", got.Body)
		}
		told := c.Do("PUT", path+"?tests=report", bad).Want(200)
		if told.String("failed_tests.0.name") != "b is shut" || told.String("failed_tests.0.message") == "" || told.At("failed_tests.1") != nil {
			t.Errorf("%s", told.Body)
		}
		c.Do("PUT", path, told.Body).Refused(422, "tests_failed") // what was answered can be sent back, but no test is forgotten
		c.Do("PUT", path, tested(good, a, b)).Want(200)
		// Restoring is a change too.
		list := c.Do("GET", path+"/versions", nil).Want(200)
		old := list.At("versions.1.version").(float64)
		at := path + "/versions/" + string(rune('0'+int(old))) + "/restore"
		c.Do("POST", at, nil).Refused(422, "tests_failed", "body.tests[1]")
		c.Do("POST", at+"?tests=report", nil).Want(200)
		c.Do("PUT", path, tested(good, a, b)).Want(200)
	}
	// A policy's tests are asked under the ceiling.
	c.Do("PUT", "/policies/wide", tested([]object{expects("z is open", "z.test", "allow")}, rule("z", "z.test"))).Refused(422, "tests_failed", "body.tests[0]")
	// A ceiling that breaks a policy's tests is stored, and says so.
	if told := c.Do("PUT", "/settings/egress", document(b)).Want(200); told.String("failed_tests.0.policy") != "web" || told.String("failed_tests.0.name") != "a is open" {
		t.Errorf("%s", told.Body)
	}
	c.Do("PUT", "/settings/egress", document(a, b)).Want(200)
	// A sandbox's own list may have tests too.
	box := c.Sandbox(object{"policy": "web"})
	c.Do("PUT", "/sandbox/"+box+"/egress", tested([]object{expects("only a", "b.test", "deny"), expects("a", "a.test", "allow")}, a)).Want(200)
	c.Do("PUT", "/sandbox/"+box+"/egress", tested([]object{expects("only a", "b.test", "deny")}, a, b)).Refused(422, "tests_failed", "body.tests[0]")
	// Allowing for a while what a test expects to be denied.
	c.Do("POST", "/allow", object{"host": "c.test", "policy": "web"}).Refused(409, "tests_failed", "body.host")
	c.Do("POST", "/allow", object{"host": "d.test", "policy": "web"}).Want(200)
}

func TestDocumentIsTestedWithoutStoring(t *testing.T) {
	c := apitest.New(t).Org("one")
	c.Do("PUT", "/settings/egress", document(rule("a", "a.test"))).Want(200)
	c.Do("PUT", "/policies/web", tested([]object{expects("a", "a.test", "allow")}, rule("a", "a.test"))).Want(200)
	draft := tested([]object{expects("a", "a.test", "allow"), expects("b", "b.test", "allow")}, rule("a", "a.test"), rule("b", "b.test"))
	under := c.Do("POST", "/policies/test", object{"document": draft, "policy": "new"}).Want(200)
	if under.At("passed") != 1.0 || under.At("failed") != 1.0 || under.At("results.1.passed") != false || under.String("results.1.layer") != "ceiling" || under.String("results.1.reason") != "no_rule" ||
		!strings.Contains(string(under.Body), "outside_ceiling") {
		t.Errorf("%s", under.Body)
	}
	if alone := c.Do("POST", "/policies/test", object{"document": draft}).Want(200); alone.At("failed") != 0.0 || alone.At("other_policies.0") != nil {
		t.Errorf("%s", alone.Body)
	}
	if others := c.Do("POST", "/policies/test", object{"document": document()}).Want(200); others.String("other_policies.0.policy") != "web" {
		t.Errorf("%s", others.Body)
	}
	c.Do("GET", "/policies/new", nil).Refused(404, "policy_not_found")
	c.Do("POST", "/policies/test", object{"document": "rulez: []"}).Refused(422, "invalid_policy", "body.document.rulez")
	c.Do("POST", "/policies/test", object{"document": draft, "policy": "No"}).Refused(422, "invalid_request", "body.policy")
}

func TestLintTellsAndNeverBlocks(t *testing.T) {
	c := apitest.New(t).Org("one")
	c.Do("PUT", "/settings/egress", document(rule("a", "a.test"))).Want(200)
	lint := c.Do("POST", "/policies/lint", object{"document": document(rule("b", "b.test")), "policy": "web"}).Want(200)
	if lint.String("findings.0.code") != "outside_ceiling" || lint.String("findings.0.rule") != "b" || lint.String("findings.0.hint") == "" {
		t.Errorf("%s", lint.Body)
	}
	if lint := c.Do("POST", "/policies/lint", object{"document": document(rule("b", "b.test"))}).Want(200); lint.At("findings.0") != nil {
		t.Errorf("%s", lint.Body)
	}
	put := c.Do("PUT", "/policies/web", document(rule("b", "b.test"))).Want(200)
	if put.String("warnings.0.code") != "outside_ceiling" || put.At("rules.0.id") != "b" {
		t.Errorf("%s", put.Body)
	}
	secret(c, "key")
	c.Do("PUT", "/secrets/key/grants", grants(grant("g.test"))).Want(200)
	if lint := c.Do("POST", "/policies/lint", object{"document": document(rule("g", "g.test"))}).Want(200); lint.String("findings.0.code") != "pass_with_grant" {
		t.Errorf("%s", lint.Body)
	}
	c.Do("POST", "/policies/lint", object{"document": object{"rulez": []any{}}}).Refused(422, "invalid_policy", "body.document.rulez")

	presets := c.Do("GET", "/policies/presets", nil).Want(200)
	for i, name := range []string{"package-registries", "git-hosting", "ai-apis"} {
		if at := "presets." + string(rune('0'+i)); presets.String(at+".name") != name || presets.String(at+".rules.0.foreign_credentials") != "block" {
			t.Errorf("%s: %.300s", at, presets.Body)
		}
	}
	expanded := c.Do("PUT", "/policies/tools", "presets: [ai-apis] # models\nrules: []\n").Want(200)
	if !strings.Contains(string(expanded.Body), "api.openai.com") {
		t.Errorf("%.300s", expanded.Body)
	}
	if kept := c.Also("Accept", "application/yaml").Do("GET", "/policies/tools", nil).Want(200); string(kept.Body) != "presets: [ai-apis] # models\nrules: []\n" {
		t.Errorf("%s", kept.Body)
	}
	for _, name := range []string{"presets", "lint", "test"} {
		c.Do("PUT", "/policies/"+name, document()).Refused(422, "invalid_request", "path.name")
	}
}

func TestDiff(t *testing.T) {
	c := apitest.New(t).Org("one")
	for _, path := range []string{"/settings/egress", "/policies/web"} {
		fresh := c.Do("POST", path+"/diff", object{"document": document(rule("a", "a.test"))}).Want(200)
		if fresh.At("from") != 0.0 || fresh.At("same") != false || fresh.String("changes.rules.0.kind") != "added" {
			t.Errorf("%s", fresh.Body)
		}
		c.Do("PUT", path, document(rule("a", "a.test"), rule("b", "b.test"))).Want(200)
		c.Do("PUT", path, document(rule("a", "aa.test"), rule("c", "c.test"))).Want(200)
		versions := c.Do("POST", path+"/diff", object{"from": 1, "to": 2}).Want(200)
		if versions.String("changes.rules.0.id") != "a" || versions.String("changes.rules.0.fields.0") != "hosts" || versions.String("changes.rules.0.before.hosts.0") != "a.test" ||
			versions.String("changes.rules.1.kind") != "removed" || versions.String("changes.rules.2.kind") != "added" || versions.At("changes.rules.3") != nil {
			t.Errorf("%s", versions.Body)
		}
		if back := c.Do("POST", path+"/diff", object{"to": 1}).Want(200); back.At("from") != 2.0 || back.At("to") != 1.0 || back.String("changes.rules.1.id") != "c" {
			t.Errorf("%s", back.Body)
		}
		if same := c.Do("POST", path+"/diff", object{"document": "rules:\n  - {id: c, action: allow, hosts: [c.test]}\n  - {id: a, action: allow, hosts: [aa.test]}\n"}).Want(200); same.At("same") != true {
			t.Errorf("%s", same.Body)
		}
		c.Do("POST", path+"/diff", object{}).Refused(422, "invalid_request", "body")
		c.Do("POST", path+"/diff", object{"to": 1, "document": document()}).Refused(422, "invalid_request", "body.to")
		c.Do("POST", path+"/diff", object{"from": 9}).Refused(404, "version_not_found")
	}
}

// TestTestsKnowTheFloor: a test is run under the floor with the org's exemptions. What the platform changes of that stands in the way of no change that
// has nothing to do with it, and is told; a change that makes a test fail, or brings one that does, is refused.
func TestTestsKnowTheFloor(t *testing.T) {
	w, open := exempting(t)
	c, other := w.Org("one"), w.Org("two")
	shutAll := func() { open("org_0") }
	asks := func(name, addr, expect string) object {
		return object{"name": name, "address": addr, "port": 5432, "protocol": "postgres", "expect": expect}
	}
	net := ranges([]int{5432}, "10.1.0.0/17")
	db, shut := asks("the database", "10.1.0.1", "allow"), asks("its neighbour", "10.1.200.1", "deny")
	narrow := tested([]object{db, shut}, net)
	told := func(a *apitest.Answer, name string) {
		t.Helper()
		a.Want(200)
		if a.String("failed_tests.0.name") != name || a.String("failed_tests.0.layer") == "" || a.At("failed_tests.0.told_only") != true || a.At("failed_tests.1") != nil {
			t.Errorf("%s", a.Body)
		}
	}
	open(c.Org)
	c.Do("PUT", "/settings/egress", narrow).Want(200)
	refused := other.Do("PUT", "/settings/egress", narrow).Refused(422, "tests_failed", "body.tests[0]")
	if !strings.Contains(string(refused.Body), "the floor closes it (floor_soft)") {
		t.Errorf("%s", refused.Body)
	}
	box := c.Sandbox()
	wide := ranges([]int{5432}, "10.1.0.0/16")
	for _, path := range []string{"/settings/egress", "/policies/web", "/sandbox/" + box + "/egress"} {
		open(c.Org)
		c.Do("PUT", path, narrow).Want(200)

		shutAll() // the platform closes it: another change goes on, and is told
		told(c.Do("PUT", path, tested([]object{db, shut}, net, rule("a", "a.test"))), "the database")
		c.Do("PUT", path, tested([]object{db, shut, asks("another", "10.1.0.2", "allow")}, net)).Refused(422, "tests_failed", "body.tests[2]")
		c.Do("PUT", path, tested([]object{db, shut}, rule("a", "a.test"))).Refused(422, "tests_failed", "body.tests[0]") // it would fail if it were open again, too
		c.Do("PUT", path, tested([]object{db, shut, expects("b", "b.test", "allow")}, net)).Refused(422, "tests_failed", "body.tests[2]")

		// It passes only because the floor closes it; then the platform opens it.
		c.Do("PUT", path, tested([]object{shut}, wide)).Want(200)
		open(c.Org)
		told(c.Do("PUT", path, tested([]object{shut}, wide, rule("a", "a.test"))), "its neighbour")
		c.Do("PUT", path, narrow).Want(200)
		c.Do("PUT", path, tested([]object{db, shut}, wide)).Refused(422, "tests_failed", "body.tests[1]") // this opens it, not the platform
		c.Do("PUT", path, narrow).Want(200)
		if path == "/settings/egress" { // what stands below it has to do by itself
			c.Do("PUT", path, document(wide)).Want(200)
		}
	}
	shutAll()
	a := c.Do("POST", "/policies/test", object{"document": narrow, "policy": "web"}).Want(200)
	if a.At("failed") != 1.0 || a.At("refuses") != false || a.String("results.0.layer") != "floor" || a.String("results.0.reason") != "floor_soft" || a.At("results.0.told_only") != true || a.At("results.1.passed") != true {
		t.Errorf("%s", a.Body)
	}
	if a := c.Do("POST", "/policies/test", object{"document": narrow, "policy": "new"}).Want(200); a.At("refuses") != true || a.At("results.0.told_only") != nil {
		t.Errorf("%s", a.Body)
	}
}
