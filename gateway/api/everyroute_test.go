package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/api/apitest"
)

// An operation is one route as the OpenAPI document tells of it.
type operation struct {
	method, path, scope string
	query, header       []string
	body                []string // names of the body's properties
}

var scopeOf = regexp.MustCompile(`Scope: (\w+)\.`)

// operations reads every route from the document, so that a new one can't be forgotten here.
func operations(t *testing.T, w *apitest.World) []operation {
	t.Helper()
	type schema struct {
		Ref        string         `json:"$ref"`
		Properties map[string]any `json:"properties"`
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Description string
			Parameters  []struct{ Name, In string }
			RequestBody struct {
				Content map[string]struct{ Schema schema }
			}
		}
		Components struct{ Schemas map[string]schema }
	}
	if err := json.Unmarshal(w.API.OpenAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	var all []operation
	for path, methods := range doc.Paths {
		for method, op := range methods {
			o := operation{method: strings.ToUpper(method), path: path}
			if m := scopeOf.FindStringSubmatch(op.Description); m != nil {
				o.scope = m[1]
			}
			for _, p := range op.Parameters {
				switch p.In {
				case "query":
					o.query = append(o.query, p.Name)
				case "header":
					o.header = append(o.header, p.Name)
				}
			}
			for _, c := range op.RequestBody.Content {
				s := c.Schema
				if s.Ref != "" {
					s = doc.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
				}
				for name := range s.Properties {
					o.body = append(o.body, name)
				}
			}
			if strings.HasPrefix(path, "/settings/egress") || strings.HasPrefix(path, "/policies/") || path == "/sandbox/{id}/egress" {
				o.body = append(o.body, "rules", "mode", "allowed_domains", "allowed_ports", "observe_until", "failure_mode", "tests", "presets")
			}
			all = append(all, o)
		}
	}
	if len(all) < 38 {
		t.Fatalf("only %d routes", len(all))
	}
	slices.SortFunc(all, func(a, b operation) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	return all
}

var pathParam = regexp.MustCompile(`\{(\w+)\}`)

func (o operation) at(value string) string {
	if strings.HasSuffix(o.path, "/stream") {
		return o.path + "?made_up=1" // or it would answer without end
	}
	return pathParam.ReplaceAllString(o.path, url.PathEscape(value))
}

func TestEveryRouteNeedsAKey(t *testing.T) {
	w := apitest.New(t)
	c := w.Installer("one")
	made := c.Do("POST", "/api-keys", object{"name": "x", "scopes": []string{"read", "write", "admin", "grants", "approve", "platform"}}).Want(201)
	c.Do("DELETE", "/api-keys/"+made.String("api_key.id"), nil).Want(200)
	base := strings.TrimSuffix(w.URL, "/v1")
	for _, o := range operations(t, w) {
		if o.path == "/register" {
			continue
		}
		for _, prefix := range []string{w.URL, base} {
			for name, key := range map[string]string{"no key": "", "a made-up key": "prk_x", "a key cut short": c.Key[:len(c.Key)-1], "a JWT": "eyJh.eyJz.x", "a revoked key": made.String("key")} {
				a := w.Send(o.method, prefix+o.at("x"), key, []byte(`{}`), nil)
				if a.Status != 401 {
					t.Errorf("%s %s with %s: %d", o.method, o.path, name, a.Status)
				}
			}
		}
		// The twin: with a good key it is something else.
		if a := c.Do(o.method, o.at("x"), nil); a.Status == 401 {
			t.Errorf("%s %s with a good key: 401", o.method, o.path)
		}
	}
	w.Send("GET", w.URL+"/sandboxes", "", nil, nil).Refused(401, "unauthorized")
	if a := w.Send("GET", w.URL+"/sandboxes", "", nil, nil); a.Header.Get("WWW-Authenticate") == "" {
		t.Error("401 without WWW-Authenticate")
	}
}

func TestEveryRouteNeedsItsScope(t *testing.T) {
	w := apitest.New(t)
	owner := w.Installer("one")
	all := []string{"read", "write", "admin", "grants", "approve", "platform"}
	clients := map[string]*apitest.Client{}
	for _, without := range all {
		clients[without] = owner.With(slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == without }))
	}
	for _, o := range operations(t, w) {
		if o.path == "/register" {
			continue
		}
		if o.scope == "" {
			t.Errorf("%s %s names no scope", o.method, o.path)
			continue
		}
		for without, c := range clients {
			// A body that fails: nothing is done, whether or not the scope is asked for.
			a := c.Do(o.method, o.at("x"), `{"made_up": 1}`)
			refused := a.Status == http.StatusForbidden && strings.Contains(string(a.Body), `"scope_missing"`)
			// huma looks at the body first; then the refusal is about the body, and no scope was needed for it.
			early := a.Status == 422 || a.Status == 400
			if without == o.scope && !refused && !early {
				t.Errorf("%s %s without %s: %d %s", o.method, o.path, without, a.Status, a.Body)
			}
			if without != o.scope && refused {
				t.Errorf("%s %s without %s: %d, though it wants %s", o.method, o.path, without, a.Status, o.scope)
			}
		}
	}
	// And with bodies that are right, one of each scope.
	clients["write"].Do("POST", "/sandbox/create", map[string]any{"template": "tiny"}).Refused(403, "scope_missing")
	clients["admin"].Do("PUT", "/settings/egress", map[string]any{"rules": []any{}}).Refused(403, "scope_missing")
	clients["admin"].Do("POST", "/api-keys", map[string]any{"name": "x"}).Refused(403, "scope_missing")
	clients["admin"].Do("PUT", "/settings", map[string]any{"default_policy": nil}).Refused(403, "scope_missing")
	clients["admin"].Do("POST", "/allow", map[string]any{"host": "api.test"}).Refused(403, "scope_missing")
	clients["read"].Do("POST", "/policies/check", map[string]any{"host": "api.test"}).Refused(403, "scope_missing")
	clients["read"].Do("POST", "/sandbox/create", map[string]any{"template": "tiny"}).Want(201)
}

func TestNoRefusalRepeatsAValue(t *testing.T) {
	w := apitest.New(t)
	c := w.Installer("one")
	box := c.Sandbox()
	const canary = "sk-live-zq8vn3pxw7rk2lmt5yhc" // lower case, so that no normal form hides it
	refused := 0
	see := func(what string, a *apitest.Answer) {
		t.Helper()
		if a.Status < 400 {
			return
		}
		refused++
		for name, values := range a.Header {
			if strings.Contains(strings.Join(values, " "), canary) {
				t.Errorf("%s: header %s repeats the value", what, name)
			}
		}
		if strings.Contains(string(a.Body), canary) {
			t.Errorf("%s: the answer repeats the value: %s", what, a.Body)
		}
	}
	shapes := map[string]any{
		"a string": canary, "a list": []any{canary}, "a list of objects": []any{map[string]any{"id": canary, "action": canary, "hosts": []any{canary}, "path": canary, "content": canary}},
		"an object": map[string]any{"name": canary, "NAME": canary + canary}, "a list of a list": []any{[]any{canary}}, "a number as text": "12345678901234567890" + canary,
		"a rule": []any{map[string]any{"id": "a", "action": "allow", "hosts": []any{canary + ".com/" + canary}, "ports": []any{canary}, "cidrs": []any{canary}, "expires_at": canary, "tls": canary, "methods": []any{canary}, "paths": []any{canary}, "message": []any{canary}}},
	}
	for _, o := range operations(t, w) {
		if strings.HasSuffix(o.path, "/stream") {
			continue // its parameters are tried below
		}
		at := o.at(box)
		if strings.HasPrefix(o.path, "/sandbox/{id}") && (strings.HasSuffix(o.path, "/stop") || o.method == "DELETE" && o.path == "/sandbox/{id}") {
			at = o.at(canary)
		}
		what := o.method + " " + o.path
		see(what+" with it in the path", c.Do(o.method, o.at(canary), nil))
		for name, raw := range map[string]string{
			"as the body": fmt.Sprintf("%q", canary), "as no JSON": canary, "in broken JSON": `{"a":"` + canary, "in a list": `["` + canary + `"]`,
			"after the JSON": `{} "` + canary + `"`, "as a number": `{"port": ` + strings.Repeat("7", 40) + `, "x": "` + canary + `"}`,
			"in an unknown field": `{"made_up":"` + canary + `"}`, "in YAML": "rules:\n  - id: " + canary + "\n    hosts: {" + canary + "\n",
		} {
			see(what+" with it "+name, c.Do(o.method, at, raw))
		}
		for _, field := range o.body {
			for name, v := range shapes {
				see(fmt.Sprintf("%s with %s in %s", what, name, field), c.Do(o.method, at, map[string]any{field: v}))
			}
		}
		for _, name := range o.query {
			see(what+" with it in query "+name, c.Do(o.method, at+"?"+name+"="+canary, nil))
		}
		see(what+" with it in an unknown query", c.Do(o.method, at+"?made_up="+canary, nil))
		for _, name := range append(o.header, "Authorization", "X-Org-Id", "Idempotency-Key", "X-Request-Id", "Accept", "Content-Type", "X-Portreeve-Setup-Token") {
			see(what+" with it in header "+name, w.Send(o.method, w.URL+at, "", []byte(`{}`), http.Header{name: {canary}, "X-Api-Key": {c.Key}}))
		}
	}
	for _, name := range []string{"sandbox_id", "made_up"} {
		see("following with it in "+name, c.Do("GET", "/decisions/stream?"+name+"="+canary, nil))
	}
	see("following after it", c.Also("Last-Event-ID", canary).Do("GET", "/decisions/stream", nil))
	if refused < 1000 {
		t.Errorf("only %d refusals were looked at", refused)
	}
	if strings.Contains(w.Log.String(), canary) {
		t.Error("the log repeats the value")
	}
}

// TestAnotherOrgsIDIsNotFound gives each route ids of another org, and the same ids with the key of their own as the twin.
func TestAnotherOrgsIDIsNotFound(t *testing.T) {
	w := apitest.New(t, func(c *api.Config) { c.Webhooks = noHooks{} })
	mine, other := w.Org("one"), w.Org("two")
	mine.Do("PUT", "/policies/web", map[string]any{"rules": []any{}}).Want(200)
	box := mine.Sandbox(map[string]any{"policy": "web"})
	key := mine.Do("POST", "/api-keys", map[string]any{"name": "x", "scopes": []string{"read"}}).Want(201).String("api_key.id")
	dec := record(t, w, mine.Org, box, "api.test")
	mine.Do("POST", "/sandbox/"+box+"/files/write", map[string]any{"path": "a", "content": ""}).Want(200)
	mine.Do("POST", "/secrets", map[string]any{"name": "key", "value": "x"}).Want(201)
	ask := asked(t, w, mine, box, "ask.test")
	hook := mine.Do("POST", "/webhooks", map[string]any{"url": "https://hook.test/"}).Want(201).String("id")
	tunnel := mine.Do("POST", "/sandbox/"+box+"/tunnels", map[string]any{"port": 80}).Want(201).String("id")

	for _, r := range []struct{ method, path, body string }{
		{"GET", "/sandbox/" + box, ""}, {"GET", "/sandbox/" + box + "/status", ""},
		{"POST", "/sandbox/" + box + "/extend", `{"additional_seconds":60}`},
		{"POST", "/sandbox/" + box + "/execute", `{"command":"true"}`},
		{"POST", "/sandbox/" + box + "/files", `{"files":[{"path":"a","content":""}]}`},
		{"POST", "/sandbox/" + box + "/files/write", `{"path":"a","content":""}`},
		{"POST", "/sandbox/" + box + "/files/read", `{"path":"a"}`},
		{"GET", "/sandbox/" + box + "/files?path=a", ""}, {"GET", "/sandbox/" + box + "/files/download?path=a", ""},
		{"GET", "/sandbox/" + box + "/files/list?path=.", ""}, {"DELETE", "/sandbox/" + box + "/files?path=a", ""},
		{"GET", "/settings/egress/audit?sandbox_id=" + box, ""}, {"GET", "/audit?sandbox_id=" + box, ""},
		{"GET", "/decisions/" + dec, ""}, {"GET", "/policies/web", ""},
		{"GET", "/policies/web/versions", ""}, {"GET", "/policies/web/versions/1", ""}, {"POST", "/policies/web/versions/1/restore", ""},
		{"PUT", "/sandbox/" + box + "/egress", `{"rules":[]}`}, {"GET", "/sandbox/" + box + "/egress", ""}, {"DELETE", "/sandbox/" + box + "/egress", ""},
		{"PUT", "/sandbox/" + box + "/policy", `{"policy":"web"}`},
		{"POST", "/policies/web/prune", ""}, {"POST", "/policies/web/diff", `{"from":1}`}, {"POST", "/policies/replay", `{"policy":"web","version":1}`},
		{"POST", "/policies/replay", `{"document":{"rules":[]},"sandbox":"` + box + `"}`}, {"POST", "/policies/learn", `{"policy":"web"}`}, {"POST", "/policies/learn", `{"sandbox":"` + box + `"}`},
		{"POST", "/policies/check", `{"host":"api.test","sandbox":"` + box + `"}`}, {"POST", "/policies/check", `{"host":"api.test","policy":"web"}`},
		{"POST", "/allow", `{"host":"api.test","dry_run":true,"sandbox":"` + box + `"}`}, {"POST", "/allow", `{"host":"api.test","dry_run":true,"policy":"web"}`},
		{"POST", "/sandbox/" + box + "/pause", ""}, {"POST", "/sandbox/" + box + "/resume", ""},
		{"POST", "/api-keys/" + key + "/rotate", ""},
		{"GET", "/secrets/key/grants", ""}, {"PUT", "/secrets/key/grants", `{"grants":[]}`}, {"PUT", "/secrets/key", `{"value":"y"}`},
		{"POST", "/sandbox/" + box + "/secrets/inject", `{"all":true}`}, {"DELETE", "/secrets/key", ""},
		{"POST", "/sandbox/" + box + "/tunnels", `{"port":80}`}, {"GET", "/sandbox/" + box + "/tunnels", ""}, {"DELETE", "/sandbox/" + box + "/tunnels/" + tunnel, ""},
		{"GET", "/requests?sandbox_id=" + box, ""}, {"GET", "/requests/" + ask, ""}, {"POST", "/requests/" + ask + "/approve", `{"dry_run":true}`}, {"POST", "/requests/" + ask + "/deny", `{}`},
		{"POST", "/webhooks/" + hook + "/test", ""}, {"DELETE", "/webhooks/" + hook, ""},
		{"POST", "/sandbox/" + box + "/stop", ""}, {"DELETE", "/sandbox/" + box, ""}, {"DELETE", "/policies/web", ""},
	} {
		var body any
		if r.body != "" {
			body = r.body
		}
		if a := other.Do(r.method, r.path, body); a.Status != 404 {
			t.Errorf("%s %s by another org: %d %s", r.method, r.path, a.Status, a.Body)
		}
		if a := mine.Do(r.method, r.path, body); a.Status >= 400 {
			t.Errorf("%s %s by its own org: %d %s", r.method, r.path, a.Status, a.Body)
		}
	}
	other.Do("GET", "/sandbox/"+box+"/shell", nil).Refused(404, "sandbox_not_found")
	other.Do("DELETE", "/api-keys/"+key, nil).Refused(404, "api_key_not_found")
	other.Do("GET", "/decisions/stream?sandbox_id="+box, nil).Refused(404, "sandbox_not_found")
	// A name is each org's own: the other's secret of the same name is another one.
	other.Do("POST", "/secrets", map[string]any{"name": "key", "value": "theirs"}).Want(201)
	mine.Do("POST", "/secrets", map[string]any{"name": "only-mine", "value": "x"}).Want(201)
	for _, list := range []string{"/sandboxes?all=true", "/settings/egress/audit", "/policies", "/audit", "/secrets", "/requests", "/webhooks"} {
		if body := strings.ReplaceAll(string(other.Do("GET", list, nil).Want(200).Body), "webhooks", ""); strings.Contains(body, box) || strings.Contains(body, "web") || strings.Contains(body, "only-mine") || strings.Contains(body, "hook.test") {
			t.Errorf("%s shows another org's: %s", list, body)
		}
	}
}
