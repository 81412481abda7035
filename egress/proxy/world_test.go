package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"portreeve.dev/egress"
	"portreeve.dev/egress/egresstest"
	"portreeve.dev/policies"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A world is a proxy with everything around it: real sockets to sandbox and upstreams, real policies, and fakes with
// switches for what other packages do.
type world struct {
	t        testing.TB
	proxy    *Proxy
	ln       *egresstest.Wire
	bindings *egress.Bindings
	policies *egresstest.Policies
	names    names
	recorder *recorder
	dialer   *dialer
	flows    *flowTable
	floor    atomic.Pointer[policies.Floor]
	injector *injector
	orgCA    *authority
	realCA   *authority // of the upstreams
}

var (
	sandboxAddr = netip.MustParseAddr("10.200.0.1")
	selfAddr    = netip.MustParseAddr("198.18.255.1")
	synthetic   = netip.MustParsePrefix("198.18.0.0/15")
)

const (
	testOrg     = "org_1"
	testSandbox = "sbx_1"
)

// newWorld starts a proxy under a policy given as rules in JSON, without their brackets.
func newWorld(t testing.TB, rules string, change ...func(*Config)) *world {
	t.Helper()
	w := &world{
		t: t, ln: egresstest.NewWire(t), bindings: egress.NewBindings(nil), policies: egresstest.NewPolicies(t, rules),
		recorder: &recorder{closed: make(map[string]Closing), changed: make(chan struct{})},
		dialer:   &dialer{upstreams: make(map[string]string), failing: make(map[string]error), addrs: make(map[string]netip.Addr)},
		flows:    &flowTable{live: make(map[string]Flow)}, orgCA: newAuthority(t), realCA: newAuthority(t),
	}
	w.names = names{}
	for i, name := range []string{"good.test", "evil.test", "other.test", "api.test", "pass.test", "clear.test", "raw.test", "mixed.test"} {
		w.names[netip.AddrFrom4([4]byte{198, 18, 0, byte(i + 1)})] = name
	}
	if err := w.bindings.Bind(egress.Binding{Sandbox: testSandbox, Org: testOrg, Incarnation: 1, Generation: 1, Addr: sandboxAddr}); err != nil {
		t.Fatal(err)
	}
	w.under(policies.FloorConfig{Exempt: []policies.Exemption{{CIDR: netip.MustParsePrefix("203.0.113.0/24"), Orgs: []string{testOrg}}}})
	cfg := Config{
		Bindings: w.bindings, Policies: w.policies, Floor: w.floor.Load, Names: w.names, Recorder: w.recorder, Dialer: w.dialer, Flows: w.flows,
		Certificates: w.orgCA, UpstreamRoots: w.realCA.pool(), SelfAddr: selfAddr,
		Log: slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(&cfg)
	}
	w.injector, _ = cfg.Injector.(*injector)
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.proxy = p
	served := make(chan error, 1)
	go func() { served <- p.Serve(context.Background(), w.ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.Shutdown(ctx)
		if err := <-served; err != nil && err != http.ErrServerClosed { // a test may end before it began
			t.Errorf("serving: %v", err)
		}
		w.flows.check(t)
	})
	return w
}

// under puts another floor in force.
func (w *world) under(cfg policies.FloorConfig) {
	w.t.Helper()
	floor, err := policies.NewFloor(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.floor.Store(floor)
}

type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	if testing.Verbose() {
		l.t.Logf("%s", bytes.TrimSpace(p))
	}
	return len(p), nil
}

// addrOf returns the synthetic address of a name.
func (w *world) addrOf(name string) netip.Addr {
	for a, n := range w.names {
		if n == name {
			return a
		}
	}
	w.t.Fatalf("%q has no synthetic address", name)
	return netip.Addr{}
}

// connect opens a connection of the sandbox to a name, or to an address, and a port.
func (w *world) connect(host string, port uint16) *net.TCPConn {
	w.t.Helper()
	addr, err := netip.ParseAddr(host)
	if err != nil {
		addr = w.addrOf(host)
	}
	return w.ln.Dial(w.t, sandboxAddr, netip.AddrPortFrom(addr, port))
}

// client returns an HTTP client in the sandbox. Names are found synthetically, whatever the URL's port.
func (w *world) client(h2 bool, roots *x509.CertPool) *http.Client {
	tr := &http.Transport{
		DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			n, err := strconv.ParseUint(port, 10, 16)
			if err != nil {
				return nil, err
			}
			return w.connect(host, uint16(n)), nil
		},
		TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: h2, DisableCompression: true,
	}
	if !h2 {
		tr.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// upstream starts a server that answers for name at its port: TLS if the port says so. The proxy knows already that it speaks HTTP/2.
func (w *world) upstream(name string, port uint16, h http.Handler) *httptest.Server {
	w.t.Helper()
	w.proxy.memory.put(memoryKey{about: speaksH2, org: testOrg, host: name, port: port}, true)
	return w.stranger(name, port, h)
}

// stranger is upstream for one of which nothing is known.
func (w *world) stranger(name string, port uint16, h http.Handler) *httptest.Server {
	w.t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = discardLog()
	if port == 443 || port == 8443 {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{*w.realCA.leaf(w.t, name)}}
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	w.t.Cleanup(s.Close)
	w.dialer.serve(name, port, s.Listener.Addr().String())
	return s
}

// exchangeRaw sends bytes on a connection and returns everything that comes back until its end.
func exchangeRaw(t testing.TB, nc net.Conn, send string) string {
	t.Helper()
	defer nc.Close()
	_, _ = io.WriteString(nc, send) // the other side may have said no already
	if c, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
	nc.SetReadDeadline(time.Now().Add(10 * time.Second))
	got, err := io.ReadAll(nc)
	if isTimeout(err) {
		t.Fatal("no end of the answer in 10 s")
	}
	return string(got)
}

// readAnswer reads one HTTP answer.
func readAnswer(t testing.TB, r *bufio.Reader) (*http.Response, string) {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// problemIn reads the refusal out of an answer.
func problemIn(t testing.TB, resp *http.Response) problem {
	t.Helper()
	defer resp.Body.Close()
	var p problem
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if ct := resp.Header.Get("Content-Type"); ct != "application/problem+json" {
		t.Fatalf("status %d, content type %q, body %q", resp.StatusCode, ct, body)
	}
	if err := json.Unmarshal(body, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// isReset reports whether a read ended by RST.
func isReset(err error) bool { return err != nil && strings.Contains(err.Error(), "connection reset") }

// echo answers with what it was asked.
func echo() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.Host, r.RequestURI, body)
	})
}

const (
	allowGood  = `{"id": "good", "action": "allow", "hosts": ["good.test"], "tls": "inspect", "foreign_credentials": "allow"}`
	allowClear = `{"id": "clear", "action": "allow", "hosts": ["clear.test"], "protocols": ["http"], "foreign_credentials": "allow"}`
	allowPass  = `{"id": "pass", "action": "allow", "hosts": ["pass.test"]}`
	allowRaw   = `{"id": "raw", "action": "allow", "hosts": ["raw.test"], "protocols": ["tcp"], "ports": [5432, 22, 9000]}`
	allowAPI   = `{"id": "api", "action": "allow", "hosts": ["api.test"], "tls": "inspect", "methods": ["GET", "POST"], "paths": ["/v1/**"], "foreign_credentials": "allow"}`
)
