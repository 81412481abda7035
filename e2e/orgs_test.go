package e2e

import (
	"strings"
	"testing"

	"portreeve.dev/lab"
)

// TestOrgsDoNotMeet: to one org another's things are not there, by any route; what one allows is not allowed to the other.
func TestOrgsDoNotMeet(t *testing.T) {
	t.Parallel()
	l, p := own(t)
	ceiling(t, p, allow("good", "good.test"))
	ours := armed(t, p)
	if open, said := ours.hostile("tls", "good.test:443", "good.test", "good.test", "/"); !open {
		t.Fatal(said)
	}
	d := ours.decided("allows good.test", func(d decision) bool { return d.Host == "good.test" })

	theirs := otherOrg(t, p)
	if again, err := p.Call("", "POST", "/register", registration(p)); err != nil || again.Status < 400 || again.Status >= 500 {
		t.Errorf("the token is good for once: %v %v", again, err)
	}
	id := "/sandbox/" + ours.ID
	for _, route := range []string{
		"GET " + id, "GET " + id + "/status", "DELETE " + id, "POST " + id + "/stop", "POST " + id + "/pause", "POST " + id + "/resume",
		"POST " + id + "/extend", "POST " + id + "/execute", "GET " + id + "/files?path=/workspace/hostile", "POST " + id + "/files",
		"GET " + id + "/files/list?path=/workspace", "GET " + id + "/files/download?path=/workspace/hostile", "DELETE " + id + "/files?path=/workspace/hostile",
		"GET /settings/egress/audit?sandbox_id=" + ours.ID, "GET /decisions/" + d.ID,
	} {
		method, path, _ := strings.Cut(route, " ")
		var body any
		switch {
		case strings.HasSuffix(path, "/execute"):
			body = map[string]any{"command": []string{"true"}}
		case strings.HasSuffix(path, "/extend"):
			body = map[string]any{"additional_seconds": 60}
		case method == "POST" && strings.HasSuffix(path, "/files"):
			body = map[string]any{"files": []any{map[string]any{"path": "/workspace/x", "content": "eA=="}}}
		}
		if answer, err := theirs.API(method, path, body); err != nil || answer.Status != 404 {
			t.Errorf("another org's %s: %v %v", route, answer, err)
		}
	}
	for _, path := range []string{"/sandboxes", "/settings/egress/audit", "/audit"} {
		if answer, err := theirs.API("GET", path, nil); err != nil || answer.Status != 200 || strings.Contains(string(answer.Body), ours.ID) {
			t.Errorf("%s tells another org of our sandbox: %v %v", path, answer, err)
		}
	}
	if r := ours.exec("ls", "/workspace/hostile"); r.Code != 0 {
		t.Errorf("our sandbox, after their tries: %+v", r)
	}

	b := armed(t, theirs)
	if open, said := b.hostile("tls", "good.test:443", "good.test", "good.test", "/"); open {
		t.Errorf("what we allowed is allowed to them: %s", said)
	}
	b.decided("denies good.test to them", func(d decision) bool { return d.Host == "good.test" && d.Reason == "no_rule" })
	arrived := len(l.Web.Requests("good.test"))
	ceiling(t, theirs, allow("good", "good.test"))
	if open, said := b.hostile("tls", "good.test:443", "good.test", "good.test", "/"); !open || len(l.Web.Requests("good.test")) != arrived+1 {
		t.Errorf("what they allow themselves: %s", said)
	}
	ceiling(t, p)
	if open, said := b.hostile("tls", "good.test:443", "good.test", "good.test", "/"); !open {
		t.Errorf("what we forbid is forbidden to them: %s", said)
	}
	if open, said := ours.hostile("tls", "good.test:443", "good.test", "good.test", "/"); open {
		t.Errorf("what we forbid is open to us: %s", said)
	}
}

// otherOrg registers a second org, once for each product, and returns the product as it looks with that org's key.
func otherOrg(t *testing.T, p *lab.Product) *lab.Product {
	t.Helper()
	_, key := registered(t, p)
	theirs := *p
	theirs.Info.APIKey = key
	return &theirs
}

func registration(p *lab.Product) map[string]any {
	return map[string]any{"email": "b@example.com", "organization_name": "other", "setup_token": p.Info.SetupToken}
}

// registered registers another org with the token of the start screen, and returns its id and key.
func registered(t *testing.T, p *lab.Product) (org, key string) {
	t.Helper()
	var made struct {
		Organization struct {
			ID string `json:"id"`
		} `json:"organization"`
		APIKey struct {
			Key string `json:"key"`
		} `json:"api_key"`
	}
	answer, err := p.Call("", "POST", "/register", registration(p))
	if err != nil || answer.Status != 201 || answer.Into(&made) != nil {
		t.Fatalf("registering with the token of the start screen: %v %v", answer, err)
	}
	return made.Organization.ID, made.APIKey.Key
}
