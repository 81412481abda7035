package api_test

import (
	"slices"
	"testing"
	"time"

	"portreeve.dev/gateway/api/apitest"
	"portreeve.dev/gateway/audit"
)

// tokensOnly is a narrow ingress policy.
func tokensOnly(change ...func(object)) object {
	p := object{"modes": []string{"token"}, "ports": []string{"3000", "8000-8099"}, "max_expires_in": 300, "public_with_grants": false, "anonymous_wakes_per_minute": 0}
	for _, f := range change {
		f(p)
	}
	return p
}

func TestIngressPolicyIsKept(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	a := c.Do("GET", "/settings/ingress", nil).Want(200)
	if a.At("version") != 0.0 || a.String("modes.0") != "token" || a.String("modes.1") != "public" || a.String("ports.0") != "1-65535" || a.At("max_expires_in") != 86400.0 || a.At("public_with_grants") != false {
		t.Errorf("the default: %s", a.Body)
	}
	a = c.Do("PUT", "/settings/ingress", tokensOnly()).Want(200)
	if a.At("version") != 1.0 || a.String("ports.1") != "8000-8099" || w.Routes.Applied() == 0 {
		t.Errorf("%s", a.Body)
	}
	c.Also("If-Match", `"v0"`).Do("PUT", "/settings/ingress", tokensOnly()).Refused(412, "version_changed")
	c.Also("If-Match", a.Header.Get("ETag")).Do("PUT", "/settings/ingress", tokensOnly()).Want(200)
	if got := w.Org("two").Do("GET", "/settings/ingress", nil).Want(200); got.At("version") != 0.0 {
		t.Errorf("another org has %s", got.Body)
	}
	for field, change := range map[string]func(object){
		"body.modes[0]":                   func(p object) { p["modes"] = []string{"sso"} },
		"body.ports[0]":                   func(p object) { p["ports"] = []string{"0"} },
		"body.max_expires_in":             func(p object) { p["max_expires_in"] = 86401 },
		"body.anonymous_wakes_per_minute": func(p object) { p["anonymous_wakes_per_minute"] = -1 },
		"body.made_up":                    func(p object) { p["made_up"] = 1 },
	} {
		c.Do("PUT", "/settings/ingress", tokensOnly(change)).Refused(422, "invalid_request", field)
	}
	c.With([]string{"read", "write"}).Do("PUT", "/settings/ingress", tokensOnly()).Refused(403, "scope_missing")
}

func TestIngressPolicyDecidesOnTunnels(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	box := c.Sandbox()
	at := "/sandbox/" + box + "/tunnels"
	c.Do("PUT", "/settings/ingress", tokensOnly()).Want(200)
	for field, body := range map[string]object{
		"body.public":     {"port": 3000, "public": true},
		"body.port":       {"port": 3001},
		"body.expires_in": {"port": 3000, "expires_in": 301},
	} {
		c.Do("POST", at, body).Refused(403, "ingress_policy", field)
	}
	a := c.Do("POST", at, object{"port": 8099, "expires_in": 300}).Want(201)
	if got := c.Do("GET", at, nil).Want(200); got.String("tunnels.0.id") != a.String("id") || got.At("tunnels.1") != nil {
		t.Errorf("%s", got.Body)
	}
	a = c.Do("POST", at, object{"port": 3000}).Want(201) // the usual hour would be too long
	if d := when(t, a, "expires_at").Sub(when(t, a, "created_at")); d != 5*time.Minute {
		t.Errorf("lives for %v", d)
	}
	entries, err := w.Store.AuditChain(t.Context(), c.Org, 1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]int{}
	for _, e := range entries {
		if e.Action == audit.TunnelCreate && e.Outcome == audit.Failure {
			reasons[e.Details["reason"]]++
		}
	}
	i := slices.IndexFunc(entries, func(e audit.Entry) bool { return e.Action == audit.IngressUpdate })
	if i < 0 || entries[i].Details["modes"] != "[token]" || entries[i].Details["public_with_grants"] != "false" || entries[i].Details["ports"] != "[3000 8000-8099]" {
		t.Error("the audit log does not say what the policy became")
	}
	if len(reasons) != 3 || reasons["mode"] != 1 || reasons["port"] != 1 || reasons["lifetime"] != 1 {
		t.Errorf("refusals in the audit log: %v", reasons)
	}
}

// A new policy ends the tunnels that it refuses, shortens those that would live too long, and leaves the others.
func TestNewIngressPolicyHoldsForOldTunnels(t *testing.T) {
	w := apitest.New(t)
	c, other := w.Org("one"), w.Org("two")
	box := c.Sandbox()
	open := func(c *apitest.Client, box string, body object) string {
		t.Helper()
		return c.Do("POST", "/sandbox/"+box+"/tunnels", body).Want(201).String("id")
	}
	public := open(c, box, object{"port": 3000, "public": true})
	wrongPort := open(c, box, object{"port": 22})
	long := open(c, box, object{"port": 8000, "expires_in": 3000})
	fine := open(c, box, object{"port": 3000, "expires_in": 60})
	theirBox := other.Sandbox()
	open(other, theirBox, object{"port": 22, "public": true})
	live := func(c *apitest.Client, box string) map[string]time.Time {
		t.Helper()
		a := c.Do("GET", "/sandbox/"+box+"/tunnels", nil).Want(200)
		all := map[string]time.Time{}
		for i := range a.At("tunnels").([]any) {
			at := "tunnels." + string(rune('0'+i))
			all[a.String(at+".id")] = when(t, a, at+".expires_at")
		}
		return all
	}
	said := func(a *apitest.Answer) (ended, shortened []any) {
		ended, _ = a.At("ended").([]any)
		shortened, _ = a.At("shortened").([]any)
		return ended, shortened
	}
	before := live(c, box)
	ended, shortened := said(c.Do("PUT", "/settings/ingress", tokensOnly(func(p object) { p["dry_run"] = true })).Want(200))
	if len(ended) != 2 || len(shortened) != 1 || len(live(c, box)) != 4 || c.Do("GET", "/settings/ingress", nil).Want(200).At("version") != 0.0 {
		t.Errorf("a dry run says %v and %v, and leaves %v", ended, shortened, live(c, box))
	}
	ended, shortened = said(c.Do("PUT", "/settings/ingress", tokensOnly()).Want(200))
	if len(ended) != 2 || !slices.Contains(ended, any(public)) || !slices.Contains(ended, any(wrongPort)) || len(shortened) != 1 || shortened[0] != any(long) {
		t.Errorf("ended %v, shortened %v", ended, shortened)
	}
	after := live(c, box)
	if len(after) != 2 || !after[fine].Equal(before[fine]) || !after[long].Before(before[long]) || time.Until(after[long]) > 5*time.Minute {
		t.Errorf("before %v, after %v", before, after)
	}
	if n := len(live(other, theirBox)); n != 1 {
		t.Errorf("another org has %d tunnels, want its one", n)
	}
}

// A public tunnel and a grant come together where the org says so, and part when it no longer does.
func TestPublicWithGrantIsTheOrgsWord(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	box := c.Sandbox()
	c.Do("POST", "/secrets", object{"name": "key", "value": "s3cret-value-of-the-key"}).Want(201)
	c.Do("PUT", "/settings/egress", document(object{"id": "api", "action": "allow", "hosts": []string{"api.test"}, "tls": "inspect"})).Want(200)
	grants := object{"grants": []object{{"host": "api.test", "port": 443, "place": "header", "header": "Authorization", "template": "Bearer {value}"}}}
	c.Do("PUT", "/secrets/key/grants", grants).Want(200)
	at := "/sandbox/" + box + "/tunnels"
	c.Do("POST", at, object{"port": 3000, "public": true}).Refused(409, "public_with_grant", "body.public")
	both := object{"modes": []string{"token", "public"}, "ports": []string{"1-65535"}, "max_expires_in": 600, "public_with_grants": true, "anonymous_wakes_per_minute": 5}
	c.Do("PUT", "/settings/ingress", both).Want(200)
	public := c.Do("POST", at, object{"port": 3000, "public": true}).Want(201).String("id")
	private := c.Do("POST", at, object{"port": 3000}).Want(201).String("id")
	c.Do("PUT", "/secrets/key/grants", grants).Want(200) // to a sandbox with a public tunnel
	both["public_with_grants"] = false
	a := c.Do("PUT", "/settings/ingress", both).Want(200)
	if a.String("ended.0") != public || a.At("ended.1") != nil {
		t.Errorf("%s", a.Body)
	}
	if got := c.Do("GET", at, nil).Want(200); got.String("tunnels.0.id") != private || got.At("tunnels.1") != nil {
		t.Errorf("%s", got.Body)
	}
}
