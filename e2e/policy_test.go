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

const good = "tls good.test:443 good.test good.test /"

// reaches says whether the sandbox gets to where the words say.
func (b *box) reaches(words string) bool {
	b.t.Helper()
	open, _ := b.hostile(strings.Split(words, " ")...)
	return open
}

// TestLayersOnlyNarrow: floor, ceiling, named policy and a sandbox's own list must all allow.
func TestLayersOnlyNarrow(t *testing.T) {
	_, p := shared(t)
	const api = "tls api.test:443 api.test api.test /"
	rules := func(rules ...map[string]any) map[string]any { return map[string]any{"rules": rules} }
	ceiling(t, p, allow("good", "good.test"))
	call(t, p, "PUT", "/policies/narrow?wait=applied", rules(allow("both", "good.test"), allow("api", "api.test")), 200, nil)
	call(t, p, "PUT", "/policies/none?wait=applied", map[string]any{"rules": []any{}}, 200, nil)
	t.Cleanup(func() { p.API("DELETE", "/policies/narrow", nil); p.API("DELETE", "/policies/none", nil) })
	for _, c := range []struct {
		name      string
		more      []any
		good, api bool
	}{
		{"the ceiling alone", nil, true, false},
		{"a policy that allows more", []any{"policy", "narrow"}, true, false},
		{"a policy that allows nothing", []any{"policy", "none"}, false, false},
		{"an own list that allows more", []any{"egress", rules(allow("a", "good.test"), allow("b", "api.test"))}, true, false},
		{"an own list that allows less", []any{"egress", rules(allow("a", "api.test"))}, false, false},
		{"an own list that allows nothing, under a policy", []any{"policy", "narrow", "egress", map[string]any{"rules": []any{}}}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := armed(t, p, c.more...)
			if got := b.reaches(good); got != c.good {
				t.Errorf("good.test: %v, want %v", got, c.good)
			}
			if got := b.reaches(api); got != c.api {
				t.Errorf("api.test: %v, want %v", got, c.api)
			}
			d := b.decided("is about api.test", func(d decision) bool { return d.Host == "api.test" })
			if d.Verdict != "deny" || d.Reason != "no_rule" {
				t.Errorf("api.test is recorded as %+v", d)
			}
		})
	}
	b := armed(t, p, "policy", "narrow")
	ceiling(t, p, allow("good", "good.test"), allow("api", "api.test"))
	if !b.reaches(api) {
		t.Error("with ceiling and policy allowing, api.test is not reached")
	}
}

// TestRulesByAddressAndTime: ranges, ports within them, and a rule that ends by itself.
func TestRulesByAddressAndTime(t *testing.T) {
	l, p := shared(t)
	good, tcp := l.Addr("good.test").String(), l.Addr("tcp.test").String()
	ends := time.Now().Add(4 * time.Second)
	ceiling(t, p,
		map[string]any{"id": "range", "action": "allow", "cidrs": []string{"203.0.113.0/28"}, "ports": []int{443}, "protocols": []string{"https", "tls"}},
		map[string]any{"id": "raw", "action": "allow", "cidrs": []string{tcp + "/32"}, "ports": []int{7}, "protocols": []string{"tcp"}},
		map[string]any{"id": "not", "action": "deny", "cidrs": []string{"203.0.113.31/32"}},
		allow("wild", "*.wild.test"), allow("wrong", "wrongname.test"),
		allow("short", "api.test", "expires_at", ends.UTC().Format(time.RFC3339Nano)),
	)
	b := armed(t, p)
	if !b.reaches("tls api.test:443 api.test api.test /") && time.Now().Before(ends) {
		t.Error("a rule that ends in a while is not in force")
	}
	for _, c := range []struct {
		name, words string
		open        bool
	}{
		{"an address in the range", "tls " + good + ":443 good.test good.test /", true},
		{"another port of it", "tcp " + good + ":8080", false},
		{"an address just outside the range", "tls 203.0.113.20:443 api.test api.test /", false},
		{"a raw port of one address", "tcp " + tcp + ":7", true},
		{"the next port", "tcp " + tcp + ":22", false},
		{"a name whose address no rule denies", "tls a.wild.test:443 a.wild.test a.wild.test /", true},
		{"a name whose address is denied", "tls wrongname.test:443 wrongname.test wrongname.test /", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.t = t
			if open, said := b.hostile(strings.Split(c.words, " ")...); open != c.open {
				t.Errorf("got through: %v, want %v: %s", open, c.open, said)
			}
		})
	}
	b.t = t
	d := b.decided("allows the address", func(d decision) bool { return d.Addr == good && d.Verdict == "allow" })
	if d.Rule != "range" || d.Host != "" {
		t.Errorf("the address is recorded as %+v", d)
	}
	if err := lab.Await(10*time.Second, "end of the rule", func() bool { return !b.reaches("tls api.test:443 api.test api.test /") }); err != nil {
		t.Error(err)
	}
	b.decided("denies it then", func(d decision) bool { return d.Host == "api.test" && d.Verdict == "deny" })
}

// TestDenialsSayWhy: on HTTP a problem document that an agent can act on; elsewhere a TLS alert or a reset, and at once.
func TestDenialsSayWhy(t *testing.T) {
	_, p := shared(t)
	ceiling(t, p,
		allow("clear", "plain.test", "ports", []int{80}, "protocols", []string{"http"}, "paths", []string{"/open/**"}),
		allow("good", "good.test"),
		map[string]any{"id": "not", "action": "deny", "hosts": []string{"api.test"}, "message": "use good.test instead"})
	b := armed(t, p)
	start := time.Now()
	_, said := b.hostile("http", "plain.test:80", "plain.test", "/shut")
	status, body, _ := strings.Cut(strings.TrimPrefix(said, "ok HTTP/1.1 "), "{")
	var problem struct {
		Status     int    `json:"status"`
		Decision   string `json:"decision_id"`
		Reason     string `json:"reason"`
		Guidance   string `json:"agent_guidance"`
		Detail     string `json:"detail"`
		Title      string `json:"title"`
		Code       string `json:"code"`
		Rule       string `json:"rule"`
		Requestble bool   `json:"requestable"`
	}
	if err := json.Unmarshal([]byte("{"+body), &problem); err != nil || !strings.HasPrefix(status, "403 ") {
		t.Fatalf("a denied path: %v: %s", err, said)
	}
	if problem.Status != 403 || problem.Reason != "no_rule" || problem.Guidance == "" || problem.Title == "" || !strings.HasPrefix(problem.Decision, "dec_") {
		t.Errorf("a denied path: %+v", problem)
	}
	b.decided("has the id that the client was told", func(d decision) bool { return d.ID == problem.Decision && d.Path == "/shut" && d.Reason == "no_rule" })
	if r := p.CLI("explain", problem.Decision); r.Code != 0 || !strings.Contains(r.Stdout, "plain.test") || !strings.Contains(r.Stdout, "no_rule") {
		t.Errorf("explain: %v", r)
	}
	// A name that a rule denies is not resolved, and the record has the rule's own words.
	if open, said := b.hostile("resolve", "api.test"); open || !strings.Contains(said, "no such host") {
		t.Errorf("a denied name: %s", said)
	}
	d := b.decided("denies api.test by its rule", func(d decision) bool { return d.Host == "api.test" })
	if d.Rule != "not" || d.Reason != "rule_denied" || d.Guidance != "use good.test instead" {
		t.Errorf("it is recorded as %+v", d)
	}
	if _, said := b.hostile("tls", "good.test:443", "plain.test", "good.test", "/"); !strings.Contains(said, "access denied") {
		t.Errorf("another SNI is answered %q, want the alert access_denied", said)
	}
	if _, said := b.hostile("tcp", "good.test:22"); !strings.Contains(said, "reset") && !strings.Contains(said, "EOF") {
		t.Errorf("a port that no rule names: %q, want a reset", said)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the refusals took %v", took)
	}
}

// TestOtherUDPIsRefusedAtOnce: a client that tries QUIC first is told each time, without waiting.
func TestOtherUDPIsRefusedAtOnce(t *testing.T) {
	_, p := shared(t)
	ceiling(t, p, allow("good", "good.test"))
	b := armed(t, p)
	_, said := b.hostile("resolve", "good.test")
	for _, to := range []string{strings.TrimPrefix(said, "ok ") + ":443", "203.0.113.10:443", "9.9.9.9:123"} {
		start := time.Now()
		for range 15 {
			if open, said := b.hostile("udp", to); open || !strings.Contains(said, "refused") || strings.Contains(said, "timeout") {
				t.Errorf("%s: %s", to, said)
				break
			}
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("%s: 15 refusals took %v", to, took)
		}
	}
}

// TestPolicyByCommandLine writes, reads and tries a policy from files.
func TestPolicyByCommandLine(t *testing.T) {
	_, p := shared(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "policy.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("rules:\n  - {id: good, action: allow, hosts: [good.test]}\n")
	for _, name := range []string{"ceiling", "web"} {
		if r := p.CLI("policy", "set", name, "-f", file); r.Code != 0 {
			t.Fatalf("policy set %s: %v", name, r)
		}
		if r := p.CLI("policy", "get", name); r.Code != 0 || !strings.Contains(r.Stdout, "good.test") {
			t.Errorf("policy get %s: %v", name, r)
		}
	}
	t.Cleanup(func() { p.API("DELETE", "/policies/web", nil) })
	if r := p.CLI("policy", "check", "https://good.test/"); r.Code != 0 {
		t.Errorf("policy check of what is allowed: %v", r)
	}
	if r := p.CLI("policy", "check", "https://evil.test/"); r.Code != 3 {
		t.Errorf("policy check of what is denied: %v", r)
	}
	write("rules:\n  - {id: good, action: allow, hosts: [good.test], colour: red}\n")
	if r := p.CLI("policy", "set", "ceiling", "-f", file); r.Code == 0 || !strings.Contains(r.Stderr, "colour") {
		t.Errorf("policy set with an unknown key: %v", r)
	}
	// The form that others use is taken, and shown as rules.
	call(t, p, "PUT", "/settings/egress?wait=applied", map[string]any{"mode": "allowed_domains", "allowed_domains": []string{"good.test"}}, 200, nil)
	if r := p.CLI("policy", "get", "ceiling"); r.Code != 0 || !strings.Contains(r.Stdout, "good.test") || !strings.Contains(r.Stdout, "rules") {
		t.Errorf("the known form is shown as %v", r)
	}
	if b := armed(t, p); !b.reaches(good) {
		t.Error("under the known form good.test is not reached")
	}
}
