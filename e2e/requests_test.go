package e2e

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// selfHeader is what portreeve.internal wants to see.
const selfHeader = "X-Portreeve-Self: 1"

// asks sends a request to portreeve.internal from within the sandbox, and returns its status; into, unless nil, takes the answer.
func (b *box) asks(method, path string, body any, into any, headers ...string) int {
	b.t.Helper()
	text := ""
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			b.t.Fatal(err)
		}
		text = string(raw)
	}
	if len(headers) == 0 {
		headers = []string{selfHeader}
	}
	_, said := b.hostile(append([]string{"self", method, path, text}, headers...)...)
	number, rest, _ := strings.Cut(strings.TrimPrefix(said, "ok "), " ")
	status, err := strconv.Atoi(number)
	if err != nil {
		b.t.Fatalf("%s %s at portreeve.internal: %s", method, path, said)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(rest), into); err != nil {
			b.t.Fatalf("%s %s at portreeve.internal: %v: %s", method, path, err, said)
		}
	}
	return status
}

// An access is a request for access as the sandbox sees it.
type access struct {
	ID       string `json:"id"`
	State    string `json:"state"`
	Code     string `json:"code"`
	Guidance string `json:"agent_guidance"`
	Reason   string `json:"reason"`
	Approver bool   `json:"approver_connected"`
}

// TestAccessIsAskedForAndGiven: an agent that was denied asks from within, a person approves at the command line, it works, and
// ends by itself.
func TestAccessIsAskedForAndGiven(t *testing.T) {
	_, p := shared(t)
	call(t, p, "PUT", "/policies/asking?wait=applied", map[string]any{"rules": []any{map[string]any{"id": "not", "action": "deny", "hosts": []string{"evil.test"}}}}, 200, nil)
	t.Cleanup(func() { p.API("DELETE", "/policies/asking", nil) })
	ceiling(t, p, allow("plain", "plain.test", "ports", []int{80}, "protocols", []string{"http"}, "paths", []string{"/open/**"}), allow("good", "good.test"))
	b := armed(t, p, "policy", "asking")
	if b.reaches(good) {
		t.Fatal("good.test is reached before anybody allowed it")
	}

	// What was denied, and why, and that it may be asked for.
	var seen struct {
		Denials []struct {
			ID          string `json:"decision_id"`
			Host        string `json:"host"`
			Reason      string `json:"reason"`
			Requestable bool   `json:"requestable"`
			URL         string `json:"request_url"`
		} `json:"denials"`
	}
	if status := b.asks("GET", "/denials", nil, &seen); status != 200 || len(seen.Denials) == 0 {
		t.Fatalf("denials: %d %+v", status, seen)
	}
	d := seen.Denials[0]
	if d.Host != "good.test" || d.Reason != "no_rule" || !d.Requestable || d.URL != "http://portreeve.internal/requests" {
		t.Errorf("the denial reads %+v", d)
	}
	if status := b.asks("GET", "/decisions/"+d.ID, nil, nil); status != 200 {
		t.Errorf("asking why: %d", status)
	}

	// Not what a rule denies, and not what the floor closes.
	var refused access
	if status := b.asks("POST", "/requests", map[string]any{"host": "evil.test", "why": "x"}, &refused); status != 409 || refused.Code != "not_requestable" {
		t.Errorf("asking for what a rule denies: %d %+v", status, refused)
	}
	if status := b.asks("POST", "/requests", map[string]any{"host": "metadata.google.internal", "why": "x"}, &refused); status != 409 || refused.Code != "not_requestable" {
		t.Errorf("asking for what the floor closes: %d %+v", status, refused)
	}
	var asked, again access
	if status := b.asks("POST", "/requests", map[string]any{"decision_id": d.ID, "why": "clone the repository", "for": "1h"}, &asked); status != 201 || asked.State != "open" || asked.Approver {
		t.Fatalf("asking: %d %+v", status, asked)
	}
	if b.asks("POST", "/requests", map[string]any{"host": "GOOD.test.", "why": "once more"}, &again); again.ID != asked.ID {
		t.Errorf("an equal request is %s, not %s", again.ID, asked.ID)
	}
	// Nobody watches, so it is not held.
	begun := time.Now()
	if status := b.asks("GET", "/requests/"+asked.ID, nil, &again, selfHeader, "Prefer: wait=20"); status != 200 || again.State != "open" || time.Since(begun) > 10*time.Second {
		t.Errorf("waiting while nobody watches: %d %+v after %v", status, again, time.Since(begun))
	}

	if r := p.CLI("requests"); r.Code != 0 || !strings.Contains(r.Stdout, asked.ID) || !strings.Contains(r.Stdout, "clone the repository") {
		t.Errorf("requests: %v", r)
	}
	r := p.CLI("requests", "approve", asked.ID, "--for", "1m")
	if r.Code != 0 || !strings.Contains(r.Stderr, "policy:asking") || !strings.Contains(r.Stderr, "would have allowed") {
		t.Fatalf("approve: %v", r)
	}
	if !b.reaches(good) {
		t.Error("good.test is not reached after the approval")
	}
	if b.asks("GET", "/requests/"+asked.ID, nil, &again); again.State != "approved" {
		t.Errorf("after the approval it is %+v", again)
	}
	if r := p.CLI("requests", "deny", asked.ID); r.Code != 1 || !strings.Contains(r.Stderr, "not_open") {
		t.Errorf("deciding twice: %v", r)
	}
	if err := lab.Await(75*time.Second, "end of the access", func() bool { return !b.reaches(good) }); err != nil {
		t.Error(err)
	}
	if b.asks("GET", "/requests/"+asked.ID, nil, &again); again.State != "expired" {
		t.Errorf("after its time it is %+v", again)
	}
}

// TestOnlyPeopleDecide: from within a sandbox nothing is approved, whichever way it is tried, and nothing of another's is seen.
func TestOnlyPeopleDecide(t *testing.T) {
	_, p := shared(t)
	ceiling(t, p, allow("good", "good.test"))
	b, other := armed(t, p), armed(t, p)
	var asked access
	if status := b.asks("POST", "/requests", map[string]any{"host": "api.test", "why": "the API"}, &asked); status != 201 {
		t.Fatalf("asking: %d %+v", status, asked)
	}
	for path, want := range map[string]int{
		"/requests/" + asked.ID + "/approve": 404, "/requests/" + asked.ID + "/deny": 404, "/api/v1/requests/" + asked.ID + "/approve": 404,
		"/requests/" + asked.ID: 405,
	} {
		if status := b.asks("POST", path, map[string]any{}, nil); status != want {
			t.Errorf("POST %s from within: %d, want %d", path, status, want)
		}
	}
	// The header is what a page in a browser can't send.
	if status := b.asks("POST", "/requests", map[string]any{"host": "api.test", "why": "x"}, nil, "Content-Type: application/json"); status != 403 {
		t.Errorf("without the header: %d", status)
	}
	if status := b.asks("GET", "/requests/"+asked.ID, nil, nil); status != 200 {
		t.Errorf("its own request: %d", status)
	}
	if status := other.asks("GET", "/requests/"+asked.ID, nil, nil); status != 404 {
		t.Errorf("another sandbox's request: %d", status)
	}
	if b.reaches("tls api.test:443 api.test api.test /") {
		t.Error("api.test is reached, and nobody approved it")
	}
	var seen struct {
		Denials []struct {
			ID string `json:"decision_id"`
		} `json:"denials"`
	}
	if b.asks("GET", "/denials", nil, &seen); len(seen.Denials) == 0 {
		t.Fatal("no denial is remembered")
	}
	if status := other.asks("GET", "/decisions/"+seen.Denials[0].ID, nil, nil); status != 404 {
		t.Errorf("another sandbox's decision: %d", status)
	}
	// A key that may do all but approve.
	var key struct {
		Key string `json:"key"`
	}
	call(t, p, "POST", "/api-keys", map[string]any{"name": "no approver", "scopes": []string{"read", "write", "admin", "grants"}}, 201, &key)
	if a, err := p.Call(key.Key, "POST", "/requests/"+asked.ID+"/approve", map[string]any{}); err != nil || a.Status != 403 {
		t.Errorf("approving without the scope: %v %v", a, err)
	}
	call(t, p, "POST", "/requests/"+asked.ID+"/approve", map[string]any{"wait": true, "for": "1m"}, 200, nil)
	if !b.reaches("tls api.test:443 api.test api.test /") {
		t.Error("api.test is not reached after the approval")
	}
}

// TestTenOpenRequests: the eleventh is refused, and one more goes in once one was decided.
func TestTenOpenRequests(t *testing.T) {
	_, p := shared(t)
	ceiling(t, p)
	b := armed(t, p)
	ask := func(i int) (int, access) {
		var a access
		return b.asks("POST", "/requests", map[string]any{"host": fmt.Sprintf("h%d.test", i), "why": "x"}, &a), a
	}
	var first access
	for i := range 10 {
		status, a := ask(i)
		if status != 201 {
			t.Fatalf("request %d: %d %+v", i, status, a)
		}
		if i == 0 {
			first = a
		}
	}
	if status, a := ask(10); status != 429 || a.Code != "too_many_open_requests" {
		t.Errorf("the eleventh: %d %+v", status, a)
	}
	if r := p.CLI("requests", "deny", first.ID, "--reason", "not for this"); r.Code != 0 {
		t.Fatalf("deny: %v", r)
	}
	var told access
	if b.asks("GET", "/requests/"+first.ID, nil, &told); told.State != "denied" || told.Reason != "not for this" {
		t.Errorf("the denied one reads %+v", told)
	}
	if status, a := ask(10); status != 201 {
		t.Errorf("after one was decided: %d %+v", status, a)
	}
}

// TestSandboxWaitsForItsApprover: while somebody watches at the terminal, an ask is held until it is decided there.
func TestSandboxWaitsForItsApprover(t *testing.T) {
	_, p := own(t)
	ceiling(t, p)
	b := armed(t, p)
	out := p.CLIWith("", "requests", "list") // nobody asked yet
	if out.Code != 0 || strings.Contains(out.Stdout, "req_") {
		t.Errorf("requests list: %v", out)
	}
	approver := p.Command(t.Context(), "requests", "-f")
	in, err := approver.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	said, err := approver.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := approver.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); approver.Process.Kill(); approver.Wait() })
	var a access
	err = lab.Await(20*time.Second, "an approver", func() bool {
		b.asks("POST", "/requests", map[string]any{"host": "good.test", "why": "x"}, &a)
		return a.Approver
	})
	if err != nil {
		t.Fatal(err)
	}
	held := make(chan access, 1)
	go func() {
		var a access
		b.asks("POST", "/requests", map[string]any{"host": "good.test", "why": "x"}, &a, selfHeader, "Prefer: wait=30")
		held <- a
	}()
	// Asked at the terminal: only then does what is typed mean this request.
	if line, err := bufio.NewReader(said).ReadString('\n'); err != nil || !strings.Contains(line, a.ID) {
		t.Fatalf("the terminal says %q: %v", line, err)
	}
	if _, err := in.Write([]byte("a 10m\n")); err != nil {
		t.Fatal(err)
	}
	select {
	case a := <-held:
		if a.State != "approved" && a.Code != "already_allowed" { // the answer may have come first
			t.Errorf("held, it became %+v", a)
		}
	case <-time.After(40 * time.Second):
		t.Fatal("the ask has no answer")
	}
	if !b.reaches(good) {
		t.Error("good.test is not reached after the approval at the terminal")
	}
}

// TestWhatASandboxMayKnow: what it may reach, its authority, and putting itself to sleep.
func TestWhatASandboxMayKnow(t *testing.T) {
	_, p := shared(t)
	ceiling(t, p, allow("good", "good.test"))
	b := armed(t, p)
	var reach struct {
		Reach []struct {
			To string `json:"to"`
		} `json:"reach"`
	}
	if status := b.asks("GET", "/reach", nil, &reach); status != 200 || len(reach.Reach) != 1 || reach.Reach[0].To != "good.test" {
		t.Errorf("reach: %d %+v", status, reach)
	}
	for url, want := range map[string]string{"https://good.test/x": "allow", "https://api.test/x": "deny"} {
		var v struct {
			Verdict string `json:"verdict"`
		}
		if status := b.asks("POST", "/check", map[string]any{"url": url}, &v); status != 200 || v.Verdict != want {
			t.Errorf("check %s: %d %+v", url, status, v)
		}
	}
	if _, said := b.hostile("self", "GET", "/ca.pem", "", selfHeader); !strings.Contains(said, "200 -----BEGIN CERTIFICATE-----") || strings.Contains(said, "PRIVATE") {
		t.Errorf("ca.pem: %s", said)
	}
	if status := b.asks("GET", "/services", nil, nil); status != 200 {
		t.Errorf("services: %d", status)
	}
	b.background("/workspace/hostile self POST /pause '' '" + selfHeader + "'")
	if err := lab.Await(20*time.Second, "pause", func() bool { return b.view().Status == "paused" }); err != nil {
		t.Errorf("%v: it is %+v", err, b.view())
	}
	if r := p.CLI("audit"); r.Code != 0 || !strings.Contains(r.Stdout, "sandbox.pause") {
		t.Errorf("audit: %v", r)
	}
	call(t, p, "POST", "/sandbox/"+b.ID+"/resume", nil, 200, nil)
	b.works("after it was resumed", "true")
}

// TestWebhooksTellOfRequests: an org's endpoint is told of an ask, signed; an address inside is not reached under any name.
func TestWebhooksTellOfRequests(t *testing.T) {
	l, p := own(t)
	ceiling(t, p)
	var hook struct {
		ID     string `json:"id"`
		Secret string `json:"secret"`
	}
	call(t, p, "POST", "/webhooks", map[string]any{"url": "https://good.test/hook"}, 201, &hook)
	var outcome struct {
		Delivered bool   `json:"delivered"`
		Status    int    `json:"response_status"`
		Error     string `json:"error"`
	}
	call(t, p, "POST", "/webhooks/"+hook.ID+"/test", nil, 200, &outcome)
	if !outcome.Delivered || outcome.Status != 200 {
		t.Fatalf("the test came to %+v", outcome)
	}
	for _, host := range []string{"loopback.test", "private.test", "metadata.test", "mapped.test", "zero.test"} {
		var inside struct {
			ID string `json:"id"`
		}
		call(t, p, "POST", "/webhooks", map[string]any{"url": "https://" + host + ":8080/", "events": []string{"egress.denied"}}, 201, &inside)
		call(t, p, "POST", "/webhooks/"+inside.ID+"/test", nil, 200, &outcome)
		if outcome.Delivered || outcome.Error != "not_reached" && outcome.Error != "timeout" {
			t.Errorf("%s: %+v", host, outcome)
		}
	}
	b := armed(t, p)
	var asked access
	if status := b.asks("POST", "/requests", map[string]any{"host": "api.test", "why": "to build"}, &asked); status != 201 {
		t.Fatalf("asking: %d %+v", status, asked)
	}
	if r := p.CLI("requests", "deny", asked.ID); r.Code != 0 {
		t.Fatalf("deny: %v", r)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(hook.Secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	err = lab.Await(30*time.Second, "events at good.test", func() bool {
		for _, r := range l.Web.Requests("good.test") {
			if r.URI != "/hook" {
				continue
			}
			id, at := r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Timestamp")
			mac := hmac.New(sha256.New, key)
			fmt.Fprintf(mac, "%s.%s.%s", id, at, r.Body)
			if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); r.Header.Get("Webhook-Signature") != want {
				t.Errorf("signed %q, want %q", r.Header.Get("Webhook-Signature"), want)
			}
			var event struct {
				Type string `json:"type"`
				Data struct {
					ID    string `json:"id"`
					State string `json:"state"`
				} `json:"data"`
			}
			if err := json.Unmarshal([]byte(r.Body), &event); err != nil {
				t.Fatal(err)
			}
			if event.Data.ID == asked.ID {
				told[event.Type+" "+event.Data.State] = true
			}
		}
		return told["egress.request.created open"] && told["egress.request.decided denied"]
	})
	if err != nil {
		t.Errorf("%v; told was %v", err, told)
	}
}
