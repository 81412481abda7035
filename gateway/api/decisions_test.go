package api_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/api/apitest"
)

func TestDecisionsAreListed(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	box, other := c.Sandbox(), c.Sandbox()
	start := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i := range 7 {
		record(t, w, c.Org, box, fmt.Sprintf("h%d.test", i), func(d *decisions.Decision) { d.Time = start.Add(time.Duration(i) * time.Minute) })
	}
	record(t, w, c.Org, other, "h0.test", func(d *decisions.Decision) { d.Verdict, d.Reason, d.Time = "allow", "allowed", start.Add(-time.Hour) })
	for _, path := range []string{"/settings/egress/audit", "/decisions"} {
		var hosts []string
		cursor := ""
		for {
			a := c.Do("GET", path+"?limit=3&cursor="+url.QueryEscape(cursor), nil).Want(200)
			for _, d := range a.At("decisions").([]any) {
				hosts = append(hosts, d.(map[string]any)["host"].(string))
			}
			if a.At("next_cursor") == nil {
				break
			}
			cursor = a.String("next_cursor")
		}
		if got := strings.Join(hosts, " "); got != "h6.test h5.test h4.test h3.test h2.test h1.test h0.test h0.test" {
			t.Errorf("newest first: %s", got)
		}
	}
	count := func(query string) int {
		return len(c.Do("GET", "/settings/egress/audit?"+query, nil).Want(200).At("decisions").([]any))
	}
	for query, want := range map[string]int{
		"": 8, "verdict=allow": 1, "verdict=deny": 7, "sandbox_id=" + box: 7, "host=h0.test": 2, "host=H0.Test.": 2, "host=none.test": 0, "sandbox_id=" + box + "&host=h0.test": 1,
		"since=" + url.QueryEscape(start.Add(3*time.Minute).Format(time.RFC3339)): 4, "since=90m": 7, "since=10h": 8, "limit=2": 2,
	} {
		if got := count(query); got != want {
			t.Errorf("%q: %d, want %d", query, got, want)
		}
	}
	for query, location := range map[string]string{"verdict=maybe": "query.verdict", "since=yesterday": "query.since", "limit=0": "query.limit", "limit=x": "query.limit", "hosts=x": "query.hosts"} {
		c.Do("GET", "/settings/egress/audit?"+query, nil).Refused(422, "invalid_request", location)
	}
}

func TestForeignCursorIsRefused(t *testing.T) {
	w := apitest.New(t)
	one, two := w.Org("one"), w.Org("two")
	for _, c := range []*apitest.Client{one, two} {
		for range 3 {
			record(t, w, c.Org, "sbx_x", "a.test")
		}
	}
	cursor := one.Do("GET", "/decisions?limit=1", nil).String("next_cursor")
	one.Do("GET", "/decisions?limit=1&cursor="+cursor, nil).Want(200)
	two.Do("GET", "/decisions?limit=1&cursor="+cursor, nil).Refused(422, "invalid_request", "query.cursor")
	one.Do("GET", "/decisions?limit=1&host=a.test&cursor="+cursor, nil).Refused(422, "invalid_request", "query.cursor")
	flipped := []byte(cursor)
	flipped[3] ^= 1
	for _, bad := range []string{string(flipped), "x", ".", cursor[:len(cursor)-2], "eyJ0IjoxLCJzIjoxfQ."} {
		one.Do("GET", "/decisions?limit=1&cursor="+url.QueryEscape(bad), nil).Refused(422, "invalid_request", "query.cursor")
	}
}

func TestExplain(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	box := c.Sandbox()
	c.Do("PUT", "/policies/web", document(object{"id": "no", "action": "deny", "hosts": []string{"bad.test"}, "message": "old words"})).Want(200)
	id := record(t, w, c.Org, box, "bad.test", func(d *decisions.Decision) {
		d.Reason, d.Rule, d.RuleLayer, d.Version = "rule_denied", "no", "policy:web", 1
	})
	// The rule is shown as it was when it decided.
	c.Do("PUT", "/policies/web", document(object{"id": "no", "action": "deny", "hosts": []string{"bad.test"}, "message": "new words"})).Want(200)
	a := c.Do("GET", "/decisions/"+id, nil).Want(200)
	if a.String("decision.id") != id || a.String("rule.message") != "old words" || a.String("agent_guidance") == "" || !strings.Contains(a.String("summary"), "rule no of policy:web") || a.At("allow") != nil {
		t.Errorf("%s", a.Body)
	}
	id = record(t, w, c.Org, box, "new.test")
	a = c.Do("GET", "/decisions/"+id, nil).Want(200)
	if a.At("rule") != nil || a.String("allow.host") != "new.test" || a.String("allow.sandbox") != box || !strings.Contains(a.String("agent_guidance"), "No rule") {
		t.Errorf("%s", a.Body)
	}
	// What was allowed and failed afterwards is not said to have gone well.
	for failure, says := range map[string]string{"parse_error": "more than one way", "upstream_reset": "failed afterwards", "": "The request was allowed."} {
		id = record(t, w, c.Org, box, "good.test", func(d *decisions.Decision) {
			d.Verdict, d.Reason, d.Guidance, d.Closed, d.Error = "allow", "allowed", "", true, failure
		})
		a = c.Do("GET", "/decisions/"+id, nil).Want(200)
		if !strings.Contains(a.String("agent_guidance"), says) || failure != "" && !strings.HasSuffix(a.String("summary"), "; it ended with "+failure) {
			t.Errorf("%q: %s", failure, a.Body)
		}
	}
	c.Do("GET", "/decisions/dec_none", nil).Refused(404, "decision_not_found")
}

func TestDecisionsAreFollowed(t *testing.T) {
	w := apitest.New(t, func(c *api.Config) { c.Heartbeat = 20 * time.Millisecond })
	c := w.Org("one")
	box := c.Sandbox()
	record(t, w, c.Org, box, "before.test")
	record(t, w, w.Org("two").Org, "sbx_x", "foreign.test")
	var hosts []string
	last, beats := "", 0
	events(t, w, c, "GET", "/decisions/stream", "", func(id string, data map[string]any) bool {
		if data == nil {
			beats++
			if beats == 1 { // it is listening
				record(t, w, c.Org, box, "one.test")
				record(t, w, w.Org("three").Org, "sbx_x", "foreign.test")
				record(t, w, c.Org, box, "two.test")
			}
			return true
		}
		hosts = append(hosts, data["host"].(string))
		if data["host"] == "one.test" {
			last = id
		}
		return data["host"] != "two.test"
	})
	if strings.Join(hosts, " ") != "one.test two.test" {
		t.Errorf("followed %v", hosts)
	}
	record(t, w, c.Org, box, "three.test")
	hosts = nil
	events(t, w, c.Also("Last-Event-ID", last), "GET", "/decisions/stream?sandbox_id="+box+"&verdict=deny", "", func(_ string, data map[string]any) bool {
		if data != nil {
			hosts = append(hosts, data["host"].(string))
		}
		return len(hosts) < 2
	})
	if strings.Join(hosts, " ") != "two.test three.test" {
		t.Errorf("resumed with %v", hosts)
	}
}

func TestStreamEndsWithItsKey(t *testing.T) {
	w := apitest.New(t, func(c *api.Config) { c.Heartbeat = 10 * time.Millisecond })
	owner := w.Org("one")
	c := owner.With([]string{"read"})
	id := owner.Do("GET", "/api-keys", nil).String("api_keys.1.id")
	revoked := false
	events(t, w, c, "GET", "/decisions/stream", "", func(string, map[string]any) bool {
		if !revoked {
			owner.Do("DELETE", "/api-keys/"+id, nil).Want(200)
			revoked = true
		}
		return true // the server has to end it
	})
	if !revoked {
		t.Error("the stream ended early")
	}
}

func TestAllow(t *testing.T) {
	now := time.Now()
	w := apitest.New(t, func(c *api.Config) { c.Now = func() time.Time { return now } })
	c := w.Org("one")
	c.Do("PUT", "/policies/web", document(rule("own", "own.test"))).Want(200)
	box, plain := c.Sandbox(object{"policy": "web"}), c.Sandbox()
	record(t, w, c.Org, box, "api.test")
	record(t, w, c.Org, box, "api.test", func(d *decisions.Decision) { d.Layer, d.Port, d.Protocol = "dns", 0, "dns" })
	record(t, w, c.Org, box, "other.test")
	record(t, w, c.Org, plain, "api.test")
	record(t, w, c.Org, box, "api.test", func(d *decisions.Decision) { d.Time = now.Add(-48 * time.Hour) })
	record(t, w, c.Org, box, "api.test", func(d *decisions.Decision) { d.Reason = "floor_hard" })

	dry := c.Do("POST", "/allow", object{"host": "API.test", "for": "1h", "sandbox": box, "dry_run": true}).Want(200)
	if dry.At("applied") != false || dry.At("would_have_allowed.count") != 2.0 || dry.String("would_have_allowed.sandboxes.0") != box || dry.At("layers.0") != "ceiling" || dry.At("layers.1") != "policy:web" || dry.At("revision") != nil {
		t.Errorf("%s", dry.Body)
	}
	if a := c.Do("GET", "/settings/egress", nil); a.At("version") != 0.0 {
		t.Errorf("a dry run changed the ceiling: %s", a.Body)
	}
	check := func(sandbox string) string {
		return c.Do("POST", "/policies/check", object{"host": "api.test", "sandbox": sandbox}).Want(200).String("verdict")
	}
	if check(box) != "deny" {
		t.Error("allowed before")
	}
	did := c.Do("POST", "/allow", object{"host": "api.test", "for": "1h", "sandbox": box, "wait": true}).Want(200)
	if did.At("applied") != true || did.At("would_have_allowed.count") != 2.0 || int64(did.At("revision").(float64)) != w.Feed.Applied() {
		t.Errorf("%s", did.Body)
	}
	if check(box) != "allow" || check(plain) != "allow" { // the ceiling lets it pass, and the other has no policy of its own
		t.Error("not allowed after")
	}
	if a := c.Do("POST", "/allow", object{"host": "api.test", "sandbox": box}).Want(200); a.At("already_allowed") != true || a.At("applied") != false {
		t.Errorf("%s", a.Body)
	}
	now = now.Add(61 * time.Minute)
	if check(box) != "deny" {
		t.Error("allowed after its end")
	}
	// The next one sweeps the rules whose time is over.
	c.Do("POST", "/allow", object{"host": "api.test", "sandbox": box}).Want(200)
	if a := c.Do("GET", "/policies/web", nil); a.At("rules.1") == nil || a.At("rules.2") != nil || a.At("rules.0.id") != "own" {
		t.Errorf("%s", a.Body)
	}
	if a := c.Do("GET", "/audit?action=egress.allow", nil); a.At("total") != 2.0 || a.String("events.0.details.host") != "api.test" {
		t.Errorf("%s", a.Body)
	}
	c.Do("PUT", "/settings/egress", document(object{"id": "never", "action": "deny", "hosts": []string{"bad.test"}})).Want(200)
	c.Do("POST", "/allow", object{"host": "bad.test"}).Refused(409, "rule_denied")
	c.Do("POST", "/allow", object{"host": "metadata.google.internal"}).Refused(409, "floor_hard", "body.host")
	for body, location := range map[string]string{
		`{}`: "body", `{"host":"*.com"}`: "body.host", `{"host":"com"}`: "body.host", `{"host":"10.0.0.1"}`: "body.host", `{"host":"a b"}`: "body.host", `{"host":"x.test","for":"0s"}`: "body.for", `{"host":"x.test","for":"forever"}`: "body.for",
		`{"host":"x.test","for":"721h"}`: "body.for", `{"host":"x.test","port":65536}`: "body.port", `{"host":"x.test","protocol":"tcp"}`: "body.port", `{"host":"x.test","minutes":5}`: "body.minutes",
	} {
		c.Do("POST", "/allow", body).Refused(422, "invalid_request", location)
	}
	if a := c.Do("POST", "/allow", object{"host": "*.wild.test", "port": 8443, "dry_run": true}).Want(200); a.String("rule.hosts.0") != "*.wild.test" || a.At("rule.ports.0") != 8443.0 {
		t.Errorf("%s", a.Body)
	}
}

func TestAuditLog(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	box := c.Sandbox()
	c.Do("DELETE", "/sandbox/"+box, nil).Want(200)
	a := c.Do("GET", "/audit?sandbox_id="+box, nil).Want(200)
	if a.At("total") != 4.0 || a.String("events.3.action") != "sandbox.create" || a.String("events.3.sandbox_id") != box || a.String("events.3.outcome") != "success" || !strings.HasPrefix(a.String("events.3.user_id"), "key_") {
		t.Errorf("%s", a.Body)
	}
	if a := c.Do("GET", "/audit?limit=1&offset=1", nil).Want(200); a.At("events.1") != nil || a.At("total") != 5.0 {
		t.Errorf("%s", a.Body)
	}
	if a := c.Do("GET", "/audit?start_time="+url.QueryEscape(time.Now().Add(time.Hour).Format(time.RFC3339)), nil).Want(200); a.At("total") != 0.0 {
		t.Errorf("%s", a.Body)
	}
	c.Do("GET", "/audit?start_time=x", nil).Refused(422, "invalid_request", "query.start_time")
	c.Do("GET", "/audit?outcome=x", nil).Refused(422, "invalid_request", "query.outcome")
}
