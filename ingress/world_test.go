package ingress

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"portreeve.dev/ingress/certs"
	"portreeve.dev/ingress/forward"
	"portreeve.dev/ingress/route"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	token = "tk_right"
	slugA = "abcdefghijklmn27"
	slugB = "bbcdefghijklmn27"
)

// A world is a whole ingress between real clients and real apps.
type world struct {
	t      testing.TB
	server *Server
	boxes  *boxes
	roots  *x509.CertPool
	https  string // port
	http   string
	stop   context.CancelFunc
}

// boxes are the sandboxes: what gateway, control, node and inward are in a real one.
type boxes struct {
	mu      sync.Mutex
	apps    map[string]string // address by sandbox and port
	live    map[string]uint64 // generation by sandbox; none while it sleeps
	wakes   []string
	dials   []string
	takes   time.Duration // a wake
	wakeErr error
	dialErr error
	onDial  func(rec *route.Record)
	onWake  func(sandbox string, generation uint64)
}

func (b *boxes) Wake(ctx context.Context, sandbox string, from uint64) (uint64, error) {
	b.mu.Lock()
	b.wakes = append(b.wakes, fmt.Sprint(sandbox, "@", from))
	takes, err := b.takes, b.wakeErr
	b.mu.Unlock()
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.live[sandbox] <= from {
		b.live[sandbox] = from + 1
	}
	if b.onWake != nil {
		b.onWake(sandbox, from+1)
	}
	return b.live[sandbox], nil
}

func (b *boxes) Dial(ctx context.Context, rec *route.Record) (net.Conn, error) {
	b.mu.Lock()
	to := fmt.Sprintf("%s:%d", rec.Sandbox, rec.Port)
	b.dials = append(b.dials, fmt.Sprint(to, "@", rec.Generation))
	live, addr, err, hook := b.live[rec.Sandbox], b.apps[to], b.dialErr, b.onDial
	b.mu.Unlock()
	if hook != nil {
		hook(rec)
	}
	switch {
	case err != nil:
		return nil, err
	case live != rec.Generation:
		return nil, forward.ErrStale
	case addr == "":
		return nil, forward.ErrPortClosed
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, errors.Join(forward.ErrPortClosed, err)
	}
	return nc, nil
}

func (b *boxes) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

func (b *boxes) counts() (wakes, dials int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.wakes), len(b.dials)
}

func newWorld(t testing.TB, change ...func(*Config)) *world {
	t.Helper()
	w := &world{t: t, roots: x509.NewCertPool()}
	w.boxes = &boxes{apps: make(map[string]string), live: map[string]uint64{"sbx_a": 5, "sbx_b": 7}}
	ca, err := certs.NewDevCA("tunnel.localhost", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	w.roots.AppendCertsFromPEM(ca.PEM())
	c := Config{Domain: "tunnel.localhost", CookieKeys: [][]byte{[]byte(strings.Repeat("k", 32))}, Issuer: ca, Waker: w.boxes, Dialer: w.boxes}
	for _, f := range change {
		f(&c)
	}
	if w.server, err = New(c); err != nil {
		t.Fatal(err)
	}
	secure, plain := listen(t), listen(t)
	_, w.https, _ = net.SplitHostPort(secure.Addr().String())
	_, w.http, _ = net.SplitHostPort(plain.Addr().String())
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	done := make(chan error, 1)
	go func() { done <- w.server.Serve(ctx, secure, plain) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	w.routes(w.a(), w.b())
	return w
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// a is a private tunnel, b a public one of another org.
func (w *world) a(change ...func(*route.Record)) route.Record {
	return w.record(slugA, "a", 5, func(r *route.Record) { r.Public, r.TokenHash = false, sha256.Sum256([]byte(token)) }, change)
}

func (w *world) b(change ...func(*route.Record)) route.Record {
	return w.record(slugB, "b", 7, func(*route.Record) {}, change)
}

func (w *world) record(slug, name string, generation uint64, base func(*route.Record), change []func(*route.Record)) route.Record {
	r := route.Record{
		Host: slug + "-3000.tunnel.localhost", Tunnel: "tun_" + name, Sandbox: "sbx_" + name, Org: "org_" + name, Port: 3000,
		Generation: generation, State: route.Running, Public: true, AuthEpoch: 1, ExpiresAt: time.Now().Add(time.Hour), AnonymousWakes: 1000,
	}
	base(&r)
	for _, f := range change {
		f(&r)
	}
	return r
}

func (w *world) routes(records ...route.Record) {
	w.t.Helper()
	if err := w.server.Routes().Apply(records...); err != nil {
		w.t.Fatal(err)
	}
}

// app runs an app on port 3000 of a sandbox.
func (w *world) app(sandbox string, h http.HandlerFunc) {
	w.t.Helper()
	ln := listen(w.t)
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(ln) }()
	w.t.Cleanup(func() { s.Close() })
	w.boxes.set(func() { w.boxes.apps[sandbox+":3000"] = ln.Addr().String() })
}

// hello is an app that says who it is and what it was asked.
func hello(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %s %s", name, r.Method, r.RequestURI) }
}

func hostA(port string) string { return slugA + "-3000.tunnel.localhost:" + port }
func hostB(port string) string { return slugB + "-3000.tunnel.localhost:" + port }

// client is a browser without a screen. It follows no redirects.
func (w *world) client(h2 bool) *http.Client {
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		_, port, _ := net.SplitHostPort(addr)
		var d net.Dialer
		return d.DialContext(ctx, network, "127.0.0.1:"+port)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!h2)
	protocols.SetHTTP2(h2)
	tr := &http.Transport{DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: w.roots}, Protocols: protocols, DisableCompression: true}
	w.t.Cleanup(tr.CloseIdleConnections)
	jar, _ := cookiejar.New(nil)
	return &http.Client{Transport: tr, Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: 20 * time.Second}
}

// An answered is what came back.
type answered struct {
	*http.Response
	body string
}

// do sends a request; headers are pairs of name and value.
func (w *world) do(c *http.Client, method, url string, headers ...string) *answered {
	w.t.Helper()
	return w.send(c, method, url, nil, headers...)
}

func (w *world) send(c *http.Client, method, url string, body io.Reader, headers ...string) *answered {
	w.t.Helper()
	a, err := try(c, method, url, body, headers...)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

func try(c *http.Client, method, url string, body io.Reader, headers ...string) (*answered, error) {
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return &answered{resp, string(b)}, err
}

// want compares status and, unless empty, our code.
func (a *answered) want(t testing.TB, status int, code string) {
	t.Helper()
	if a.StatusCode != status || a.Header.Get("X-Portreeve-Code") != code {
		t.Errorf("%s %s: got %d %q %q, want %d %q", a.Request.Method, a.Request.URL, a.StatusCode, a.Header.Get("X-Portreeve-Code"), a.body, status, code)
	}
}

// eventually waits until f is true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
		timer := time.NewTimer(2 * time.Millisecond)
		<-timer.C
	}
}
