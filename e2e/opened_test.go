package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"portreeve.dev/lab"
)

// A script is what the program hostile says on one TLS connection.
type script struct {
	To       string     `json:"to"`
	H2       bool       `json:"h2,omitempty"`
	Requests []question `json:"requests"`
}

// A question is one request; an empty Host is api.test.
type question struct {
	Method string      `json:"method"`
	Target string      `json:"target"`
	Host   string      `json:"host"`
	Header [][2]string `json:"header,omitempty"`
	Body   string      `json:"body,omitempty"`
}

// A reply is the answer to a question; of status 0 if there was none.
type reply struct {
	Status int    `json:"status"`
	Type   string `json:"type"`
	Body   string `json:"body"`
}

func get(target string) question { return question{Method: "GET", Target: target} }

// at changes the host that a question names.
func (q question) at(host string) question { q.Host = host; return q }

// with adds a header.
func (q question) with(name, value string) question {
	q.Header = append(q.Header[:len(q.Header):len(q.Header)], [2]string{name, value})
	return q
}

// opened lets the sandbox ask api.test, all on one connection that it verified.
func (b *box) opened(h2 bool, questions ...question) []reply {
	b.t.Helper()
	return b.openedTo("api.test:443", h2, questions...)
}

func (b *box) openedTo(to string, h2 bool, questions ...question) []reply {
	b.t.Helper()
	host, _, _ := strings.Cut(to, ":")
	for i := range questions {
		if questions[i].Host == "" {
			questions[i].Host = host
		}
	}
	text, err := json.Marshal(script{to, h2, questions})
	if err != nil {
		b.t.Fatal(err)
	}
	open, said := b.hostile("opened", string(text))
	var replies []reply
	if !open || json.Unmarshal([]byte(strings.TrimPrefix(said, "ok ")), &replies) != nil {
		b.t.Fatalf("opened to %s: %s", to, said)
	}
	return replies
}

func statuses(replies []reply) string {
	var all []string
	for _, r := range replies {
		all = append(all, fmt.Sprint(r.Status))
	}
	return strings.Join(all, " ")
}

// inspect makes an allow rule under which TLS is opened.
func inspect(id, host string, more ...any) map[string]any {
	return allow(id, host, append([]any{"ports", []int{443}, "protocols", []string{"https"}, "tls", "inspect"}, more...)...)
}

var versions = map[string]bool{"HTTP/1.1": false, "HTTP/2": true}

// TestOpenedTLSJudgesEachRequest: method and path of every request on one connection, the refused ones without harm to the next.
func TestOpenedTLSJudgesEachRequest(t *testing.T) {
	l, p := shared(t)
	ceiling(t, p, inspect("api", "api.test", "methods", []string{"GET"}, "paths", []string{"/v1/**"}))
	for name, h2 := range versions {
		t.Run(name, func(t *testing.T) {
			b := armed(t, p)
			before := len(l.Web.Requests("api.test"))
			post := question{Method: "POST", Target: "/v1/x", Body: "hello"}
			replies := b.opened(h2, get("/v1/first?q=1"), post, get("/v2/x"), get("/v1/../v2/x"), get("/v1/%2e%2e/v2/x"), get("/v1/last"))
			if got, want := statuses(replies), "200 403 403 403 403 200"; got != want {
				t.Errorf("the statuses are %s, want %s: %+v", got, want, replies)
			}
			arrived := l.Web.Requests("api.test")[before:]
			if len(arrived) != 2 || arrived[0].URI != "/v1/first?q=1" || arrived[1].URI != "/v1/last" || !arrived[0].TLS || arrived[0].SNI != "api.test" {
				t.Errorf("what arrived: %+v", arrived)
			}
			for i, q := range map[int][2]string{1: {"POST", "/v1/x"}, 2: {"GET", "/v2/x"}} {
				var problem struct {
					Decision string `json:"decision_id"`
					Reason   string `json:"reason"`
					Guidance string `json:"agent_guidance"`
				}
				if err := json.Unmarshal([]byte(replies[i].Body), &problem); err != nil || replies[i].Type != "application/problem+json" {
					t.Errorf("the refusal of %v is %+v", q, replies[i])
				}
				d := b.decided("refuses "+q[0]+" "+q[1], func(d decision) bool { return d.ID == problem.Decision })
				if d.Verdict != "deny" || d.Reason != problem.Reason || d.Reason != "no_rule" || d.Method != q[0] || d.Path != q[1] || d.Level != "http" || problem.Guidance == "" {
					t.Errorf("%v is answered with %+v and recorded as %+v", q, problem, d)
				}
			}
			d := b.decided("allows the first", func(d decision) bool { return d.Path == "/v1/first" && d.Closed })
			if d.Verdict != "allow" || d.Status != 200 || d.Rule != "api" || d.Level != "http" || d.In == 0 {
				t.Errorf("the first is recorded as %+v", d)
			}
		})
	}
}

// TestSandboxTrustsTheOrgsAuthority: by the variables that it is given, and only so.
func TestSandboxTrustsTheOrgsAuthority(t *testing.T) {
	_, p := shared(t)
	ceiling(t, p, inspect("api", "api.test"))
	b := armed(t, p)
	const ask = `{"to":"api.test:443","requests":[{"method":"GET","target":"/","host":"api.test"}]}`
	if r := b.exec("sh", "-c", "/workspace/hostile opened '"+ask+"'"); r.Code != 0 {
		t.Errorf("with the variables: %+v", r)
	}
	if r := b.exec("sh", "-c", "SSL_CERT_FILE=/dev/null SSL_CERT_DIR=/dev/null /workspace/hostile opened '"+ask+"'"); r.Code == 0 || !strings.Contains(r.Stdout, "certificate") {
		t.Errorf("without them: %+v", r)
	}
	if r := b.exec("sh", "-c", `echo x >>"$SSL_CERT_FILE"`); r.Code == 0 {
		t.Errorf("it can change what it trusts: %+v", r)
	}
}

// TestOneIdentityOnOpenedTLS: on a connection that was opened for api.test, requests for another name go nowhere.
func TestOneIdentityOnOpenedTLS(t *testing.T) {
	l, p := shared(t)
	ceiling(t, p, inspect("api", "api.test"))
	b := armed(t, p)
	asked := len(l.DNS.Queries("evil.test"))
	before := len(l.Web.Requests(""))
	h1 := b.opened(false, get("/1"), get("/2").at("evil.test"), get("https://evil.test/3").at("evil.test"), get("/4").at("API.test.:443"))
	if got, want := statuses(h1), "200 403 403 200"; got != want {
		t.Errorf("the statuses are %s, want %s: %+v", got, want, h1)
	}
	h2 := b.opened(true, get("/1"), get("/2").at("evil.test"), get("/4"))
	if got, want := statuses(h2), "200 403 200"; got != want {
		t.Errorf("over HTTP/2 the statuses are %s, want %s: %+v", got, want, h2)
	}
	// Two names in one request can be read in two ways, which is a refusal of its own.
	for name, replies := range map[string][]reply{
		"an absolute form under the right Host": b.opened(false, get("/1"), get("https://evil.test/3")),
		"a second Host":                         b.opened(false, get("/1"), get("/2").with("Host", "evil.test")),
		"a host beside the authority":           b.opened(true, get("/1"), get("/2").with("host", "evil.test")),
	} {
		if got := statuses(replies); got != "200 400" && got != "200 0" {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, r := range l.Web.Requests("")[before:] {
		if r.Host != "api.test" && r.Host != "API.test.:443" || r.URI != "/1" && r.URI != "/4" {
			t.Errorf("what arrived: %+v", r)
		}
	}
	if n := len(l.Web.Requests("")) - before; n != 7 {
		t.Errorf("%d requests arrived, want the 7 right ones", n)
	}
	b.decided("is the last", func(d decision) bool { return d.Layer == "http" && d.Verdict == "deny" && d.Reason == "parse_error" })
	mismatches := 0
	for _, d := range b.decisions() {
		if d.Layer == "http" && d.Reason == "identity_mismatch" && d.Verdict == "deny" {
			mismatches++
		}
	}
	if mismatches != 3 {
		t.Errorf("%d decisions say identity_mismatch, want 3", mismatches)
	}
	if n := len(l.DNS.Queries("evil.test")); n != asked {
		t.Errorf("the name server was asked for evil.test %d times", n-asked)
	}
	quiet(t, l, "after all")
}

// TestUpstreamOfAnOpenedConnectionIsVerified: the sandbox can't see the certificate any more, so we must.
func TestUpstreamOfAnOpenedConnectionIsVerified(t *testing.T) {
	_, p := shared(t)
	bad := []string{"wrongname.test", "expired.test", "selfsigned.test"}
	rules := []map[string]any{inspect("api", "api.test")}
	for _, name := range bad {
		rules = append(rules, inspect("r-"+strings.TrimSuffix(name, ".test"), name))
	}
	ceiling(t, p, rules...)
	b := armed(t, p)
	for _, name := range bad {
		if got := statuses(b.openedTo(name+":443", false, get("/"))); got != "502" {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := statuses(b.opened(false, get("/"))); got != "200" {
		t.Errorf("api.test: %s", got)
	}
}

func TestStreamsGoThroughOpenedTLS(t *testing.T) {
	_, p := shared(t)
	ceiling(t, p, inspect("api", "api.test", "methods", []string{"GET"}, "paths", []string{"/v1/**"}))
	b := armed(t, p)
	if open, said := b.hostile("messages", "wss://api.test/v1/ws"); !open || said != "ok hello" {
		t.Errorf("a WebSocket: %s", said)
	}
	if open, said := b.hostile("messages", "wss://api.test/v2/ws"); open || !strings.Contains(said, "403") {
		t.Errorf("a WebSocket on another path: %s", said)
	}
	open, said := b.hostile("events", "https://api.test/v1/events")
	var first, second, third int
	if n, _ := fmt.Sscanf(said, "ok 0@%d 1@%d 2@%d", &first, &second, &third); !open || n != 3 {
		t.Fatalf("a stream of events: %s", said)
	}
	if gap := int(lab.EventGap.Milliseconds()); second < gap/2 || third < gap+gap/2 {
		t.Errorf("the events were held back: %s", said)
	}
}
