package api_test

import (
	"strings"
	"testing"
	"time"

	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/api/apitest"
)

func TestKeys(t *testing.T) {
	now := time.Now()
	w := apitest.New(t, func(c *api.Config) { c.Now = func() time.Time { return now } })
	c := w.Org("one")
	made := c.Do("POST", "/api-keys", object{"name": "ci", "expires_in_days": 2}).Want(201)
	id, text := made.String("api_key.id"), made.String("key")
	if made.String("api_key.scopes.0") != "read" || made.String("api_key.scopes.1") != "write" || made.String("api_key.expires_at") == "" || !strings.HasPrefix(text, made.String("api_key.key_prefix")) {
		t.Errorf("%s", made.Body)
	}
	list := c.Do("GET", "/api-keys", nil).Want(200)
	if list.At("api_keys.1.id") != id || strings.Contains(string(list.Body), text) {
		t.Errorf("%s", list.Body)
	}
	with := func(key string) *apitest.Answer { return w.Send("GET", w.URL+"/sandboxes", key, nil, nil) }
	with(text).Want(200)
	if c.Do("GET", "/api-keys", nil).String("api_keys.1.last_used_at") == "" {
		t.Error("a use was not noted")
	}
	rotated := c.Do("POST", "/api-keys/"+id+"/rotate", nil).Want(201)
	with(text).Refused(401, "unauthorized")
	with(rotated.String("key")).Want(200)
	if rotated.String("api_key.expires_at") != made.String("api_key.expires_at") || rotated.String("api_key.name") != "ci" {
		t.Errorf("%s", rotated.Body)
	}
	c.Do("POST", "/api-keys/"+id+"/rotate", nil).Refused(404, "api_key_not_found")

	now = now.Add(47 * time.Hour)
	with(rotated.String("key")).Want(200)
	now = now.Add(2 * time.Hour)
	with(rotated.String("key")).Refused(401, "unauthorized")

	other := c.Do("POST", "/api-keys", object{"name": "x"}).Want(201)
	c.Do("DELETE", "/api-keys/"+other.String("api_key.id"), nil).Want(200)
	with(other.String("key")).Refused(401, "unauthorized")
	c.Do("DELETE", "/api-keys/"+other.String("api_key.id"), nil).Refused(404, "api_key_not_found")

	for body, location := range map[string]string{
		`{}`: "body", `{"name":""}`: "body.name", `{"name":"x","scopes":["root"]}`: "body.scopes[0]", `{"name":"x","expires_in_days":-1}`: "body.expires_in_days",
		`{"name":"x","policies":["No Name"]}`: "body.policies[0]", `{"name":"x","scope":["read"]}`: "body.scope", `{"name":1}`: "body.name",
	} {
		c.Do("POST", "/api-keys", body).Refused(422, "invalid_request", location)
	}
}

func TestKeyMakesNoStrongerKey(t *testing.T) {
	w := apitest.New(t)
	owner := w.Org("one")
	weak := owner.With([]string{"admin", "read"}, "web")
	weak.Do("POST", "/api-keys", object{"name": "x", "scopes": []string{"read"}, "policies": []string{"web"}}).Want(201)
	weak.Do("POST", "/api-keys", object{"name": "x"}).Refused(403, "stronger_key", "body.scopes[1]") // the default has write
	weak.Do("POST", "/api-keys", object{"name": "x", "scopes": []string{"grants"}}).Refused(403, "stronger_key", "body.scopes[0]")
	weak.Do("POST", "/api-keys", object{"name": "x", "scopes": []string{"read"}, "policies": []string{"web", "db"}}).Refused(403, "stronger_key", "body.policies[1]")
	weak.Do("POST", "/api-keys", object{"name": "x", "scopes": []string{"read"}, "policies": []string{"*"}}).Refused(403, "stronger_key", "body.policies[0]")
	// Nor does it get one by rotating the owner's.
	id := owner.Do("GET", "/api-keys", nil).String("api_keys.0.id")
	weak.Do("POST", "/api-keys/"+id+"/rotate", nil).Refused(403, "stronger_key")
	owner.Do("GET", "/sandboxes", nil).Want(200)
	owner.Do("POST", "/api-keys/"+id+"/rotate", nil).Want(201)
}

func TestOneTimeValueIsNotKept(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one").Also("Idempotency-Key", "k1")
	first := c.Do("POST", "/api-keys", object{"name": "x"}).Want(201)
	c.Do("POST", "/api-keys", object{"name": "x"}).Refused(409, "shown_once")
	if a := c.Do("GET", "/api-keys", nil); a.At("api_keys.2") != nil {
		t.Errorf("two keys were made: %s", a.Body)
	}
	if strings.Contains(w.Log.String(), first.String("key")) {
		t.Error("the key is in the log")
	}
	at := "/sandbox/" + c.Also("Idempotency-Key", "k0").Sandbox() + "/tunnels"
	tunnels := c.Also("Idempotency-Key", "t1")
	opened := tunnels.Do("POST", at, object{"port": 80}).Want(201)
	again := tunnels.Do("POST", at, object{"port": 80}).Refused(409, "shown_once")
	if token := opened.String("token"); token == "" || strings.Contains(string(again.Body), token) {
		t.Errorf("a token is kept: %s", again.Body)
	}
	if a := c.Do("GET", at, nil); a.At("tunnels.1") != nil {
		t.Errorf("two tunnels were opened: %s", a.Body)
	}
	hooks := c.Also("Idempotency-Key", "w1")
	hook := hooks.Do("POST", "/webhooks", object{"url": "https://hook.test/"}).Want(201)
	again = hooks.Do("POST", "/webhooks", object{"url": "https://hook.test/"}).Refused(409, "shown_once")
	if secret := hook.String("secret"); secret == "" || strings.Contains(string(again.Body), secret) {
		t.Errorf("a webhook's secret is kept: %s", again.Body)
	}
	// The twin without such a value is answered again.
	c = c.Also("Idempotency-Key", "k2")
	made := c.Do("POST", "/sandbox/create", object{"template": "tiny"}).Want(201)
	again = c.Do("POST", "/sandbox/create", object{"template": "tiny"}).Want(201)
	if string(again.Body) != string(made.Body) || again.Header.Get("Idempotent-Replayed") != "true" || made.Header.Get("Idempotent-Replayed") != "" || again.Header.Get("Content-Type") != "application/json" {
		t.Errorf("replayed: %s", again.Body)
	}
	c.Do("POST", "/sandbox/create", object{"template": "base"}).Refused(422, "idempotency_key_reused", "header.Idempotency-Key")
	// A refusal is not kept: nothing was done.
	c = c.Also("Idempotency-Key", "k3")
	c.Do("POST", "/sandbox/create", object{"template": "tiny", "cpus": "x"}).Refused(422, "invalid_request")
	c.Do("POST", "/sandbox/create", object{"template": "tiny"}).Want(201)
}

func TestKeyGivesOnlyItsPolicies(t *testing.T) {
	w := apitest.New(t)
	owner := w.Org("one")
	for _, name := range []string{"web", "db", "usual"} {
		owner.Do("PUT", "/policies/"+name, document()).Want(200)
	}
	owner.Do("PUT", "/settings", object{"default_policy": "usual"}).Want(200)
	c := owner.With([]string{"read", "write"}, "web")
	create := func(policy string) *apitest.Answer {
		return c.Do("POST", "/sandbox/create", object{"template": "tiny", "policy": policy})
	}
	create("db").Refused(403, "policy_not_given", "body.policy")
	create("nowhere").Refused(403, "policy_not_given", "body.policy")
	if a := create("web").Want(201); a.String("policy") != "web" || a.At("policy_version") != 1.0 {
		t.Errorf("%s", a.Body)
	}
	if a := create("").Want(201); a.String("policy") != "usual" {
		t.Errorf("%s", a.Body)
	}
	create("usual").Want(201)
	create("../x").Refused(422, "invalid_request", "body.policy")
	owner.Do("POST", "/sandbox/create", object{"template": "tiny", "policy": "nowhere"}).Refused(422, "invalid_request", "body.policy")
	owner.Do("POST", "/sandbox/create", object{"template": "tiny", "policy": "db"}).Want(201)
}
