package api_test

import (
	"strings"
	"testing"

	"portreeve.dev/gateway/api/apitest"
)

func inspected(id, host string) object {
	return object{"id": id, "action": "allow", "hosts": []string{host}, "tls": "inspect"}
}

// TestGrantedHostIsNeverPassed: where TLS is let through unopened, nobody could keep the sandbox's own credentials from a
// host that has a grant.
func TestGrantedHostIsNeverPassed(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	secret(c, "key")
	grantsOf := func() string { return string(c.Do("GET", "/secrets/key/grants", nil).Want(200).Body) }
	none := grantsOf()

	t.Run("a grant on a host that is passed", func(t *testing.T) {
		for _, r := range []struct {
			name   string
			change func()
			rule   string
		}{
			{"by the ceiling", func() { c.Do("PUT", "/settings/egress", document(rule("all-of-it", "api.corp.test"))).Want(200) }, `"all-of-it" of ceiling`},
			{"by a policy under it", func() {
				c.Do("PUT", "/settings/egress", document(rule("all-of-it", "*.corp.test"))).Want(200)
				c.Do("PUT", "/policies/web", document(rule("one", "api.corp.test"))).Want(200)
			}, `of `},
		} {
			t.Run(r.name, func(t *testing.T) {
				r.change()
				a := c.Do("PUT", "/secrets/key/grants", grants(grant("b.example.com"), grant("api.corp.test"))).Refused(422, "invalid_request", "body.grants[1].host")
				if !strings.Contains(strings.ReplaceAll(string(a.Body), `\"`, `"`), r.rule) {
					t.Errorf("the rule is not named: %s", a.Body)
				}
				if grantsOf() != none {
					t.Error("the grants were stored")
				}
			})
		}
		// The neighbours: another port is another place, and what no rule allows is not passed.
		c.Do("PUT", "/secrets/key/grants", grants(grant("api.corp.test", with("port", 8443)), grant("b.example.com"))).Want(200)
		c.Do("PUT", "/secrets/key/grants", grants()).Want(200)
		// Opened in one layer is opened.
		c.Do("PUT", "/policies/web", document(inspected("one", "api.corp.test"))).Want(200)
		c.Do("PUT", "/secrets/key/grants", grants(grant("api.corp.test"))).Refused(422, "invalid_request", "body.grants[0].host") // the ceiling alone, *.corp.test
		c.Do("PUT", "/settings/egress", document(inspected("all-of-it", "*.corp.test"))).Want(200)
		c.Do("PUT", "/secrets/key/grants", grants(grant("api.corp.test"))).Want(200)
	})

	t.Run("a policy that passes a host with a grant", func(t *testing.T) {
		before := c.Do("GET", "/settings/egress", nil).Want(200)
		a := c.Do("PUT", "/settings/egress", document(rule("lax", "*.corp.test"))).Refused(422, "granted_host", "body.rules")
		if !strings.Contains(string(a.Body), "lax") || !strings.Contains(string(a.Body), "api.corp.test") {
			t.Errorf("neither rule nor host is named: %s", a.Body)
		}
		if after := c.Do("GET", "/settings/egress", nil); string(after.Body) != string(before.Body) {
			t.Errorf("the document was stored: %s", after.Body)
		}
		c.Do("PUT", "/policies/web", document(rule("fine", "api.corp.test"))).Want(200) // the ceiling opens it
		c.Do("PUT", "/settings/egress", document(inspected("a", "api.corp.test"), rule("b", "other.corp.test"))).Want(200)
		c.Do("PUT", "/settings/egress", document()).Want(200)
		c.Do("PUT", "/policies/web", document(rule("fine", "api.corp.test"))).Want(200)            // nothing is allowed there
		c.Do("PUT", "/settings/egress", document(inspected("all-of-it", "*.corp.test"))).Want(200) // for the next
	})

	t.Run("POST /allow of a host with a grant", func(t *testing.T) {
		c.Do("PUT", "/settings/egress", document()).Want(200)
		c.Do("POST", "/allow", object{"host": "api.corp.test"}).Refused(422, "granted_host", "body.host")
		if a := c.Do("GET", "/settings/egress", nil); len(a.At("rules").([]any)) != 0 {
			t.Errorf("a rule was added: %s", a.Body)
		}
		c.Do("POST", "/allow", object{"host": "other.corp.test"}).Want(200)
	})

	t.Run("another org's grants and policies count for nothing", func(t *testing.T) {
		other := w.Org("two")
		other.Do("PUT", "/settings/egress", document(rule("lax", "*.corp.test"))).Want(200)
		c.Do("PUT", "/secrets/key/grants", grants(grant("api.corp.test"), grant("b.corp.test"))).Want(200)
	})
}
