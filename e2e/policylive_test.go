package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// cli runs a command and wants its exit status.
func cli(t *testing.T, p *lab.Product, status int, stdin string, args ...string) lab.Run {
	t.Helper()
	r := p.CLIWith(stdin, args...)
	if r.Code != status {
		t.Fatalf("portreeve %s: %v, want status %d", strings.Join(args, " "), r, status)
	}
	return r
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOwnListIsLive: a sandbox's own list is changed while it runs, holds at once, over a pause, and for no other sandbox.
func TestOwnListIsLive(t *testing.T) {
	_, p := shared(t)
	const api = "tls api.test:443 api.test api.test /"
	ceiling(t, p, allow("good", "good.test"), allow("api", "api.test"), allow("echo", "tcp.test", "ports", []int{7}, "protocols", []string{"tcp"}))
	b, neighbour := armed(t, p), armed(t, p)
	reached := func(when string, wantGood, wantAPI bool) {
		t.Helper()
		if got := b.reaches(good); got != wantGood {
			t.Errorf("%s: good.test reached = %v, want %v", when, got, wantGood)
		}
		if got := b.reaches(api); got != wantAPI {
			t.Errorf("%s: api.test reached = %v, want %v", when, got, wantAPI)
		}
	}
	reached("without a list", true, true)
	b.background("/workspace/hostile hold tcp.test:7")
	b.decided("allows the flow", func(d decision) bool { return d.Host == "tcp.test" && d.Layer == "connect" && d.Verdict == "allow" })

	start := time.Now()
	cli(t, p, 0, "rules:\n  - {id: only-api, action: allow, hosts: [api.test]}\n", "sandbox", "egress", "set", b.ID)
	reached("with a list", false, true)
	b.decided("closes the flow", func(d decision) bool { return d.Host == "tcp.test" && d.Closed })
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("the flow ended %v after the list", took)
	}
	denied := b.decided("denies by the own list", func(d decision) bool { return d.Host == "good.test" && d.Verdict == "deny" })
	if r := cli(t, p, 0, "", "explain", denied.ID); !strings.Contains(r.Stdout, "own") {
		t.Errorf("explain: %v", r)
	}
	if !neighbour.reaches(good) {
		t.Error("the neighbour does not reach good.test any more")
	}
	cli(t, p, 0, "", "sandbox", "pause", b.ID)
	cli(t, p, 0, "", "sandbox", "resume", b.ID)
	reached("after a pause", false, true)
	if r := cli(t, p, 0, "", "sandbox", "inspect", b.ID); !strings.Contains(r.Stdout, "own list") {
		t.Errorf("inspect: %v", r)
	}
	if r := cli(t, p, 0, "", "sandbox", "egress", "get", b.ID); !strings.Contains(r.Stdout, "only-api") {
		t.Errorf("egress get: %v", r)
	}
	cli(t, p, 0, "", "sandbox", "egress", "clear", b.ID)
	reached("with the list taken away", true, true)

	// Under another policy, at once.
	call(t, p, "PUT", "/policies/narrow?wait=applied", map[string]any{"rules": []any{allow("api", "api.test")}}, 200, nil)
	t.Cleanup(func() { p.API("DELETE", "/policies/narrow", nil) })
	cli(t, p, 0, "", "sandbox", "policy", b.ID, "narrow")
	reached("under another policy", false, true)
	cli(t, p, 0, "", "sandbox", "policy", b.ID, "ceiling")
	reached("under the ceiling again", true, true)
}

// TestApplyShowsAndAsks: what apply says before it changes anything is what happens, and its exit status tells a script.
func TestApplyShowsAndAsks(t *testing.T) {
	_, p := shared(t)
	ceiling(t, p, allow("good", "good.test"))
	b := armed(t, p)
	if !b.reaches(good) {
		t.Fatal("good.test is not reached")
	}
	if b.reaches("tls api.test:443 api.test api.test /") {
		t.Fatal("api.test is reached")
	}
	b.decided("denies api.test", func(d decision) bool { return d.Host == "api.test" && d.Verdict == "deny" })

	const text = "# kept\nrules:\n  - {id: api, action: allow, hosts: [api.test]} # instead of good\ntests:\n  - {name: api is open, host: api.test, expect: allow}\n"
	next, wrong := file(t, text), file(t, text+"  - {name: good is open, host: good.test, expect: allow}\n")
	if r := cli(t, p, 3, "", "policy", "test", wrong, "--name", "ceiling"); !strings.Contains(r.Stdout, "FAIL good is open") {
		t.Errorf("test: %v", r)
	}
	cli(t, p, 0, "", "policy", "test", next, "--name", "ceiling")
	cli(t, p, 3, "", "policy", "test", next) // as a policy under this ceiling api.test is closed
	cli(t, p, 3, "y\n", "policy", "apply", "-f", wrong)
	cli(t, p, 3, "", "policy", "set", "ceiling", "-f", wrong)
	dry := cli(t, p, 0, "", "policy", "apply", "-f", next, "--dry-run")
	for _, want := range []string{"+ api: allow, hosts api.test", "- good: allow, hosts good.test", "newly denied", "+ name api.test", "- good.test:443"} {
		if !strings.Contains(dry.Stderr, want) {
			t.Errorf("what is shown lacks %q: %v", want, dry)
		}
	}
	if r := cli(t, p, 1, "n\n", "policy", "apply", "-f", next); !strings.Contains(r.Stderr, "nothing was changed") {
		t.Errorf("apply without a yes: %v", r)
	}
	if !b.reaches(good) {
		t.Error("good.test is not reached, though nothing was applied")
	}
	var done struct{ Version int64 }
	if err := json.Unmarshal([]byte(cli(t, p, 0, "", "policy", "apply", "-f", next, "--yes", "-o", "json").Stdout), &done); err != nil || done.Version == 0 {
		t.Errorf("version %d, %v", done.Version, err)
	}
	if b.reaches(good) || !b.reaches("tls api.test:443 api.test api.test /") {
		t.Error("what was applied does not hold")
	}
	cli(t, p, 0, "", "policy", "apply", "-f", next) // nothing left to do, nobody is asked
	if r := cli(t, p, 0, "", "policy", "get", "ceiling"); r.Stdout != text {
		t.Errorf("the document came back as %q", r.Stdout)
	}

	// And back again.
	history := cli(t, p, 0, "", "policy", "history", "ceiling", "--limit", "2", "-o", "json")
	var list struct {
		Versions []struct{ Version int64 }
	}
	if err := json.Unmarshal([]byte(history.Stdout), &list); err != nil || len(list.Versions) != 2 || list.Versions[0].Version != done.Version {
		t.Fatalf("history: %v, %v", history, err)
	}
	before := []string{"policy", "restore", "ceiling", jsonNumber(list.Versions[1].Version)}
	cli(t, p, 1, "", before...)
	if r := cli(t, p, 0, "yes\n", before...); !strings.Contains(r.Stderr, "- api: allow") {
		t.Errorf("restore: %v", r)
	}
	if !b.reaches(good) {
		t.Error("good.test is not reached with the old version restored")
	}
}

func jsonNumber(n int64) string {
	text, _ := json.Marshal(n)
	return string(text)
}

// TestLearnThenApply: a draft of what a sandbox tried, once read and applied, is enough for it, and for nothing else.
func TestLearnThenApply(t *testing.T) {
	_, p := shared(t)
	ceiling(t, p)
	b := armed(t, p)
	if b.reaches(good) {
		t.Fatal("good.test is reached under an empty ceiling")
	}
	b.decided("denies good.test", func(d decision) bool { return d.Host == "good.test" && d.Verdict == "deny" })
	learnt := cli(t, p, 0, "", "policy", "learn", "--sandbox", b.ID, "--names", "--only-new")
	if !strings.Contains(learnt.Stdout, "good.test") || !strings.Contains(learnt.Stdout, "by 1 sandbox") || strings.Contains(learnt.Stdout, "*") {
		t.Fatalf("learnt: %v", learnt)
	}
	draft := file(t, learnt.Stdout)
	replayed := cli(t, p, 0, "", "policy", "replay", "-f", draft, "--sandbox", b.ID)
	if !strings.Contains(replayed.Stdout, "0 would be newly denied") || !strings.Contains(replayed.Stdout, "+ name good.test") {
		t.Errorf("replayed: %v", replayed)
	}
	cli(t, p, 0, "", "policy", "apply", "-f", draft, "--yes")
	if !b.reaches(good) {
		t.Error("good.test is not reached under what was learnt")
	}
	if b.reaches("tls api.test:443 api.test api.test /") {
		t.Error("api.test is reached, which nobody tried before")
	}
	if r := cli(t, p, 0, "", "policy", "learn", "--sandbox", b.ID, "--names", "--only-new", "--since", "1m"); strings.Contains(r.Stdout, "- good.test\n") {
		t.Errorf("what is allowed now is learnt again: %v", r)
	}
	// A draft is checked before it is anything.
	if r := cli(t, p, 3, "", "policy", "check", "https://api.test/", "--sandbox", b.ID, "-f", draft); !strings.Contains(r.Stdout, "no_rule") {
		t.Errorf("check: %v", r)
	}
	cli(t, p, 0, "", "policy", "check", "https://good.test/", "--sandbox", b.ID, "-f", draft)
}
