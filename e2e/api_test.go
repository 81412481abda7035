package e2e

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"portreeve.dev/lab"
)

// TestBadInputNamesTheField: a problem answer that names what is wrong, and nothing changed.
func TestBadInputNamesTheField(t *testing.T) {
	_, p := shared(t)
	ceiling(t, p, allow("good", "good.test"))
	b := sandbox(t, p)
	box := "/sandbox/" + b.ID
	rule := func(r string) string { return `{"rules":[` + r + `]}` }
	before := sandboxes(t, p)
	for _, c := range []struct {
		name, method, path string
		body               any
		status             int
		want               string
	}{
		{"an unknown field", "POST", "/sandbox/create", `{"templat":"tiny"}`, 422, "templat"},
		{"a wrong type", "POST", "/sandbox/create", `{"timeout_seconds":"long"}`, 422, "timeout_seconds"},
		{"no JSON", "POST", "/sandbox/create", `{`, 400, ""},
		{"two bodies", "POST", "/sandbox/create", `{"template":"tiny"}{}`, 400, ""},
		{"memory that is none", "POST", "/sandbox/create", `{"template":"tiny","memory":"much"}`, 422, "memory"},
		{"more memory than there may be", "POST", "/sandbox/create", `{"template":"tiny","memory":"900Gi"}`, 422, "memory"},
		{"a policy that isn't there", "POST", "/sandbox/create", `{"template":"tiny","policy":"nowhere"}`, 422, "policy"},
		{"an own list with a wrong rule", "POST", "/sandbox/create", `{"template":"tiny","egress":{"rules":[{"id":"a","action":"allow","hosts":["a b"]}]}}`, 422, "hosts"},
		{"a port that is none", "PUT", "/settings/egress", rule(`{"id":"a","action":"allow","hosts":["a.test"],"ports":[70000]}`), 422, "ports"},
		{"port 0", "PUT", "/settings/egress", rule(`{"id":"a","action":"allow","hosts":["a.test"],"ports":[0]}`), 422, "ports"},
		{"a public suffix", "PUT", "/settings/egress", rule(`{"id":"a","action":"allow","hosts":["*.co.uk"]}`), 422, "hosts"},
		{"an unknown key", "PUT", "/settings/egress", rule(`{"id":"a","action":"allow","hosts":["a.test"],"colour":"red"}`), 422, "colour"},
		{"an address as a host", "PUT", "/settings/egress", rule(`{"id":"a","action":"allow","hosts":["0x7f.1"]}`), 422, "hosts"},
		{"two rules with one id", "PUT", "/settings/egress", rule(`{"id":"a","action":"allow","hosts":["a.test"]},{"id":"a","action":"deny","hosts":["b.test"]}`), 422, "id"},
		{"paths on a host that is passed", "PUT", "/settings/egress", rule(`{"id":"a","action":"allow","hosts":["a.test"],"paths":["/x"]}`), 422, "paths"},
		{"a policy without a rule list", "PUT", "/policies/web", `{}`, 422, "rules"},
		{"a policy named like the ceiling", "PUT", "/policies/ceiling", rule(""), 422, "name"},
		{"a command that doesn't exist", "POST", box + "/execute", `{"command":["no-such-program"]}`, 422, "command"},
		{"no command", "POST", box + "/execute", `{}`, 422, "command"},
		{"a folder that isn't there", "POST", box + "/execute", `{"command":["true"],"working_dir":"/nowhere"}`, 422, "working_dir"},
		{"a path outside the sandbox", "GET", box + "/files?path=/etc/../../etc/shadow", nil, 422, "path"},
		{"a path outside the workspace", "POST", box + "/files", `{"files":[{"path":"/etc/x","content":"eA=="}]}`, 422, "path"},
		{"a file that isn't there", "GET", box + "/files?path=/workspace/nowhere", nil, 404, ""},
		{"a body over its limit", "POST", box + "/execute", `{"command":["true"],"stdin":"` + strings.Repeat("x", 40<<20) + `"}`, 413, ""},
		{"a policy over its limit", "PUT", "/settings/egress", `{"rules":[],"x":"` + strings.Repeat("x", 8<<20) + `"}`, 413, ""},
		{"another org's id", "GET", "/sandbox/sbx_01890000-0000-7000-8000-000000000000", nil, 404, ""},
		{"no id at all", "GET", "/sandbox/..%2f..%2fetc", nil, 404, ""},
		{"no such route", "GET", "/frobnicate", nil, 404, ""},
		{"a method that a route doesn't have", "PATCH", "/sandboxes", nil, 405, ""},
		{"a verdict that is none", "GET", "/settings/egress/audit?verdict=maybe", nil, 422, "verdict"},
		{"a cursor of somebody's own making", "GET", "/settings/egress/audit?cursor=AAAA", nil, 422, "cursor"},
	} {
		answer, err := p.API(c.method, c.path, c.body)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var problem struct {
			Status int    `json:"status"`
			Title  string `json:"title"`
			Code   string `json:"code"`
			Detail string `json:"detail"`
		}
		if answer.Status != c.status || !strings.Contains(string(answer.Body), c.want) {
			t.Errorf("%s: %d %.600s, want %d and %q", c.name, answer.Status, answer.Body, c.status, c.want)
		}
		if kind := answer.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/problem+json") {
			t.Errorf("%s: the answer is %s", c.name, kind)
		}
		if err := json.Unmarshal(answer.Body, &problem); err != nil || problem.Status != answer.Status || problem.Code == "" || problem.Title == "" {
			t.Errorf("%s: %v: the problem is %+v", c.name, err, problem)
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
	if after := sandboxes(t, p); after != before {
		t.Errorf("refused creates changed the list from %s to %s", before, after)
	}
}

func sandboxes(t *testing.T, p *lab.Product) string {
	t.Helper()
	var list struct {
		Sandboxes []view `json:"sandboxes"`
	}
	call(t, p, "GET", "/sandboxes", nil, 200, &list)
	var ids []string
	for _, v := range list.Sandboxes {
		ids = append(ids, v.ID+" "+v.Status)
	}
	return strings.Join(ids, ", ")
}

func TestAPIWantsAKey(t *testing.T) {
	_, p := shared(t)
	for _, key := range []string{"", "wrong", p.Info.APIKey + "x", p.Info.APIKey[:len(p.Info.APIKey)-1]} {
		if answer, err := p.Call(key, "GET", "/sandboxes", nil); err != nil || answer.Status != 401 {
			t.Errorf("with the key %.4q…: %v %v", key, answer, err)
		}
	}
	if answer, err := p.API("GET", "/sandboxes", nil); err != nil || answer.Status != 200 {
		t.Errorf("with the right key: %v %v", answer, err)
	}
}

// TestBlackBoxImportsNothingOfOurs: a test that shares code with what it judges shares its mistakes.
func TestBlackBoxImportsNothingOfOurs(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-test", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(string(out)) {
		name = strings.TrimSuffix(name, "_test")
		if rest, ours := strings.CutPrefix(name, "portreeve.dev/"); ours && rest != "lab" && rest != "e2e" && rest != "e2e.test" && !strings.HasPrefix(rest, "e2e/") {
			t.Errorf("the tests import %s", name)
		}
	}
}
