package webhooks

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"portreeve.dev/egress/decisions"
)

// patience is how long a test waits for what should take milliseconds.
const patience = 10 * time.Second

var secret = bytes.Repeat([]byte{7}, 32)

// A dialled is one connection that was asked for.
type dialled struct {
	org, host string
	port      uint16
}

// A world is a receiver, which the dialer leads to whatever the name, and a sender.
type world struct {
	*Sender
	t      *testing.T
	server *httptest.Server
	queue  *queue

	mu    sync.Mutex
	dials []dialled
	fail  error
}

func newWorld(t *testing.T, h http.HandlerFunc, change ...func(*Config)) *world {
	t.Helper()
	w := &world{t: t, queue: &queue{changed: make(chan struct{}), settled: make(chan settled, 64)}}
	w.server = httptest.NewUnstartedServer(h)
	w.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	w.server.StartTLS()
	t.Cleanup(w.server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(w.server.Certificate())
	cfg := Config{Queue: w.queue, Roots: roots, Dial: w.dial, Poll: 10 * time.Millisecond,
		Secrets: func(Endpoint, []byte) ([][]byte, error) { return [][]byte{secret}, nil }}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if w.Sender, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) dial(ctx context.Context, org, host string, port uint16) (net.Conn, error) {
	w.mu.Lock()
	w.dials = append(w.dials, dialled{org, host, port})
	fail := w.fail
	w.mu.Unlock()
	if fail != nil {
		return nil, fail
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", w.server.Listener.Addr().String())
}

// delivery is one to the receiver, whose certificate is example.com's.
func delivery(change ...func(*Delivery)) Delivery {
	d := Delivery{ID: "whd_1", Org: "org_1", Event: Test, Body: `{"type":"webhook.test"}`, Attempt: 1,
		Endpoint: Endpoint{ID: "whk_1", Org: "org_1", URL: "https://Example.com/hook?x=1", Events: []string{Every}, Retries: 2, Delay: time.Second, Timeout: 5 * time.Second}}
	for _, f := range change {
		f(&d)
	}
	return d
}

func (w *world) run() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
}

type settled struct {
	id    string
	o     Outcome
	again time.Time
}

// A queue in memory.
type queue struct {
	mu      sync.Mutex
	waiting []Delivery
	changed chan struct{}
	settled chan settled
}

func (q *queue) add(d ...Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, d...)
	close(q.changed)
	q.changed = make(chan struct{})
}

func (q *queue) DueWebhooks(_ context.Context, _ time.Duration, take func(org, endpoint string) bool) ([]Delivery, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var due, left []Delivery
	for _, d := range q.waiting {
		if take(d.Org, d.Endpoint.ID) {
			due = append(due, d)
		} else {
			left = append(left, d)
		}
	}
	q.waiting = left
	return due, nil
}

func (q *queue) SettleWebhook(_ context.Context, id string, o Outcome, again time.Time) error {
	q.settled <- settled{id, o, again}
	return nil
}

func (q *queue) WebhooksQueued() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changed
}

func (q *queue) next(t *testing.T) settled {
	t.Helper()
	select {
	case s := <-q.settled:
		return s
	case <-time.After(patience):
		t.Fatal("nothing is settled")
		return settled{}
	}
}

// TestOnlyTheDialerConnects: for the endpoint's org and the name in its URL, at each try; and what the dialer refuses is not sent.
func TestOnlyTheDialerConnects(t *testing.T) {
	got := make(chan string, 4)
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Host + r.RequestURI })
	t.Setenv("HTTPS_PROXY", w.server.URL)
	for range 2 {
		if o := w.Attempt(t.Context(), delivery()); !o.Delivered || o.Status != 200 {
			t.Fatalf("delivering: %+v", o)
		}
		if r := <-got; r != "Example.com/hook?x=1" {
			t.Errorf("the request is %s", r)
		}
	}
	if want := []dialled{{"org_1", "example.com", 443}, {"org_1", "example.com", 443}}; fmt.Sprint(w.dials) != fmt.Sprint(want) {
		t.Errorf("dialled %v, want %v", w.dials, want)
	}
	w.fail = errors.New("refused: floor_hard")
	if o := w.Attempt(t.Context(), delivery()); o.Delivered || o.Error != failDial || len(got) > 0 {
		t.Errorf("refused by the dialer: %+v", o)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	asked := 0
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		asked++
		http.Redirect(rw, r, "https://example.com/elsewhere", http.StatusTemporaryRedirect)
	})
	if o := w.Attempt(t.Context(), delivery()); o.Delivered || o.Status != 307 || asked != 1 || len(w.dials) != 1 {
		t.Errorf("%+v after %d requests and %d dials", o, asked, len(w.dials))
	}
}

// TestSignatureIsOverAllOfIt: what a receiver recomputes by the published rule, with each active secret.
func TestSignatureIsOverAllOfIt(t *testing.T) {
	now := time.Unix(1_900_000_000, 0)
	other := bytes.Repeat([]byte{9}, 24)
	type sent struct {
		header http.Header
		body   string
	}
	got := make(chan sent, 1)
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- sent{r.Header, string(body)}
	}, func(c *Config) {
		c.Now = func() time.Time { return now }
		c.Secrets = func(Endpoint, []byte) ([][]byte, error) { return [][]byte{secret, other}, nil }
	})
	if o := w.Attempt(t.Context(), delivery()); !o.Delivered {
		t.Fatalf("%+v", o)
	}
	s := <-got
	if s.header.Get("Webhook-Id") != "whd_1" || s.header.Get("Webhook-Timestamp") != "1900000000" || s.body != delivery().Body {
		t.Errorf("sent is %+v", s)
	}
	var want []string
	for _, key := range [][]byte{secret, other} {
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", s.header.Get("Webhook-Id"), s.header.Get("Webhook-Timestamp"), s.body)
		want = append(want, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	if got := s.header.Get("Webhook-Signature"); got != strings.Join(want, " ") {
		t.Errorf("signed %q, want %q", got, want)
	}
	for name := range s.header {
		if name == "Cookie" || name == "Authorization" || strings.HasPrefix(name, "X-") {
			t.Errorf("it carries %s", name)
		}
	}
	// The example of the published specification.
	key, err := ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	signature, _ := sign([][]byte{key}, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), `{"test": 2432232314}`)
	if signature != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("the published example is signed %s", signature)
	}
	for _, bad := range []string{"", "whsec_", "whsec_AAAA", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65)), "whsec_!"} {
		if _, err := ParseSecret(bad); err == nil {
			t.Errorf("%q is taken for a secret", bad)
		}
	}
	if _, err := ParseSecret(NewSecret()); err != nil {
		t.Error(err)
	}
}

// TestSlowAndEndlessAnswersEnd: silence, an endless head and an endless body end within the time of a try.
func TestSlowAndEndlessAnswersEnd(t *testing.T) {
	for name, c := range map[string]struct {
		h     http.HandlerFunc
		limit time.Duration // as long as what has to happen within it may take
		want  Outcome
	}{
		"silence":      {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 300 * time.Millisecond, Outcome{Error: failTimeout}},
		"a large head": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 2*maxHead)) }, 20 * time.Second, Outcome{Error: failAnswer}},
		"an endless body": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}, 2 * time.Second, Outcome{Delivered: true, Status: 200}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // only then does the server see the client leave
				c.h(rw, r)
			})
			begun := time.Now()
			if o := w.Attempt(t.Context(), delivery(func(d *Delivery) { d.Endpoint.Timeout = c.limit })); o != c.want || time.Since(begun) > 10*time.Second {
				t.Errorf("%+v after %v, want %+v", o, time.Since(begun), c.want)
			}
		})
	}
}

func TestReceiverMustProveItsName(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("it was told") })
	if o := w.Attempt(t.Context(), delivery(func(d *Delivery) { d.Endpoint.URL = "https://other.test/" })); o.Error != failTLS {
		t.Errorf("another name: %+v", o)
	}
	for _, bad := range []string{"http://example.com/", "https://u:p@example.com/", "https://127.0.0.1/", "https://[::1]/", "https://", "ftp://example.com", "https://example.com:0/", "https://exa mple.com/", "https:example.com"} {
		if o := w.Attempt(t.Context(), delivery(func(d *Delivery) { d.Endpoint.URL = bad })); o.Error != failURL {
			t.Errorf("%s: %+v", bad, o)
		}
	}
	if len(w.dials) != 1 {
		t.Errorf("dialled %v", w.dials)
	}
}

// TestTriedUntilDelivered: each failure is followed by a later try, until one succeeds or there are no more.
func TestTriedUntilDelivered(t *testing.T) {
	now := time.Unix(1_900_000_000, 0)
	status := make(chan int, 8)
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(<-status) }, func(c *Config) { c.Now = func() time.Time { return now } })
	w.run()
	try := func(attempt, code int) settled {
		t.Helper()
		status <- code
		w.queue.add(delivery(func(d *Delivery) { d.Attempt = attempt }))
		return w.queue.next(t)
	}
	for i, c := range []struct {
		attempt, code int
		again         time.Duration // 0: never
	}{{1, 500, time.Second}, {2, 302, 4 * time.Second}, {3, 404, 0}, {1, 204, 0}, {2, 200, 0}} {
		s := try(c.attempt, c.code)
		want := time.Time{}
		if c.again > 0 {
			want = now.Add(c.again)
		}
		if s.o.Status != c.code || s.o.Delivered != (c.code < 300) || !s.again.Equal(want) {
			t.Errorf("%d: %+v, want another try at %v", i, s, want)
		}
	}
	if got := again(Endpoint{Retries: 20, Delay: time.Second}, 15, now); got != now.Add(time.Hour) {
		t.Errorf("the fifteenth comes at %v", got)
	}
}

// TestSlowOrgHoldsNobodyElse: an org whose receivers are silent has its share of the tries, and another's go on.
func TestSlowOrgHoldsNobodyElse(t *testing.T) {
	release := make(chan struct{})
	var slow sync.WaitGroup
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			slow.Done()
			<-release
		}
	}, func(c *Config) { c.Parallel, c.PerOrg = 4, 2 })
	defer close(release)
	w.run()
	slow.Add(2)
	for i := range 6 {
		w.queue.add(delivery(func(d *Delivery) {
			d.ID, d.Endpoint.ID, d.Endpoint.URL = fmt.Sprint("whd_slow", i), fmt.Sprint("whk_slow", i), "https://example.com/slow"
		}))
	}
	slow.Wait()
	w.queue.add(delivery(func(d *Delivery) { d.ID, d.Org, d.Endpoint.ID = "whd_quick", "org_2", "whk_quick" }))
	if s := w.queue.next(t); s.id != "whd_quick" || !s.o.Delivered {
		t.Errorf("the other org's: %+v", s)
	}
}

// TestDenialsAreSummedUp: one event for all of them, the most frequent first, and never more than it may hold.
func TestDenialsAreSummedUp(t *testing.T) {
	sent := map[string]DeniedSummary{}
	now := time.Unix(1_900_000_000, 0).UTC()
	d := &Denials{Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler), Send: func(_ context.Context, org string, s DeniedSummary) error {
		sent[org] = s
		return nil
	}}
	add := func(org, host, verdict string, times int) {
		for range times {
			d.Add(decisions.Decision{ID: "dec_" + host, Org: org, Sandbox: "sbx_1", Verdict: verdict, Reason: "no_rule", Host: host, Port: 443, Path: "/secret-path"})
		}
	}
	add("org_1", "a.test", "deny", 3)
	add("org_1", "b.test", "deny", 2)
	d.Add(decisions.Decision{ID: "dec_more", Org: "org_1", Sandbox: "sbx_1", Verdict: "deny", Reason: "no_rule", Host: "b.test", Port: 443, Count: 3, Closed: true})
	d.Add(decisions.Decision{ID: "dec_end", Org: "org_1", Sandbox: "sbx_1", Verdict: "deny", Reason: "no_rule", Host: "b.test", Port: 443, Closed: true})
	add("org_1", "c.test", "allow", 9)
	add("org_2", "x.test", "deny", 1)
	for i := range 2 * deniedKept {
		add("org_3", fmt.Sprintf("h%d.test", i), "deny", 1)
	}
	d.Flush(t.Context())
	one := sent["org_1"]
	if one.Total != 8 || len(one.Denied) != 2 || one.Denied[0].Host != "b.test" || one.Denied[0].Times != 5 || one.Denied[1].Decision != "dec_a.test" {
		t.Errorf("org_1: %+v", one)
	}
	if s := sent["org_2"]; s.Total != 1 || len(s.Denied) != 1 || s.Denied[0].Host != "x.test" {
		t.Errorf("org_2: %+v", s)
	}
	if s := sent["org_3"]; s.Total != 2*deniedKept || len(s.Denied) != deniedShown {
		t.Errorf("org_3: %d of %d", len(s.Denied), s.Total)
	}
	body, err := Body(Denied, now, one)
	if err != nil || strings.Contains(string(body), "secret-path") || !json.Valid(body) {
		t.Errorf("%s, %v", body, err)
	}
	clear(sent)
	d.Flush(t.Context())
	if len(sent) != 0 {
		t.Errorf("a second time: %+v", sent)
	}
}
