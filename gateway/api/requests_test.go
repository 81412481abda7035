package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/api/apitest"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

// binding is what the edge says of a sandbox.
func binding(t *testing.T, w *apitest.World, c *apitest.Client, box string) egress.Binding {
	t.Helper()
	b, err := w.Store.Sandbox(t.Context(), c.Org, box)
	if err != nil {
		t.Fatal(err)
	}
	return egress.Binding{Sandbox: box, Org: c.Org, Incarnation: b.Incarnation}
}

// ask asks as a sandbox does, for a host with https unless change says otherwise.
func ask(t *testing.T, w *apitest.World, b egress.Binding, host string, change ...func(*egress.Ask)) (egress.Access, error) {
	t.Helper()
	a := egress.Ask{Host: host, Why: "because"}
	for _, f := range change {
		f(&a)
	}
	return w.API.Ask(t.Context(), b, a)
}

// asked enters a request and returns its id.
func asked(t *testing.T, w *apitest.World, c *apitest.Client, box, host string, change ...func(*egress.Ask)) string {
	t.Helper()
	a, err := ask(t, w, binding(t, w, c, box), host, change...)
	if err != nil {
		t.Fatal(err)
	}
	return a.ID
}

// codeOf is the word of a refusal.
func codeOf(err error) string {
	p, ok := errors.AsType[*api.Problem](err)
	if !ok {
		return fmt.Sprint(err)
	}
	return p.Code
}

func target(method, path string) func(*egress.Ask) {
	return func(a *egress.Ask) { a.Methods, a.Paths = []string{method}, []string{path} }
}

func TestApprovalGivesAccessForAWhile(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	w := apitest.New(t, func(c *api.Config) { c.Now = func() time.Time { return now } })
	c := w.Org("one")
	c.Do("PUT", "/policies/web", document(rule("kept", "kept.test"))).Want(200)
	box := c.Sandbox(object{"policy": "web"})
	b := binding(t, w, c, box)
	record(t, w, c.Org, box, "api.test")
	id := asked(t, w, c, box, "API.test.", func(a *egress.Ask) { a.For = "2h" })

	one := c.Do("GET", "/requests/"+id, nil).Want(200)
	if one.String("state") != "open" || one.String("host") != "api.test" || one.String("for") != "2h" || one.String("why") != "because" || one.String("width") != "host" {
		t.Errorf("the request reads %s", one.Body)
	}
	dry := c.Do("POST", "/requests/"+id+"/approve", object{"dry_run": true}).Want(200)
	if fmt.Sprint(dry.At("layers")) != "[ceiling policy:web]" || dry.At("would_have_allowed.count") != 1.0 || dry.At("applied") != false {
		t.Errorf("the effect reads %s", dry.Body)
	}
	if c.Do("GET", "/policies/web", nil).Want(200); strings.Contains(string(c.Do("GET", "/policies/web", nil).Body), "api.test") {
		t.Error("a dry run changed the policy")
	}
	done := c.Do("POST", "/requests/"+id+"/approve", object{"for": "10m", "reason": "fine"}).Want(200)
	end := now.Add(10 * time.Minute).Format(time.RFC3339)
	if done.String("request.state") != "approved" || done.String("rule.expires_at") != end || done.String("request.expires_at") != end || done.String("request.rule") != done.String("rule.id") {
		t.Errorf("the approval reads %s", done.Body)
	}
	check := func(want string) {
		t.Helper()
		if a := c.Do("POST", "/policies/check", object{"host": "api.test", "sandbox": box}).Want(200); a.String("verdict") != want {
			t.Errorf("api.test: %s, want %s", a.Body, want)
		}
	}
	check("allow")
	told, err := w.API.Access(t.Context(), b, id, 0)
	if err != nil || told.State != "approved" || told.Reason != "fine" {
		t.Errorf("the sandbox is told %+v, %v", told, err)
	}
	c.Do("POST", "/requests/"+id+"/approve", object{}).Refused(409, "not_open")
	c.Do("POST", "/requests/"+id+"/deny", object{}).Refused(409, "not_open")
	now = now.Add(10*time.Minute + time.Second)
	check("deny")
	if told, _ := w.API.Access(t.Context(), b, id, 0); told.State != "expired" {
		t.Errorf("after the end it is %s", told.State)
	}
	audit := string(c.Do("GET", "/audit", nil).Want(200).Body)
	for _, want := range []string{`"egress.request"`, `"egress.request.approve"`, `"actor_kind":"sandbox"`} {
		if !strings.Contains(audit, want) {
			t.Errorf("the audit log has no %s", want)
		}
	}
}

// TestOnlyTheMissingRuleIsAskedFor: not what the floor closes, what a rule denies, or what is allowed already.
func TestOnlyTheMissingRuleIsAskedFor(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	c.Do("PUT", "/settings/egress", document(rule("good", "good.test"), object{"id": "not", "action": "deny", "hosts": []string{"bad.test"}},
		object{"id": "part", "action": "deny", "hosts": []string{"part.test"}, "paths": []string{"/admin/**"}, "tls": "inspect"},
		object{"id": "narrow", "action": "allow", "hosts": []string{"narrow.test"}, "tls": "inspect", "methods": []string{"GET"}})).Want(200)
	b := binding(t, w, c, c.Sandbox())
	for _, r := range []struct {
		name, host string
		change     func(*egress.Ask)
		code       string // empty: entered
	}{
		{"no rule", "new.test", nil, ""},
		{"the port beside an allowed one", "good.test", func(a *egress.Ask) { a.Port = 8443 }, ""},
		{"a method beside an allowed one", "narrow.test", target("POST", "/x"), ""},
		{"all of a host that is allowed in part", "narrow.test", nil, ""},
		{"a path beside a denied one", "part.test", target("GET", "/x"), ""},
		{"an allowed host", "good.test", nil, "already_allowed"},
		{"an allowed method", "narrow.test", target("GET", "/x"), "already_allowed"},
		{"a denied host", "bad.test", nil, "not_requestable"},
		{"a denied path", "part.test", target("GET", "/admin/x"), "not_requestable"},
		{"one denied path of two", "part.test", func(a *egress.Ask) { a.Paths = []string{"/x", "/admin/x"} }, "not_requestable"},
		{"a name that the floor closes", "metadata.google.internal", nil, "not_requestable"},
		{"loopback by name", "x.localhost", nil, "not_requestable"},
		{"an address", "203.0.113.9", nil, "invalid_request"},
		{"a wildcard", "*.new.test", nil, "invalid_request"},
		{"no name", "a b", nil, "invalid_request"},
		{"no reason", "why.test", func(a *egress.Ask) { a.Why = " \x1b " }, "invalid_request"},
		{"a day and a second", "day.test", func(a *egress.Ask) { a.For = "24h1s" }, "invalid_request"},
		{"a whole day", "day.test", func(a *egress.Ask) { a.For = "24h" }, ""},
		{"a width of its own", "w.test", func(a *egress.Ask) { a.Width = "all" }, "invalid_request"},
		{"paths of ssh", "s.test", func(a *egress.Ask) { a.Protocol, a.Paths = "ssh", []string{"/"} }, "invalid_request"},
		{"ssh", "s.test", func(a *egress.Ask) { a.Protocol = "ssh" }, ""},
		{"a pattern", "p.test", target("GET", "/*/x"), "invalid_request"},
		{"all below a path", "p.test", target("GET", "/a/**"), ""},
		{"a path of two readings", "p.test", target("GET", "/a/%zz"), "invalid_request"},
		{"a method in small letters", "p.test", target("get", "/"), "invalid_request"},
	} {
		a, err := ask(t, w, b, r.host, func(a *egress.Ask) {
			if r.change != nil {
				r.change(a)
			}
		})
		switch {
		case r.code != "" && codeOf(err) != r.code:
			t.Errorf("%s: %v, want %s", r.name, err, r.code)
		case r.code == "" && err != nil:
			t.Errorf("%s: %v", r.name, err)
		case r.code == "":
			c.Do("POST", "/requests/"+a.ID+"/deny", object{}).Want(200) // room for the next
		}
	}
	// What became denied since is not given either.
	id, err := ask(t, w, b, "later.test")
	if err != nil {
		t.Fatal(err)
	}
	c.Do("PUT", "/settings/egress", document(object{"id": "not", "action": "deny", "hosts": []string{"later.test"}})).Want(200)
	c.Do("POST", "/requests/"+id.ID+"/approve", object{}).Refused(409, "rule_denied")
	if c.Do("GET", "/requests/"+id.ID, nil).String("state") != "open" {
		t.Error("a refused approval decided the request")
	}
}

// TestEdgeIsNotBelieved: an edge that names another org, another incarnation or a sandbox that is over, gets nothing.
func TestEdgeIsNotBelieved(t *testing.T) {
	w := apitest.New(t)
	mine, other := w.Org("one"), w.Org("two")
	box := mine.Sandbox()
	good := binding(t, w, mine, box)
	request, err := ask(t, w, good, "a.test")
	if err != nil {
		t.Fatal(err)
	}
	neighbour := binding(t, w, mine, mine.Sandbox())
	if _, err := w.API.Access(t.Context(), neighbour, request.ID, 0); codeOf(err) != "request_not_found" {
		t.Errorf("a neighbour's request: %v", err)
	}
	if _, err := w.API.Access(t.Context(), good, request.ID, 0); err != nil {
		t.Errorf("its own: %v", err)
	}
	for name, change := range map[string]func(*egress.Binding){
		"another org":         func(b *egress.Binding) { b.Org = other.Org },
		"another incarnation": func(b *egress.Binding) { b.Incarnation++ },
		"a made-up sandbox":   func(b *egress.Binding) { b.Sandbox = "sbx_x" },
	} {
		b := good
		change(&b)
		if _, err := ask(t, w, b, "b.test"); codeOf(err) != "sandbox_not_running" {
			t.Errorf("asking as %s: %v", name, err)
		}
		if _, err := w.API.Access(t.Context(), b, request.ID, 0); codeOf(err) != "sandbox_not_running" {
			t.Errorf("looking as %s: %v", name, err)
		}
	}
	mine.Do("DELETE", "/sandbox/"+box, nil).Want(200)
	if _, err := ask(t, w, good, "b.test"); codeOf(err) != "sandbox_not_running" {
		t.Errorf("asking after the end: %v", err)
	}
	if mine.Do("GET", "/requests/"+request.ID, nil).Want(200).String("state") != "expired" {
		t.Error("the request outlives its sandbox")
	}
	mine.Do("POST", "/requests/"+request.ID+"/approve", object{}).Refused(409, "not_open")
}

// TestWhoAsksDoesNotDecide: neither a sandbox's principal nor a key without the scope.
func TestWhoAsksDoesNotDecide(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	box := c.Sandbox()
	id := asked(t, w, c, box, "a.test")
	r, err := w.Store.AccessRequest(t.Context(), c.Org, id, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	r.State, r.ExpiresAt = store.AccessApproved, time.Now().Add(time.Hour)
	itself := sso.Sandbox(box, c.Org)
	itself.Scopes = sso.Scopes()
	for _, p := range []sso.Principal{itself, sso.System("control", c.Org)} {
		_, err := w.Store.Change(t.Context(), store.By{Principal: p}, func(tx *store.Tx) error {
			_, err := tx.DecideAccessRequest(t.Context(), r)
			return err
		})
		if !errors.Is(err, store.ErrSandboxDecides) {
			t.Errorf("%s decides: %v", p, err)
		}
	}
	c.With([]string{"read", "write", "admin", "grants"}).Do("POST", "/requests/"+id+"/approve", object{}).Refused(403, "scope_missing")
	if c.Do("GET", "/requests/"+id, nil).String("state") != "open" {
		t.Error("it is decided")
	}
	c.With([]string{"approve"}).Do("POST", "/requests/"+id+"/approve", object{}).Want(200)
}

// TestOpenRequestsAreBounded: ten of a sandbox; equal ones are one, and a denied one is not asked again at once.
func TestOpenRequestsAreBounded(t *testing.T) {
	now := time.Now()
	w := apitest.New(t, func(c *api.Config) { c.Now = func() time.Time { return now } })
	c := w.Org("one")
	b, other := binding(t, w, c, c.Sandbox()), binding(t, w, c, c.Sandbox())
	first, err := ask(t, w, b, "h0.test", target("GET", "/a"))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ask(t, w, b, "H0.test", target("GET", "/a"), func(a *egress.Ask) { a.Why = "other words" }); err != nil || again.ID != first.ID {
		t.Errorf("an equal one: %+v, %v", again, err)
	}
	for i := range 9 {
		if _, err := ask(t, w, b, fmt.Sprintf("h%d.test", i+1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ask(t, w, b, "h10.test"); codeOf(err) != "too_many_open_requests" {
		t.Errorf("the eleventh: %v", err)
	}
	if again, err := ask(t, w, b, "h0.test", target("GET", "/a")); err != nil || again.ID != first.ID {
		t.Errorf("an equal one, with ten open: %+v, %v", again, err)
	}
	if _, err := ask(t, w, other, "h10.test"); err != nil {
		t.Errorf("another sandbox: %v", err)
	}
	c.Do("POST", "/requests/"+first.ID+"/deny", object{"reason": "no"}).Want(200)
	if again, err := ask(t, w, b, "h0.test", target("GET", "/a")); err != nil || again.ID != first.ID || again.State != "denied" {
		t.Errorf("just denied, and asked again: %+v, %v", again, err)
	}
	if _, err := ask(t, w, b, "h10.test"); err != nil {
		t.Errorf("after one was decided: %v", err)
	}
}

// TestApprovalReachesTheOwnList: a sandbox that narrows itself gets the rule there too; and a test of a document that speaks against
// the access holds.
func TestApprovalReachesTheOwnList(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	box := c.Sandbox(object{"egress": document(rule("own", "own.test"))})
	a := c.Do("POST", "/requests/"+asked(t, w, c, box, "api.test")+"/approve", object{}).Want(200)
	if fmt.Sprint(a.At("layers")) != "[ceiling own]" {
		t.Errorf("the rule is in %s", a.Body)
	}
	if v := c.Do("POST", "/policies/check", object{"host": "api.test", "sandbox": box}).Want(200); v.String("verdict") != "allow" {
		t.Errorf("api.test: %s", v.Body)
	}
	c.Do("PUT", "/settings/egress", object{"rules": []object{}, "tests": []object{{"name": "never", "host": "never.test", "expect": "deny"}}}).Want(200)
	c.Do("POST", "/requests/"+asked(t, w, c, box, "never.test")+"/approve", object{}).Refused(409, "tests_failed")
	c.Do("POST", "/requests/"+asked(t, w, c, box, "other.test")+"/approve", object{}).Want(200)
}

// TestGrantedHostIsGivenOpened: where a secret is granted, an approval lets nothing through unopened.
func TestGrantedHostIsGivenOpened(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	secret(c, "key")
	c.Do("PUT", "/secrets/key/grants", grants(grant("api.test"))).Want(200)
	box := c.Sandbox()
	a := c.Do("POST", "/requests/"+asked(t, w, c, box, "api.test")+"/approve", object{}).Want(200)
	if a.String("rule.tls") != "inspect" {
		t.Errorf("the rule is %s", a.Body)
	}
	a = c.Do("POST", "/requests/"+asked(t, w, c, box, "free.test")+"/approve", object{}).Want(200)
	if a.String("rule.tls") != "" {
		t.Errorf("the twin without a grant: %s", a.Body)
	}
	c.Do("POST", "/requests/"+asked(t, w, c, box, "api.test", func(a *egress.Ask) { a.Protocol, a.Port = "tls", 8443 })+"/approve", object{}).Want(200)
	// A width that the approver changes.
	id := asked(t, w, c, box, "u.test", target("GET", "/a/**"))
	a = c.Do("POST", "/requests/"+id+"/approve", object{"dry_run": true}).Want(200)
	if fmt.Sprint(a.At("rule.paths")) != "[/a/**]" || fmt.Sprint(a.At("rule.methods")) != "[GET]" || a.String("rule.tls") != "inspect" {
		t.Errorf("as asked: %s", a.Body)
	}
	a = c.Do("POST", "/requests/"+id+"/approve", object{"width": "host"}).Want(200)
	if a.At("rule.paths") != nil || a.String("request.width") != "host" {
		t.Errorf("widened: %s", a.Body)
	}
	c.Do("POST", "/requests/"+asked(t, w, c, box, "h.test")+"/approve", object{"width": "url"}).Refused(422, "invalid_request", "body.width")
	c.Do("POST", "/requests/"+asked(t, w, c, box, "h.test")+"/approve", object{"for": "25h"}).Refused(422, "invalid_request", "body.for")
}

// TestHeldOnlyWhileSomebodyWatches: with an approver's stream open an ask waits for its answer; without one it does not.
func TestHeldOnlyWhileSomebodyWatches(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	b := binding(t, w, c, c.Sandbox())
	request, err := ask(t, w, b, "a.test")
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if a, err := w.API.Access(t.Context(), b, request.ID, 20*time.Second); err != nil || a.State != "open" || a.Approver || time.Since(begun) > 10*time.Second {
		t.Errorf("nobody watches: %+v, %v after %v", a, err, time.Since(begun))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", w.URL+"/requests/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "ApiKey "+c.Key)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	event := func() (e struct {
		Event   string
		Request struct{ ID, State string }
	}) {
		t.Helper()
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := json.Unmarshal([]byte(data), &e); err != nil {
					t.Fatal(err)
				}
				return e
			}
		}
		t.Fatal("the stream ended: ", lines.Err())
		return e
	}
	if e := event(); e.Event != "egress.request.created" || e.Request.ID != request.ID {
		t.Errorf("the stream begins with %+v", e)
	}
	type held struct {
		egress.Access
		err error
	}
	wait := func(id string) <-chan held {
		out := make(chan held, 1)
		go func() {
			a, err := w.API.Access(context.Background(), b, id, 20*time.Second)
			out <- held{a, err}
		}()
		return out
	}
	first := wait(request.ID)
	select {
	case h := <-first:
		t.Fatalf("somebody watches, and it is not held: %+v", h)
	case <-time.After(100 * time.Millisecond):
	}
	c.Do("POST", "/requests/"+request.ID+"/approve", object{}).Want(200)
	if h := <-first; h.err != nil || h.State != "approved" {
		t.Errorf("held, it became %+v", h)
	}
	if e := event(); e.Event != "egress.request.decided" || e.Request.State != "approved" {
		t.Errorf("the stream goes on with %+v", e)
	}
	// The one who watched leaves: nobody waits any longer.
	next, err := ask(t, w, b, "b.test")
	if err != nil || !next.Approver {
		t.Fatalf("%+v, %v", next, err)
	}
	event()
	begun = time.Now()
	second := wait(next.ID)
	cancel()
	if h := <-second; h.err != nil || h.State != "open" || h.Approver || time.Since(begun) > 10*time.Second {
		t.Errorf("after the approver left: %+v after %v", h, time.Since(begun))
	}
	// Another org's approver is none here.
	other := w.Org("two")
	if a, err := w.API.Access(t.Context(), binding(t, w, other, other.Sandbox()), "req_x", 0); codeOf(err) != "request_not_found" || a.Approver {
		t.Errorf("%+v, %v", a, err)
	}
}
