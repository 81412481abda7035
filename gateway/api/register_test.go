package api_test

import (
	"net/http"
	"strings"
	"testing"

	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/api/apitest"
	"portreeve.dev/sso"
)

func TestSetupTokenRegistersOnce(t *testing.T) {
	w := apitest.New(t)
	body := []byte(`{"email":"a@example.com","organization_name":"Acme & Söhne"}`)
	try := func(token string) *apitest.Answer {
		return w.Send("POST", w.URL+"/register", "", body, http.Header{"X-Portreeve-Setup-Token": {token}})
	}
	try("").Refused(401, "unauthorized")
	try("setup-token-of-the-start-screeN").Refused(401, "unauthorized")
	try(apitest.SetupToken+"x").Refused(401, "unauthorized")
	a := try(apitest.SetupToken).Want(201)
	if !strings.HasPrefix(a.String("organization.id"), "org_") || a.String("organization.name") != "Acme & Söhne" || !strings.HasPrefix(a.String("organization.slug"), "acme-s-hne-") ||
		a.String("user.email") != "a@example.com" || a.String("user.role") != "owner" || !strings.HasPrefix(a.String("api_key.key"), "prk_") {
		t.Errorf("%s", a.Body)
	}
	try(apitest.SetupToken).Refused(401, "unauthorized")
	key := a.String("api_key.key")
	for name, header := range map[string]http.Header{
		"ApiKey": {"Authorization": {"ApiKey " + key}}, "Bearer": {"Authorization": {"Bearer " + key}}, "X-API-Key": {"X-Api-Key": {key}},
	} {
		if a := w.Send("GET", w.URL+"/sandboxes", "", nil, header); a.Status != 200 {
			t.Errorf("%s: %d", name, a.Status)
		}
	}
	w.Send("GET", w.URL+"/sandboxes", key, nil, http.Header{"X-Api-Key": {key}}).Refused(401, "unauthorized")
	// The older prefix gives the same.
	w.Send("GET", strings.TrimSuffix(w.URL, "/v1")+"/sandboxes", key, nil, nil).Want(200)
	w.Send("GET", strings.TrimSuffix(w.URL, "/api/v1")+"/sandboxes", key, nil, nil).Refused(404, "route_not_found")
}

func TestRegisterTakesTheTokenInTheBody(t *testing.T) {
	w := apitest.New(t)
	send := func(body string) *apitest.Answer {
		return w.Send("POST", w.URL+"/register", "", []byte(body), nil)
	}
	send(`{"email":"not an address","organization_name":"x","setup_token":"`+apitest.SetupToken+`"}`).Refused(422, "invalid_request", "body.email")
	send(`{"email":"a@example.com","organization_name":"","setup_token":"`+apitest.SetupToken+`"}`).Refused(422, "invalid_request", "body.organization_name")
	send(`{"email":"a@example.com","setup_token":"`+apitest.SetupToken+`"}`).Refused(422, "invalid_request", "body")
	send(`{"email":"a@example.com","organization_name":"x","setup_token":"` + apitest.SetupToken + `"}`).Want(201)
}

func TestWithoutASetupTokenNobodyRegisters(t *testing.T) {
	w := apitest.New(t, func(c *api.Config) { c.SetupToken = sso.Secret{} })
	for _, token := range []string{"", "x"} {
		w.Send("POST", w.URL+"/register", "", []byte(`{"email":"a@example.com","organization_name":"x","setup_token":"`+token+`"}`), nil).Refused(401, "unauthorized")
	}
}

func TestOrgHeaderMustBeTheKeysOrg(t *testing.T) {
	w := apitest.New(t)
	one, two := w.Org("one"), w.Org("two")
	one.Also("X-Org-Id", one.Org).Do("GET", "/sandboxes", nil).Want(200)
	one.Also("X-Org-Id", two.Org).Do("GET", "/sandboxes", nil).Refused(403, "org_mismatch", "header.X-Org-Id")
	one.Also("X-Org-Id", "").Do("GET", "/sandboxes", nil).Refused(403, "org_mismatch")
	w.Send("GET", w.URL+"/sandboxes", one.Key, nil, http.Header{"X-Org-Id": {one.Org, two.Org}}).Refused(403, "org_mismatch")
	one.Do("GET", "/sandboxes?org_id="+one.Org, nil).Want(200)
	one.Do("GET", "/sandboxes?org_id="+two.Org, nil).Refused(403, "org_mismatch")
	one.Do("POST", "/sandbox/create", object{"template": "tiny", "org_id": two.Org}).Refused(403, "org_mismatch")
	one.Do("POST", "/sandbox/create", object{"template": "tiny", "org_id": one.Org}).Want(201)
}

func TestHealth(t *testing.T) {
	w := apitest.New(t)
	url := strings.TrimSuffix(w.URL, "/api/v1") + "/health"
	if a := w.Send("GET", url, "", nil, nil).Want(200); a.String("status") != "healthy" || a.String("database") != "connected" {
		t.Errorf("%s", a.Body)
	}
	c := w.Org("one")
	w.Store.Close()
	if a := w.Send("GET", url, "", nil, nil).Want(503); a.String("status") != "unhealthy" {
		t.Errorf("%s", a.Body)
	}
	if a := c.Do("GET", "/sandboxes", nil); a.Status < 500 || strings.Contains(string(a.Body), "sql") {
		t.Errorf("with the store gone: %d %s", a.Status, a.Body)
	}
}

func TestRequestID(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	const sent = "0190c7a5-0000-7000-8000-000000000001"
	for given, want := range map[string]string{sent: sent, "": "req_", "mine": "req_", "req_0190c7a5-0000-7000-8000-000000000001": "req_", sent + "0": "req_"} {
		got := c.Also("X-Request-Id", given).Do("GET", "/sandbox/x", nil).Header.Get("X-Request-Id")
		if !strings.HasPrefix(got, want) || want == "req_" && got == given {
			t.Errorf("sent %q, got %q", given, got)
		}
	}
	c.Also("X-Request-Id", sent).Do("PUT", "/settings/egress", document()).Want(200)
	if a := c.Do("GET", "/audit?action=egress.update", nil); a.String("events.0.request_id") != sent || a.String("events.0.address") != "127.0.0.1" {
		t.Errorf("%s", a.Body)
	}
}

func TestMethodsAndRoutesThatAreNot(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	a := c.Do("PATCH", "/policies/web", nil).Refused(405, "method_not_allowed")
	if !strings.Contains(a.Header.Get("Allow"), "PUT") {
		t.Errorf("Allow: %q", a.Header.Get("Allow"))
	}
	c.Do("GET", "/sandboxes/", nil).Refused(404, "route_not_found")
	c.Do("POST", "/artifacts", object{}).Refused(404, "route_not_found") // not yet
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"} {
		if got := c.Do("GET", "/sandboxes", nil).Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestBodyOverItsLimitIsRefused(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	box := c.Sandbox()
	big := `{"rules":[],"x":"` + strings.Repeat("a", 5<<20) + `"}`
	for _, r := range []struct{ method, path string }{{"PUT", "/settings/egress"}, {"PUT", "/policies/web"}, {"POST", "/sandbox/create"}, {"POST", "/allow"}, {"POST", "/sandbox/" + box + "/execute"}} {
		c.Do(r.method, r.path, big).Refused(413, "body_too_large", "body")
	}
	c.Do("POST", "/sandbox/"+box+"/files/write", `{"path":"a","content":"`+strings.Repeat("A", 33<<20)+`"}`).Refused(413, "body_too_large", "body")
	c.Do("POST", "/sandbox/"+box+"/files/write", `{"path":"a","content":"`+strings.Repeat("A", 8<<20)+`"}`).Want(200)
	c.Do("PUT", "/settings/egress", `{"rules":[]}`+strings.Repeat(" ", 1<<20)).Want(200)
	c.Do("GET", "/policies/web", nil).Refused(404, "policy_not_found")
}
