package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"portreeve.dev/egress"
	"portreeve.dev/egress/decisions"
	"portreeve.dev/policies"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A world is a proxy with everything around it: real sockets to sandbox and upstreams, real policies, and fakes with
// switches for what other packages do.
type world struct {
	t        testing.TB
	proxy    *Proxy
	ln       *fakeListener
	bindings *egress.Bindings
	policies *policySource
	names    names
	recorder *recorder
	dialer   *dialer
	flows    *flowTable
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
		t: t, ln: newFakeListener(t), bindings: egress.NewBindings(), policies: &policySource{revision: 7},
		recorder: &recorder{closed: make(map[string]Closing), changed: make(chan struct{})},
		dialer:   &dialer{upstreams: make(map[string]string), failing: make(map[string]error), addrs: make(map[string]netip.Addr)},
		flows:    &flowTable{live: make(map[string]Flow)}, orgCA: newAuthority(t), realCA: newAuthority(t),
	}
	w.names = names{}
	for i, name := range []string{"good.test", "evil.test", "other.test", "api.test", "pass.test", "clear.test", "raw.test", "mixed.test"} {
		w.names[netip.AddrFrom4([4]byte{198, 18, 0, byte(i + 1)})] = name
	}
	w.policies.set(t, rules)
	if err := w.bindings.Bind(egress.Binding{Sandbox: testSandbox, Org: testOrg, Incarnation: 1, Generation: 1, Addr: sandboxAddr}); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Bindings: w.bindings, Policies: w.policies, Names: w.names, Recorder: w.recorder, Dialer: w.dialer, Flows: w.flows,
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
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
		w.flows.check(t)
	})
	return w
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
	return w.ln.connect(w.t, sandboxAddr, netip.AddrPortFrom(addr, port))
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

// upstream starts a server that answers for name at its port: TLS if the port says so.
func (w *world) upstream(name string, port uint16, h http.Handler) *httptest.Server {
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

// A fakeListener accepts real connections and gives them the addresses that the kernel would.
type fakeListener struct {
	*net.TCPListener
	mu     sync.Mutex
	cond   *sync.Cond
	routes map[int][2]netip.AddrPort // by the client's port
	fail   []error                   // of the next Accepts
}

func newFakeListener(t testing.TB) *fakeListener {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &fakeListener{TCPListener: ln.(*net.TCPListener), routes: make(map[int][2]netip.AddrPort)}
	l.cond = sync.NewCond(&l.mu)
	return l
}

func (l *fakeListener) connect(t testing.TB, src netip.Addr, dst netip.AddrPort) *net.TCPConn {
	t.Helper()
	nc, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	port := nc.LocalAddr().(*net.TCPAddr).Port
	l.mu.Lock()
	l.routes[port] = [2]netip.AddrPort{netip.AddrPortFrom(src, uint16(port)), dst}
	l.cond.Broadcast()
	l.mu.Unlock()
	return nc.(*net.TCPConn)
}

func (l *fakeListener) Accept() (net.Conn, error) {
	l.mu.Lock()
	if len(l.fail) > 0 {
		err := l.fail[0]
		l.fail = l.fail[1:]
		l.mu.Unlock()
		return nil, err
	}
	l.mu.Unlock()
	nc, err := l.TCPListener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if r, ok := l.routes[nc.RemoteAddr().(*net.TCPAddr).Port]; ok {
			return &fakeConn{Conn: nc, src: r[0], dst: r[1]}, nil
		}
		l.cond.Wait()
	}
}

type fakeConn struct {
	net.Conn
	src, dst netip.AddrPort
}

func (c *fakeConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.src) }
func (c *fakeConn) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.dst) }
func (c *fakeConn) NetConn() net.Conn    { return c.Conn }
func (c *fakeConn) CloseWrite() error    { return closeWrite(c.Conn) }
func (c *fakeConn) Read(p []byte) (int, error) {
	return c.Conn.Read(p)
}

type names map[netip.Addr]string

func (n names) InRange(a netip.Addr) bool { return synthetic.Contains(a) }
func (n names) Name(sandbox string, incarnation uint64, a netip.Addr) (string, bool) {
	name, ok := n[a]
	return name, ok && sandbox == testSandbox && incarnation == 1
}

// policySource holds one snapshot; err fails it.
type policySource struct {
	mu       sync.Mutex
	snapshot *policies.Snapshot
	revision uint64
	err      error
}

func (s *policySource) Snapshot(egress.Binding) (*policies.Snapshot, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot, s.revision, s.err
}

func (s *policySource) set(t testing.TB, rules string) {
	t.Helper()
	doc, err := policies.Parse([]byte(`{"rules": [` + rules + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := policies.Compile(policies.Layer{Name: "ceiling", Version: 3, Document: doc})
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshot = snapshot
	s.revision++
}

func (s *policySource) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// recorder keeps decisions in memory; err fails the writing.
type recorder struct {
	mu      sync.Mutex
	list    []decisions.Decision
	closed  map[string]Closing
	err     error
	changed chan struct{} // closed and renewed at each change
}

func (r *recorder) Record(_ context.Context, d *decisions.Decision) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	r.list = append(r.list, *d)
	r.notify()
	return nil
}

func (r *recorder) Close(_ context.Context, id string, end Closing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, twice := r.closed[id]; twice {
		panic("closed twice: " + id)
	}
	r.closed[id] = end
	r.notify()
}

func (r *recorder) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// wait returns the decisions once there are n of them, each allowed one closed if ended.
func (w *world) decisions(n int, ended bool) []decisions.Decision {
	w.t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		w.recorder.mu.Lock()
		list, changed := slices.Clone(w.recorder.list), w.recorder.changed
		ready := len(list) >= n
		for _, d := range list {
			if _, ok := w.recorder.closed[d.ID]; ended && !ok && d.Verdict == "allow" {
				ready = false
			}
		}
		w.recorder.mu.Unlock()
		if ready {
			if len(list) != n {
				w.t.Fatalf("%d decisions, want %d: %+v", len(list), n, list)
			}
			return list
		}
		select {
		case <-changed:
		case <-deadline:
			w.t.Fatalf("%d decisions after 10 s, want %d: %+v", len(list), n, list)
		}
	}
}

// decided returns the one decision there is, and how it ended.
func (w *world) decided() (decisions.Decision, Closing) {
	w.t.Helper()
	d := w.decisions(1, true)[0]
	w.recorder.mu.Lock()
	defer w.recorder.mu.Unlock()
	return d, w.recorder.closed[d.ID]
}

// dialer connects names to servers of the test, after asking what a real one asks.
type dialer struct {
	mu        sync.Mutex
	upstreams map[string]string // host:port to the real address
	failing   map[string]error
	addrs     map[string]netip.Addr // what a name resolves to; 203.0.113.1 if not here
	dialled   []string
	recorder  *recorder
	recorded  []int // how many decisions there were at each dial
}

func (d *dialer) serve(host string, port uint16, addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.upstreams[fmt.Sprintf("%s:%d", host, port)] = addr
}

func (d *dialer) Dial(ctx context.Context, t Target) (net.Conn, netip.Addr, error) {
	host := t.Host
	if host == "" {
		host = t.Addr.String()
	}
	key := fmt.Sprintf("%s:%d", host, t.Port)
	d.mu.Lock()
	d.dialled = append(d.dialled, key)
	to, ok, err := d.upstreams[key], true, d.failing[key]
	if to == "" {
		ok = false
	}
	addr, known := d.addrs[host]
	if d.recorder != nil {
		d.recorder.mu.Lock()
		d.recorded = append(d.recorded, len(d.recorder.list))
		d.recorder.mu.Unlock()
	}
	d.mu.Unlock()
	switch {
	case t.Host == "":
		addr = t.Addr
	case !known:
		addr = netip.MustParseAddr("203.0.113.1")
	}
	if err != nil {
		return nil, addr, err
	}
	if v := t.Address(addr); !v.Allowed() {
		return nil, addr, &RefusedError{Verdict: v}
	}
	if !ok {
		return nil, netip.Addr{}, &DialError{Kind: "resolve_nxdomain", Resolving: true}
	}
	var nd net.Dialer
	nc, err := nd.DialContext(ctx, "tcp4", to)
	if err != nil {
		return nil, addr, &DialError{Kind: "dial_refused", Err: err}
	}
	return nc, addr, nil
}

func (d *dialer) dials() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.dialled)
}

// flowTable holds flows up to a limit and can re-judge them.
type flowTable struct {
	mu    sync.Mutex
	live  map[string]Flow
	limit int
}

var errFull = errors.New("too many flows")

func (f *flowTable) Add(flow Flow) (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.limit > 0 && flow.Parent == "" && len(f.live) >= f.limit {
		return nil, errFull
	}
	f.live[flow.ID] = flow
	var once sync.Once
	return func() {
		once.Do(func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.live, flow.ID)
		})
	}, nil
}

// rejudge kills what the snapshot no longer allows.
func (f *flowTable) rejudge(s *policies.Snapshot) {
	f.mu.Lock()
	var gone []Flow
	for _, flow := range f.live {
		if r := flow.Request; !flow.Local && !s.Evaluate(&r).Allowed() {
			gone = append(gone, flow)
		}
	}
	f.mu.Unlock()
	for _, flow := range gone {
		flow.Kill(policies.ReasonRevoked)
	}
}

func (f *flowTable) check(t testing.TB) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, flow := range f.live {
		t.Errorf("a flow was never removed: %+v", flow.Request)
	}
}

// tighten changes the policy as the edge does: the new snapshot first, then the live flows.
func (w *world) tighten(rules string) {
	w.t.Helper()
	w.policies.set(w.t, rules)
	s, _, _ := w.policies.Snapshot(egress.Binding{})
	w.flows.rejudge(s)
}

// An authority signs leaves: the org's for opened connections, the real one for upstreams.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
	err    error
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert: cert, key: key, leaves: make(map[string]*tls.Certificate)}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func (a *authority) Leaf(_ context.Context, org, host string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return nil, a.err
	}
	if leaf, ok := a.leaves[host]; ok {
		return leaf, nil
	}
	leaf, err := a.sign(host)
	a.leaves[host] = leaf
	return leaf, err
}

func (a *authority) leaf(t testing.TB, host string) *tls.Certificate {
	t.Helper()
	leaf, err := a.sign(host)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

func (a *authority) sign(host string) (*tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, DNSNames: []string{host},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.DNSNames, template.IPAddresses = nil, []net.IP{ip}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// injector sets one header on one host; err fails it.
type injector struct {
	host, value string
	err         error
}

func (i *injector) Granted(_ egress.Binding, host string, port uint16) bool {
	return host == i.host && port == 443
}

func (i *injector) Apply(_ context.Context, _ egress.Binding, _ string, _ uint16, r *http.Request) ([]decisions.Use, error) {
	if i.err != nil {
		return nil, i.err
	}
	if !strings.HasPrefix(r.URL.RequestURI(), "/v1/") {
		return nil, nil
	}
	r.Header.Set("Authorization", i.value)
	return []decisions.Use{{Secret: "sec_1", Version: 1, Place: "header:authorization"}}, nil
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
