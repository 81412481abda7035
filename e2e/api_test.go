package e2e

import (
	"strings"
	"testing"
)

func TestBadInputNamesTheField(t *testing.T) {
	_, p := shared(t)
	ceiling(t, p, allow("good", "good.test"))
	rule := func(r string) string { return `{"rules":[` + r + `]}` }
	b := sandbox(t, p)
	for _, c := range []struct {
		name, method, path string
		body               any
		statuses           string
		want               string
	}{
		{"an unknown field", "POST", "/sandbox/create", `{"templat":"tiny"}`, "400 422", "templat"},
		{"a wrong type", "POST", "/sandbox/create", `{"timeout_seconds":"long"}`, "400 422", "timeout_seconds"},
		{"no JSON", "POST", "/sandbox/create", `{`, "400", ""},
		{"a port that is none", "PUT", "/settings/egress", rule(`{"id":"a","action":"allow","hosts":["a.test"],"ports":[70000]}`), "400 422", "ports"},
		{"port 0", "PUT", "/settings/egress", rule(`{"id":"a","action":"allow","hosts":["a.test"],"ports":[0]}`), "400 422", "ports"},
		{"a public suffix", "PUT", "/settings/egress", rule(`{"id":"a","action":"allow","hosts":["*.co.uk"]}`), "400 422", "hosts"},
		{"an unknown key", "PUT", "/settings/egress", rule(`{"id":"a","action":"allow","hosts":["a.test"],"colour":"red"}`), "400 422", "colour"},
		{"an address as a host", "PUT", "/settings/egress", rule(`{"id":"a","action":"allow","hosts":["0x7f.1"]}`), "400 422", "hosts"},
		{"a path outside the sandbox", "GET", "/sandbox/" + b.ID + "/files?path=/etc/../../etc/shadow", nil, "400 403 404 422", ""},
		{"another org's id", "GET", "/sandbox/sbx_01890000-0000-7000-8000-000000000000", nil, "404", ""},
		{"no such route", "GET", "/frobnicate", nil, "404", ""},
		{"a policy that isn't there", "POST", "/sandbox/create", `{"template":"tiny","policy":"nowhere"}`, "400 404 409 422", "policy"},
	} {
		answer, err := p.API(c.method, c.path, c.body)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		fits := false
		for _, status := range strings.Fields(c.statuses) {
			fits = fits || strings.HasPrefix(answer.String(), status+" ")
		}
		if !fits || !strings.Contains(string(answer.Body), c.want) {
			t.Errorf("%s: %v, want %s and %q", c.name, answer, c.statuses, c.want)
		}
		if kind := answer.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/problem+json") {
			t.Errorf("%s: the answer is %s", c.name, kind)
		}
	}
	var now struct {
		Rules []struct {
			ID string `json:"id"`
		} `json:"rules"`
	}
	call(t, p, "GET", "/settings/egress", nil, 200, &now)
	if len(now.Rules) != 1 || now.Rules[0].ID != "good" {
		t.Errorf("refused documents changed the policy: %+v", now)
	}
}

func TestAPIWantsAKey(t *testing.T) {
	_, p := shared(t)
	for _, key := range []string{"", "wrong", p.Info.APIKey + "x"} {
		if answer, err := p.Call(key, "GET", "/sandboxes", nil); err != nil || answer.Status != 401 {
			t.Errorf("with the key %.4q…: %v %v", key, answer, err)
		}
	}
	if answer, err := p.API("GET", "/sandboxes", nil); err != nil || answer.Status != 200 {
		t.Errorf("with the right key: %v %v", answer, err)
	}
}
