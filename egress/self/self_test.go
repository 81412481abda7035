package self

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/decisions"
	"portreeve.dev/policies"
)

// Two sandboxes of one org, told apart by the loopback address that they call from.
var (
	boxA = egress.Binding{Sandbox: "sbx_a", Org: "org_1", Incarnation: 1, Generation: 1, Addr: netip.MustParseAddr("127.0.9.1"), MinRevision: 1}
	boxB = egress.Binding{Sandbox: "sbx_b", Org: "org_1", Incarnation: 1, Generation: 1, Addr: netip.MustParseAddr("127.0.9.2"), MinRevision: 1}
)

// A fakeControl keeps what it was asked. Its switches make it fail.
type fakeControl struct {
	mu      sync.Mutex
	asked   []egress.Binding
	asks    []Ask
	waits   []time.Duration
	paused  chan string
	err     error
	access  Access
	found   decisions.Decision
	pem     string
	hold    chan struct{} // Access returns once it is closed
	holding chan struct{} // has something in it for each that holds
}

func (f *fakeControl) note(b egress.Binding) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, b)
	return f.err
}

func (f *fakeControl) Ask(_ context.Context, b egress.Binding, a Ask) (Access, error) {
	f.mu.Lock()
	f.asks = append(f.asks, a)
	f.mu.Unlock()
	return f.access, f.note(b)
}

func (f *fakeControl) Access(ctx context.Context, b egress.Binding, id string, wait time.Duration) (Access, error) {
	f.mu.Lock()
	f.waits = append(f.waits, wait)
	f.mu.Unlock()
	if f.hold != nil {
		f.holding <- struct{}{}
		select {
		case <-f.hold:
		case <-ctx.Done():
		}
	}
	a := f.access
	a.ID = id
	return a, f.note(b)
}

func (f *fakeControl) Decision(_ context.Context, b egress.Binding, id string) (decisions.Decision, error) {
	return f.found, f.note(b)
}

func (f *fakeControl) Revoked(_ context.Context, b egress.Binding, id string) ([]byte, error) {
	if id != "0a" {
		return nil, &Refusal{http.StatusNotFound, "list_not_found", "there is no such list"}
	}
	return []byte("list of " + b.Org), nil
}

func (f *fakeControl) Authority(_ context.Context, b egress.Binding) (string, error) {
	return f.pem, f.note(b)
}

func (f *fakeControl) Pause(_ context.Context, b egress.Binding) error {
	f.paused <- b.Sandbox
	return f.note(b)
}

// A fakePolicy is what everybody is judged by; fail makes it stale.
type fakePolicy struct {
	snapshot *policies.Snapshot
	fail     error
}

func (p *fakePolicy) Snapshot(egress.Binding) (*policies.Snapshot, uint64, error) {
	return p.snapshot, 1, p.fail
}

// A world is a handler behind a real listener.
type world struct {
	t       *testing.T
	h       *Handler
	addr    string
	policy  *fakePolicy
	control *fakeControl
	denials Denials
	granted []Place
}

type peerKey struct{}

func newWorld(t *testing.T, document string, change ...func(*Config)) *world {
	t.Helper()
	w := &world{t: t, policy: &fakePolicy{}, control: &fakeControl{holding: make(chan struct{}, 16), paused: make(chan string, 16)}}
	w.use(document)
	floor, err := policies.NewFloor(policies.FloorConfig{})
	if err != nil {
		t.Fatal(err)
	}
	bindings := egress.NewBindings(nil)
	for _, b := range []egress.Binding{boxA, boxB} {
		if err := bindings.Bind(b); err != nil {
			t.Fatal(err)
		}
	}
	cfg := Config{
		Binding: func(ctx context.Context) (egress.Binding, bool) { // as the proxy does it: by the connection
			remote, _ := ctx.Value(peerKey{}).(net.Addr)
			return bindings.Lookup(remote.(*net.TCPAddr).AddrPort().Addr())
		},
		Policies: w.policy, Floor: func() *policies.Floor { return floor }, Denials: &w.denials, Control: w.control,
		Granted: func(egress.Binding) ([]Place, error) { return w.granted, w.policy.fail },
	}
	for _, f := range change {
		f(&cfg)
	}
	if w.h, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(w.h)
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, peerKey{}, c.RemoteAddr())
	}
	server.Start()
	t.Cleanup(server.Close)
	w.addr = server.Listener.Addr().String()
	return w
}

func (w *world) use(document string) {
	w.t.Helper()
	d, err := policies.Parse([]byte(document))
	if err != nil {
		w.t.Fatal(err)
	}
	if w.policy.snapshot, err = policies.Compile(policies.Layer{Name: "policy:hidden-name", Version: 3, Document: d}); err != nil {
		w.t.Fatal(err)
	}
}

// An answer is one that was read whole.
type answer struct {
	status int
	header http.Header
	body   string
}

// from asks as a sandbox. headers are pairs.
func (w *world) from(b egress.Binding, method, path, body string, headers ...string) answer {
	w.t.Helper()
	a, err := w.try(w.t.Context(), b, method, path, body, headers...)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

func (w *world) try(ctx context.Context, b egress.Binding, method, path, body string, headers ...string) (answer, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: b.Addr.AsSlice()}}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp4", w.addr)
	}}, Timeout: 20 * time.Second}
	r, err := http.NewRequestWithContext(ctx, method, "http://portreeve.internal"+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(all)}, err
}

// code is the word of a refusal.
func (a answer) code() string {
	var p struct{ Code string }
	_ = json.Unmarshal([]byte(a.body), &p)
	return p.Code
}

func denied(b egress.Binding, id, host string) *decisions.Decision {
	return &decisions.Decision{ID: id, Org: b.Org, Sandbox: b.Sandbox, Incarnation: b.Incarnation, Layer: "http", Verdict: "deny", Reason: "no_rule", RuleLayer: "policy:hidden-name",
		Host: host, Port: 443, Protocol: "https", Method: "POST", Path: "/x"}
}

const allowGood = `{"rules":[{"id":"good","action":"allow","hosts":["good.test"]}]}`

// TestCallerIsKnownByTheWire: whatever a request says about who it is, it is the sandbox of its connection.
func TestCallerIsKnownByTheWire(t *testing.T) {
	w := newWorld(t, allowGood)
	w.denials.Note(denied(boxA, "dec_a", "a.test"))
	w.denials.Note(denied(boxB, "dec_b", "b.test"))
	for _, b := range []egress.Binding{boxA, boxB} {
		a := w.from(b, "GET", "/denials?sandbox=sbx_a&sandbox_id=sbx_b", "", "X-Sandbox-Id", "sbx_a", "X-Portreeve-Sandbox", "sbx_b", "X-Org-Id", "org_2", "Forwarded", "for=127.0.9.2", "X-Forwarded-For", "127.0.9.2")
		if own := "dec_" + b.Sandbox[4:]; !strings.Contains(a.body, own) || strings.Count(a.body, "dec_") != 1 {
			t.Errorf("%s sees %s", b.Sandbox, a.body)
		}
		w.from(b, "POST", "/requests", `{"host":"x.test","why":"because"}`)
		if got := w.control.asked[len(w.control.asked)-1]; got != b {
			t.Errorf("control was asked for %+v, want %+v", got, b)
		}
	}
	if a := w.from(boxA, "POST", "/requests", `{"host":"x.test","why":"because","sandbox":"sbx_b"}`); a.status != 422 {
		t.Errorf("a sandbox that names one: %d %s", a.status, a.body)
	}
	nobody := boxA
	nobody.Addr = netip.MustParseAddr("127.0.9.3")
	if a := w.from(nobody, "GET", "/", ""); a.status != 403 || a.code() != "unbound" {
		t.Errorf("an address that is nobody's: %d %s", a.status, a.body)
	}
}

// TestOnlyOwnDenialsAreSeen: neither another's, nor those of what had the id before its memory became new.
func TestOnlyOwnDenialsAreSeen(t *testing.T) {
	w := newWorld(t, allowGood)
	w.denials.Note(denied(boxA, "dec_a", "a.test"))
	w.denials.Note(denied(boxB, "dec_b", "b.test"))
	before := boxA
	before.Incarnation = 7
	w.denials.Note(denied(before, "dec_before", "before.test"))
	allowed := denied(boxA, "dec_allowed", "allowed.test")
	allowed.Verdict = "allow"
	w.denials.Note(allowed)
	a := w.from(boxA, "GET", "/denials", "")
	if !strings.Contains(a.body, `"dec_a"`) || strings.Count(a.body, `"dec_`) != 1 {
		t.Errorf("sbx_a sees %s", a.body)
	}
	if a := w.from(boxA, "GET", "/decisions/dec_a", ""); a.status != 200 || !strings.Contains(a.body, `"request_url": "http://portreeve.internal/requests"`) {
		t.Errorf("its own decision: %d %s", a.status, a.body)
	}
	// What is not in memory is asked of control, and what control finds must be this sandbox's.
	w.control.found = *denied(boxB, "dec_b", "b.test")
	if a := w.from(boxA, "GET", "/decisions/dec_b", ""); a.status != 404 || a.code() != "decision_not_found" {
		t.Errorf("another's decision: %d %s", a.status, a.body)
	}
	w.control.found = *denied(before, "dec_before", "before.test")
	if a := w.from(boxA, "GET", "/decisions/dec_before", ""); a.status != 404 {
		t.Errorf("a decision of another incarnation: %d %s", a.status, a.body)
	}
	w.control.found = *denied(boxA, "dec_old", "old.test")
	if a := w.from(boxA, "GET", "/decisions/dec_old", ""); a.status != 200 || !strings.Contains(a.body, "old.test") {
		t.Errorf("an old decision of its own: %d %s", a.status, a.body)
	}
	w.denials.Drop("sbx_a")
	if a := w.from(boxA, "GET", "/denials", ""); strings.Contains(a.body, "dec_") {
		t.Errorf("after it was dropped: %s", a.body)
	}
	if a := w.from(boxB, "GET", "/denials", ""); !strings.Contains(a.body, "dec_b") {
		t.Errorf("the other one lost its own: %s", a.body)
	}
}

// TestRepeatedDenialsAreTold: the answer says of each row what the record says of it, how often and until when.
func TestRepeatedDenialsAreTold(t *testing.T) {
	w := newWorld(t, allowGood)
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	spool, err := decisions.Open(t.TempDir(), decisions.Config{FoldAfter: 2, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	refuse := func(host string, change func(*decisions.Decision)) {
		t.Helper()
		d := denied(boxA, decisions.NewID(), host)
		d.Time, d.Level = now, "http"
		change(d)
		if err := spool.Record(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		w.denials.Note(d)
		now = now.Add(time.Second)
	}
	for range 5 { // two rows, and one for the other three
		refuse("again.test", func(*decisions.Decision) {})
	}
	refuse("once.test", func(*decisions.Decision) {})
	refuse("looked.test", func(d *decisions.Decision) { // as the resolver counts
		d.Layer, d.Level, d.Count, d.Until, d.Closed = "dns", "", 4, now.Add(9*time.Second), true
	})
	refuse("ended.test", func(d *decisions.Decision) { d.Closed = true }) // an end is no denial
	now = now.Add(time.Minute)
	written, err := spool.Batch(100, false)
	if err != nil {
		t.Fatal(err)
	}
	var told struct{ Denials []denial }
	if err := json.Unmarshal([]byte(w.from(boxA, "GET", "/denials", "").body), &told); err != nil || len(told.Denials) != 5 || len(written.Rows) != 6 {
		t.Fatalf("%d rows, of which %+v are told: %v", len(written.Rows), told.Denials, err)
	}
	for _, row := range written.Rows {
		d, err := row.Decision()
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(told.Denials, func(v denial) bool { return v.ID == d.ID })
		if i < 0 && d.Host == "ended.test" {
			continue
		}
		if i < 0 {
			t.Errorf("%+v is not told", d)
			continue
		}
		if v := told.Denials[i]; max(v.Count, 1) != max(d.Count, 1) || !v.Until.Equal(d.Until) || !v.Time.Equal(d.Time) {
			t.Errorf("told is %+v, recorded %+v", v, d)
		}
	}
	if first := told.Denials[len(told.Denials)-1]; first.Count != 0 || !first.Until.IsZero() {
		t.Errorf("one that was refused once: %+v", first)
	}
	if a := w.from(boxA, "GET", "/decisions/"+told.Denials[2].ID, ""); !strings.Contains(a.body, `"count": 3`) || !strings.Contains(a.body, `"until"`) {
		t.Errorf("by its id: %s", a.body)
	}
}

func TestDenialsAreBounded(t *testing.T) {
	var m Denials
	for i := range 3 * denialsEach {
		m.Note(denied(boxA, fmt.Sprint("dec_", i), "x.test"))
	}
	if all := m.Of("sbx_a", 1); len(all) != denialsEach || all[0].ID != fmt.Sprint("dec_", 3*denialsEach-1) {
		t.Errorf("%d are remembered, the newest is %s", len(all), all[0].ID)
	}
	for i := range denialsBoxes {
		b := boxB
		b.Sandbox = fmt.Sprint("sbx_", i)
		m.Note(denied(b, "dec", "x.test"))
	}
	if len(m.boxes) != denialsBoxes || len(m.order) != denialsBoxes || len(m.Of("sbx_a", 1)) != 0 {
		t.Errorf("%d sandboxes are remembered", len(m.boxes))
	}
}

// TestAskingIsBounded: by number, by size, and by how many wait at a time; and each sandbox by itself.
func TestAskingIsBounded(t *testing.T) {
	now := time.Now()
	w := newWorld(t, allowGood, func(c *Config) {
		c.Limits = Limits{Rate: 1, Burst: 12, AskEvery: time.Hour, AskBurst: 2, Waits: 1, OrgWaits: 8}
		c.Now = func() time.Time { return now }
	})
	ask := func(b egress.Binding) answer {
		return w.from(b, "POST", "/requests", `{"host":"x.test","why":"because"}`)
	}
	for range 2 {
		if a := ask(boxA); a.status != 201 {
			t.Fatalf("within the bounds: %d %s", a.status, a.body)
		}
	}
	if a := ask(boxA); a.status != 429 || a.header.Get("Retry-After") == "" {
		t.Errorf("the third ask of two: %d %s", a.status, a.body)
	}
	if a := ask(boxB); a.status != 201 {
		t.Errorf("another sandbox: %d %s", a.status, a.body)
	}
	for name, body := range map[string]string{
		"a large body": `{"host":"x.test","why":"` + strings.Repeat("x", maxBody) + `"}`,
	} {
		if a := w.from(boxA, "POST", "/requests", body); a.status != 413 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	// One waits; the next one of the same sandbox does not.
	w.control.hold = make(chan struct{})
	first := make(chan answer, 1)
	go func() {
		a, _ := w.try(context.WithoutCancel(t.Context()), boxA, "GET", "/requests/req_1", "", "Prefer", "wait=90")
		first <- a
	}()
	<-w.control.holding
	if a := w.from(boxA, "GET", "/requests/req_1", "", "Prefer", "wait=1"); a.status != 429 {
		t.Errorf("a second one that waits: %d %s", a.status, a.body)
	}
	close(w.control.hold)
	if a := <-first; a.status != 200 {
		t.Errorf("the first one: %d %s", a.status, a.body)
	}
	if w.control.waits[0] != maxWait {
		t.Errorf("it waits %v, at most %v may be", w.control.waits[0], maxWait)
	}
	refused := 0
	for range 12 {
		if w.from(boxA, "GET", "/", "").status == 429 {
			refused++
		}
	}
	if refused == 0 {
		t.Error("over its rate it is not refused")
	}
	now = now.Add(time.Minute)
	if a := w.from(boxA, "GET", "/", ""); a.status != 200 {
		t.Errorf("a minute later: %d", a.status)
	}
}

// TestAnswersSayNamesOnly: no policy's name, no credential, no cookie, and nothing for another origin.
func TestAnswersSayNamesOnly(t *testing.T) {
	w := newWorld(t, `{"rules":[{"id":"good","action":"allow","hosts":["good.test"],"tls":"inspect"},{"id":"bare","action":"allow","hosts":["bare.test"]}]}`)
	w.granted = []Place{{"good.test", 443}, {"closed.test", 443}}
	w.denials.Note(denied(boxA, "dec_a", "a.test"))
	w.control.pem = "-----BEGIN CERTIFICATE-----\nxx\n-----END CERTIFICATE-----\n"
	w.control.access = Access{State: "open"}
	if a := w.from(boxA, "GET", "/services", ""); a.status != 200 || !strings.Contains(a.body, `"good.test"`) || strings.Contains(a.body, "closed.test") || strings.Contains(a.body, "bare.test") {
		t.Errorf("services: %d %s", a.status, a.body)
	}
	for _, r := range []struct{ method, path, body string }{
		{"GET", "/", ""}, {"GET", "/reach", ""}, {"POST", "/check", `{"url":"https://good.test/"}`}, {"POST", "/check", `{"host":"other.test"}`}, {"GET", "/denials", ""},
		{"GET", "/decisions/dec_a", ""}, {"POST", "/requests", `{"host":"x.test","why":"y"}`}, {"GET", "/requests/req_1", ""}, {"GET", "/services", ""},
		{"GET", "/ca.pem", ""}, {"GET", "/ca/0a.crl", ""}, {"POST", "/pause", ""}, {"OPTIONS", "/reach", ""}, {"DELETE", "/requests/req_1", ""}, {"GET", "/made-up", ""},
	} {
		a := w.from(boxA, r.method, r.path, r.body, "Origin", "http://evil.test", "Cookie", "a=b")
		if strings.Contains(a.body, "hidden-name") {
			t.Errorf("%s %s names the policy: %s", r.method, r.path, a.body)
		}
		for name := range a.header {
			if strings.HasPrefix(name, "Access-Control") || name == "Set-Cookie" {
				t.Errorf("%s %s sends %s", r.method, r.path, name)
			}
		}
		if a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s: %v", r.method, r.path, a.header)
		}
	}
	for path, want := range map[string]int{"/ca/0a.crl": 200, "/ca/0b.crl": 404, "/ca/0a": 404, "/ca/x.crl": 404, "/ca/" + strings.Repeat("0a", 40) + ".crl": 404} {
		if a := w.from(boxA, "GET", path, ""); a.status != want || want == 200 && (a.body != "list of "+boxA.Org || a.header.Get("Content-Type") != "application/pkix-crl") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	w.control.pem += "-----BEGIN EC PRIVATE KEY-----\n"
	if a := w.from(boxA, "GET", "/ca.pem", ""); a.status != 503 || strings.Contains(a.body, "PRIVATE") {
		t.Errorf("with a key in it: %d %s", a.status, a.body)
	}
	w.control.err = errors.New("dialing 10.1.2.3: secret-cause")
	if a := w.from(boxB, "POST", "/requests", `{"host":"x.test","why":"y"}`); a.status != 503 || strings.Contains(a.body, "secret-cause") {
		t.Errorf("a failure of control's: %d %s", a.status, a.body)
	}
}

// TestCheckIsTheEvaluators: what check says is what the policy in force says, and without a fresh one nothing.
func TestCheckIsTheEvaluators(t *testing.T) {
	w := newWorld(t, `{"rules":[
		{"id":"good","action":"allow","hosts":["good.test"],"tls":"inspect","methods":["GET"],"paths":["/open/**"]},
		{"id":"wild","action":"allow","hosts":["*.wild.test"]},
		{"id":"not","action":"deny","hosts":["bad.wild.test"],"message":"never this one"}]}`)
	for _, c := range []struct {
		body, verdict, reason string
		requestable           bool
	}{
		{`{"url":"https://good.test/open/x"}`, "allow", "allowed", false},
		{`{"url":"https://good.test/shut"}`, "deny", "no_rule", true},
		{`{"host":"good.test","method":"POST","path":"/open/x"}`, "deny", "no_rule", true},
		{`{"host":"GOOD.test."}`, "allow", "allowed", false},
		{`{"host":"a.wild.test"}`, "allow", "allowed", false},
		{`{"host":"bad.wild.test"}`, "deny", "rule_denied", false},
		{`{"host":"a.wild.test","port":8443}`, "deny", "no_rule", true},
		{`{"host":"localhost"}`, "deny", "floor_hard", false},
		{`{"host":"169.254.169.254","port":80,"protocol":"http"}`, "deny", "floor_hard", false},
		{`{"host":"10.0.0.1"}`, "deny", "floor_soft", false},
	} {
		a := w.from(boxA, "POST", "/check", c.body)
		var v struct {
			Verdict, Reason string
			Requestable     bool
			Guidance        string `json:"agent_guidance"`
		}
		if err := json.Unmarshal([]byte(a.body), &v); err != nil || a.status != 200 || v.Verdict != c.verdict || v.Reason != c.reason || v.Requestable != c.requestable {
			t.Errorf("%s: %d %s", c.body, a.status, a.body)
		}
		if c.reason == "rule_denied" && v.Guidance != "never this one" {
			t.Errorf("%s: the rule's words are not told: %s", c.body, a.body)
		}
	}
	for _, body := range []string{``, `[]`, `{"host":""}`, `{"url":"ftp://good.test/"}`, `{"url":"https://a:b@good.test/"}`, `{"url":"https://good.test","host":"good.test"}`, `{"host":"good.test","protocol":"x"}`,
		`{"host":"good.test","protocol":"tcp"}`, `{"host":"good.test","protocol":"ssh","path":"/x"}`, `{"host":"good.test","path":"/%zz"}`, `{"host":"good.test","more":1}`, `{"host":"a b"}`, `{"host":"good.test"} {}`} {
		if a := w.from(boxB, "POST", "/check", body); a.status != 422 && a.status != 400 {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	w.policy.fail = errors.New("stale")
	w.h.limits = newLimits(w.h.cfg.Limits)
	for _, path := range []string{"/reach", "/services"} {
		if a := w.from(boxA, "GET", path, ""); a.status != 503 || a.code() != "stale_policy" {
			t.Errorf("%s without a fresh policy: %d %s", path, a.status, a.body)
		}
	}
	if a := w.from(boxA, "POST", "/check", `{"host":"good.test"}`); a.status != 503 {
		t.Errorf("check without a fresh policy: %d %s", a.status, a.body)
	}
}

// TestReachIsWhatAllLayersLetThrough: told in words, and nothing that one of the layers keeps closed.
func TestReachIsWhatAllLayersLetThrough(t *testing.T) {
	w := newWorld(t, allowGood)
	parse := func(text string) *policies.Document {
		d, err := policies.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	past := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	soon := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	ceiling := parse(`{"rules":[
		{"id":"a","action":"allow","hosts":["both.test","ceiling.test","api.test"]},
		{"id":"w","action":"allow","hosts":["*.wild.test"],"ports":[443,"8000-8100"]},
		{"id":"r","action":"allow","cidrs":["45.0.0.0/28","203.0.113.0/28"],"ports":[7],"protocols":["tcp"]},
		{"id":"d","action":"deny","hosts":["denied.wild.test"]}]}`)
	policy := parse(`{"rules":[
		{"id":"a","action":"allow","hosts":["both.test","policy.test","denied.wild.test"],"expires_at":"` + soon + `"},
		{"id":"api","action":"allow","hosts":["api.test"],"tls":"inspect","methods":["GET","POST"],"paths":["/v1/**"]},
		{"id":"w","action":"allow","hosts":["one.wild.test"],"ports":[8080]},
		{"id":"r","action":"allow","cidrs":["45.0.0.0/24","203.0.113.0/24"],"ports":[7],"protocols":["tcp"]},
		{"id":"x","action":"allow","hosts":["ceiling.test"],"enabled":false},
		{"id":"y","action":"allow","hosts":["ceiling.test"],"expires_at":"` + past + `"}]}`)
	var err error
	if w.policy.snapshot, err = policies.Compile(policies.Layer{Name: "ceiling", Document: ceiling}, policies.Layer{Name: "policy:x", Document: policy}); err != nil {
		t.Fatal(err)
	}
	a := w.from(boxA, "GET", "/reach", "")
	var out struct{ Reach []reachable }
	if err := json.Unmarshal([]byte(a.body), &out); err != nil || a.status != 200 {
		t.Fatal(a.status, a.body, err)
	}
	var words []string
	for _, r := range out.Reach {
		words = append(words, r.Words)
	}
	got := strings.Join(words, "\n")
	for _, want := range []string{"api.test: https, port 443, only GET, POST, only on /v1/**", "both.test: https, port 443, until " + soon,
		"one.wild.test: https, port 8080", "45.0.0.0/28: tcp, port 7"} {
		if !strings.Contains(got+"\n", want+"\n") {
			t.Errorf("%q is missing in:\n%s", want, got)
		}
	}
	for _, not := range []string{"ceiling.test", "policy.test", "denied", "*.wild.test", "api.test: https, port 443\n", "both.test: https, port 443\n", "203.0.113"} {
		if strings.Contains(got+"\n", not) {
			t.Errorf("%q is told:\n%s", not, got)
		}
	}
}

// TestAskIsCompletedFromADenial: host, port and what was asked for come from the decision; only what may be asked for is passed on.
func TestAskIsCompletedFromADenial(t *testing.T) {
	w := newWorld(t, allowGood)
	w.control.access = Access{ID: "req_1", State: "open"}
	d := denied(boxA, "dec_a", "a.test")
	w.denials.Note(d)
	ruled := denied(boxA, "dec_ruled", "b.test")
	ruled.Reason = "rule_denied"
	w.denials.Note(ruled)
	if a := w.from(boxA, "POST", "/requests", `{"decision_id":"dec_a","why":"push","width":"url"}`); a.status != 201 || a.header.Get("Location") != RequestURL+"/req_1" {
		t.Fatalf("asking: %d %s", a.status, a.body)
	}
	got := w.control.asks[0]
	if got.Host != "a.test" || got.Port != 443 || got.Protocol != "https" || fmt.Sprint(got.Methods, got.Paths) != "[POST] [/x]" {
		t.Errorf("asked is %+v", got)
	}
	if a := w.from(boxA, "POST", "/requests", `{"decision_id":"dec_ruled","why":"push"}`); a.status != 409 || a.code() != "not_requestable" {
		t.Errorf("what a rule denies: %d %s", a.status, a.body)
	}
	for _, body := range []string{`{"why":"x"}`, `{"host":"x.test"}`, `{"host":"x.test","why":" "}`, `{"host":"x.test","why":"` + strings.Repeat("x", 501) + `"}`, `{"host":"x.test","decision_id":"dec_a","why":"x"}`} {
		if a := w.from(boxB, "POST", "/requests", body); a.status != 422 {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	w.control.err = &Refusal{Status: 429, Code: "too_many_open_requests", Detail: "ten"}
	if a := w.from(boxB, "POST", "/requests", `{"host":"x.test","why":"x"}`); a.status != 429 || a.code() != "too_many_open_requests" {
		t.Errorf("what control refuses: %d %s", a.status, a.body)
	}
	if a := w.from(boxA, "GET", "/requests/dec_1", ""); a.status != 404 {
		t.Errorf("an id of another kind: %d", a.status)
	}
}

// TestPauseAnswersFirst: the sandbox has its answer before anybody puts it to sleep.
func TestPauseAnswersFirst(t *testing.T) {
	w := newWorld(t, allowGood)
	if a := w.from(boxA, "POST", "/pause", ""); a.status != 202 {
		t.Fatalf("pause: %d %s", a.status, a.body)
	}
	select {
	case who := <-w.control.paused:
		if who != "sbx_a" {
			t.Errorf("paused is %s", who)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("control was not asked")
	}
	if asked, refused := w.h.Stats(); asked != 1 || refused != 0 {
		t.Errorf("counted %d and %d refused", asked, refused)
	}
}
