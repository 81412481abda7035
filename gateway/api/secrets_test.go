package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"portreeve.dev/gateway/api/apitest"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/secrets/seal"
)

// value is a credential that must come back from nowhere.
const value = "sk-live-9f3kq7vd2mxz8w1t"

// grant is right; change may spoil it.
func grant(host string, change ...func(object)) object {
	g := object{"host": host, "place": "header", "header": "Authorization", "template": "Bearer {value}"}
	for _, f := range change {
		f(g)
	}
	return g
}

func with(field string, v any) func(object) { return func(o object) { o[field] = v } }

func grants(all ...object) object {
	if all == nil {
		all = []object{}
	}
	return object{"grants": all}
}

// secret keeps one with the value.
func secret(c *apitest.Client, name string) {
	c.Do("POST", "/secrets", object{"name": name, "value": value}).Want(201)
}

// sealed opens what the store has of a secret.
func sealed(t *testing.T, w *apitest.World, org, name string) string {
	t.Helper()
	s, err := w.Store.Secret(t.Context(), org, name)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(s.Sealed), value) {
		t.Error("the value is in the store as it is")
	}
	open, err := w.Keyring.Open(seal.Record{Kind: "secret", Org: org, Name: s.ID, Version: s.Version}, s.Sealed)
	if err != nil {
		t.Fatal(err)
	}
	return string(open)
}

func TestSecretLife(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	made := c.Do("POST", "/secrets", object{"name": "openai", "value": value}).Want(201)
	if !strings.HasPrefix(made.String("secret.id"), "sec_") || made.String("secret.name") != "openai" || made.String("secret.scope") != "sandbox" || made.At("secret.version") != 1.0 || len(made.At("secret.grants").([]any)) != 0 {
		t.Errorf("%s", made.Body)
	}
	if got := sealed(t, w, c.Org, "openai"); got != value {
		t.Errorf("stored %q", got)
	}
	c.Do("POST", "/secrets", object{"name": "openai", "value": "another"}).Refused(409, "secret_exists")
	if got := sealed(t, w, c.Org, "openai"); got != value {
		t.Errorf("a refused create stored %q", got)
	}
	put := c.Do("PUT", "/secrets/openai", object{"value": "second"}).Want(200)
	if put.At("secret.version") != 2.0 || put.String("secret.id") != made.String("secret.id") || sealed(t, w, c.Org, "openai") != "second" {
		t.Errorf("%s", put.Body)
	}
	set := c.Do("PUT", "/secrets/openai/grants", grants(grant("api.test", with("port", 443), with("methods", []string{"GET"}), with("path", "/v1/**")), grant("B.test"))).Want(200)
	if set.String("secret.grants.0.host") != "api.test" || set.String("secret.grants.1.host") != "b.test" || set.At("secret.grants.1.port") != 443.0 || set.String("secret.grants.1.path") != "/**" || set.At("secret.version") != 2.0 {
		t.Errorf("%s", set.Body)
	}
	if got := c.Do("GET", "/secrets/openai/grants", nil).Want(200); string(got.Body) != string(set.Body) {
		t.Errorf("set %s, got %s", set.Body, got.Body)
	}
	// What was read can be sent back.
	c.Do("PUT", "/secrets/openai/grants", object{"grants": set.At("secret.grants")}).Want(200)
	if got := c.Do("GET", "/secrets", nil).Want(200); got.String("secrets.0.name") != "openai" || got.At("secrets.1") != nil {
		t.Errorf("%s", got.Body)
	}
	before := w.Feed.Published()
	if got := c.Do("DELETE", "/secrets/openai", nil).Want(200); got.At("success") != true {
		t.Errorf("%s", got.Body)
	}
	if after := w.Feed.Published(); len(after) != len(before)+1 || after[len(after)-1] <= before[len(before)-1] {
		t.Errorf("published %v, then %v: the edges must learn of a deletion", before, after)
	}
	for method, body := range map[string]any{"PUT": object{"value": "x"}, "DELETE": nil} {
		c.Do(method, "/secrets/openai", body).Refused(404, "secret_not_found")
	}
	c.Do("GET", "/secrets/openai/grants", nil).Refused(404, "secret_not_found")
	c.Do("PUT", "/secrets/openai/grants", grants()).Refused(404, "secret_not_found")
	var actions []string
	var log struct {
		Events []struct{ Action, Resource string }
	}
	c.Do("GET", "/audit", nil).Want(200).JSON(&log)
	for _, e := range log.Events {
		if e.Resource == made.String("secret.id") {
			actions = append(actions, e.Action)
		}
	}
	if got := strings.Join(actions, " "); got != "secret.delete secret.grant secret.grant secret.update secret.create" {
		t.Errorf("audit log: %s", got)
	}
}

// TestNoAnswerHoldsAValue stores a value and then looks at every answer of every route, refusals and the log included.
func TestNoAnswerHoldsAValue(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	look := func(a *apitest.Answer) *apitest.Answer {
		t.Helper()
		if strings.Contains(string(a.Body), value) || strings.Contains(fmt.Sprint(a.Header), value) {
			t.Errorf("the value is in the answer: %s", a.Body)
		}
		return a
	}
	look(c.Do("POST", "/secrets", object{"name": "key", "value": value})).Want(201)
	sealed(t, w, c.Org, "key")
	look(c.Do("POST", "/secrets", object{"name": "key", "value": value})).Want(409)
	look(c.Do("PUT", "/secrets/key", object{"value": value})).Want(200)
	look(c.Do("PUT", "/secrets/key/grants", grants(grant("api.test")))).Want(200)
	box := c.Sandbox()
	for _, o := range operations(t, w) {
		if strings.HasSuffix(o.path, "/stream") || o.path == "/register" || o.method == "DELETE" || strings.HasSuffix(o.path, "/stop") || strings.HasSuffix(o.path, "/shell") {
			continue
		}
		path := strings.NewReplacer("{name}", "key", "{id}", box).Replace(o.path)
		var body any
		if o.method != "GET" {
			body = `{}`
		}
		look(c.Do(o.method, path, body))
	}
	look(c.Do("POST", "/sandbox/"+box+"/secrets/inject", object{"all": true, "as_env_vars": true})).Want(200)
	// Where it does not belong, it is not told either.
	for _, body := range []object{
		{"name": value + " ", "value": "x"}, {"name": "two", "value": value + "\n"}, {"name": "two", "value": []string{value}}, {"name": "two", "value": value, "scope": value},
		{"name": "two", "value": value + strings.Repeat("x", 8<<10)}, {"name": "two"},
	} {
		if a := look(c.Do("POST", "/secrets", body)); a.Status != 422 {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	for field, wrong := range map[string]any{
		"host": value + " " + value, "port": value, "methods": []string{value}, "path": value, "place": value, "header": value + ":", "template": value, "policies": value,
	} {
		if a := look(c.Do("PUT", "/secrets/key/grants", grants(grant("api.test", with(field, wrong))))); a.Status != 422 {
			t.Errorf("%s: %d %s", field, a.Status, a.Body)
		}
	}
	look(c.Do("DELETE", "/secrets/"+value, nil)).Want(404)
	look(c.Do("DELETE", "/secrets/key", nil)).Want(200)
	if strings.Contains(w.Log.String(), value) {
		t.Error("the value is in the log")
	}
	entries, err := w.Store.AuditChain(t.Context(), c.Org, 1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := json.Marshal(entries); strings.Contains(string(text), value) {
		t.Error("the value is in the audit log")
	}
}

func TestSecretsAreRefusedByField(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	for body, location := range map[string]string{
		`{"value":"x"}`: "body", `{"name":"a"}`: "body", `{"name":"","value":"x"}`: "body.name", `{"name":"1a","value":"x"}`: "body.name", `{"name":"a/b","value":"x"}`: "body.name",
		`{"name":"` + strings.Repeat("a", 65) + `","value":"x"}`: "body.name", `{"name":"a","value":""}`: "body.value", `{"name":"a","value":"x\n"}`: "body.value",
		`{"name":"a","value":" x"}`: "body.value", `{"name":"a","value":"é"}`: "body.value", `{"name":"a","value":"` + strings.Repeat("x", 8<<10+1) + `"}`: "body.value",
		`{"name":"a","value":1}`: "body.value", `{"name":"a","value":"x","scope":"org"}`: "body.scope", `{"name":"a","value":"x","made_up":1}`: "body.made_up",
	} {
		a := c.Do("POST", "/secrets", body)
		if a.Refused(422, "invalid_request"); location != "body" {
			a.Refused(422, "invalid_request", location)
		}
	}
	for _, good := range []string{"x", strings.Repeat("x", 8<<10), "with spaces\tand tabs"} {
		c.Do("POST", "/secrets", object{"name": fmt.Sprint("ok", len(good)), "value": good}).Want(201)
	}
	secret(c, "key")
	for _, wrong := range []string{"", "x\r\n", "\x00"} {
		c.Do("PUT", "/secrets/key", object{"value": wrong}).Refused(422, "invalid_request", "body.value")
	}
	if got := sealed(t, w, c.Org, "key"); got != value {
		t.Errorf("a refused value changed it to %q", got)
	}
	before := c.Do("GET", "/secrets/key/grants", nil)
	for name, r := range map[string]struct {
		change   func(object)
		location string
	}{
		"no host":               {with("host", ""), "host"},
		"a wildcard":            {with("host", "*.api.test"), "host"},
		"an address":            {with("host", "192.0.2.1"), "host"},
		"a host with a port":    {with("host", "api.test:443"), "host"},
		"port 0":                {with("port", 0), "port"},
		"port 65536":            {with("port", 65536), "port"},
		"a negative port":       {with("port", -1), "port"},
		"TRACE":                 {with("methods", []string{"GET", "TRACE"}), "methods[1]"},
		"CONNECT":               {with("methods", []string{"CONNECT"}), "methods[0]"},
		"a lower-case method":   {with("methods", []string{"get"}), "methods[0]"},
		"a relative path":       {with("path", "v1"), "path"},
		"a place of its own":    {with("place", "body"), "place"},
		"a header of framing":   {with("header", "Content-Length"), "header"},
		"a header with a space": {with("header", "X Key"), "header"},
		"no {value}":            {with("template", "Bearer"), "template"},
		"{value} twice":         {with("template", "{value}{value}"), "template"},
		"a line end":            {with("template", "{value}\r\nX: y"), "template"},
		"an unknown field":      {with("made_up", 1), "made_up"},
	} {
		t.Run(name, func(t *testing.T) {
			c.Do("PUT", "/secrets/key/grants", grants(grant("b.test"), grant("api.test", r.change))).Refused(422, "invalid_request", "body.grants[1]."+r.location)
		})
	}
	many := make([]object, 101)
	for i := range many {
		many[i] = grant("api.test")
	}
	c.Do("PUT", "/secrets/key/grants", grants(many...)).Refused(422, "invalid_request", "body.grants")
	if after := c.Do("GET", "/secrets/key/grants", nil); string(after.Body) != string(before.Body) {
		t.Errorf("refused grants changed it: %s", after.Body)
	}
	c.Do("PUT", "/secrets/key/grants", grants(many[:100]...)).Want(200)
}

// TestValueStaysWithItsSecret has a value written while the secret is deleted and made anew: what is sealed for one is never
// another's.
func TestValueStaysWithItsSecret(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	secret(c, "key")
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 6 {
				if a := c.Do("PUT", "/secrets/key", object{"value": "put"}); a.Status != 200 && a.Status != 404 {
					t.Errorf("%d %s", a.Status, a.Body)
				}
			}
		})
	}
	wait.Go(func() {
		for range 6 {
			c.Do("DELETE", "/secrets/key", nil).Want(200)
			c.Do("POST", "/secrets", object{"name": "key", "value": "made"}).Want(201)
		}
	})
	wait.Wait()
	if got := sealed(t, w, c.Org, "key"); got != "put" && got != "made" {
		t.Errorf("%q", got)
	}
}

func TestInjectSetsNothing(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	box := c.Sandbox()
	secret(c, "key")
	for _, body := range []object{{"secrets": []string{"key"}}, {"all": true}, {"all": true, "as_env_vars": true}, {}} {
		if a := c.Do("POST", "/sandbox/"+box+"/secrets/inject", body).Want(200); string(a.Body) != "{\"injected\":[]}\n" {
			t.Errorf("%s", a.Body)
		}
	}
	c.Do("POST", "/sandbox/"+box+"/secrets/inject", object{"secrets": []string{"key", "nowhere"}}).Refused(422, "invalid_request", "body.secrets[1]")
	c.Do("POST", "/sandbox/sbx_nowhere/secrets/inject", object{"all": true}).Refused(404, "sandbox_not_found")
}

func TestUnavailableSecretIsShown(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	secret(c, "good")
	secret(c, "bad")
	_, err := w.Store.Change(t.Context(), principal(c), func(tx *store.Tx) error {
		if err := tx.SetSecretValue(t.Context(), "bad", 2, []byte("damaged")); err != nil {
			return err
		}
		return tx.Record(t.Context(), audit.SecretUpdate, "bad", nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	list := c.Do("GET", "/secrets", nil).Want(200)
	if list.String("secrets.0.name") != "bad" || list.String("secrets.0.state") != "unavailable" || list.String("secrets.1.state") != "ready" {
		t.Errorf("%s", list.Body)
	}
	if one := c.Do("GET", "/secrets/bad/grants", nil).Want(200); one.String("secret.state") != "unavailable" {
		t.Errorf("%s", one.Body)
	}
	if mended := c.Do("PUT", "/secrets/bad", object{"value": "new"}).Want(200); mended.String("secret.state") != "ready" {
		t.Errorf("%s", mended.Body)
	}
}

func TestSecretsOfAnOrgAreBounded(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	_, err := w.Store.Change(t.Context(), principal(c), func(tx *store.Tx) error {
		for range store.SecretCount - 1 {
			id := store.NewID("sec")
			if _, err := tx.CreateSecret(t.Context(), store.Secret{ID: id, Name: id, Scope: "sandbox", Sealed: []byte("x")}); err != nil {
				return err
			}
		}
		return tx.Record(t.Context(), audit.SecretCreate, "many", nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	secret(c, "last")
	if a := c.Do("POST", "/secrets", object{"name": "over", "value": "x"}).Refused(409, "limit_reached", "body"); !strings.Contains(a.String("detail"), "500") {
		t.Errorf("%s", a.Body)
	}
	c.Do("DELETE", "/secrets/last", nil).Want(200)
	secret(c, "over")
}
