package egress_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/ca"
	"portreeve.dev/egress/credentials"
	"portreeve.dev/egress/decisions"
	"portreeve.dev/egress/egresstest"
	"portreeve.dev/egress/explicit"
	"portreeve.dev/egress/flows"
	"portreeve.dev/egress/proxy"
	"portreeve.dev/egress/socks"
	"portreeve.dev/policies"
)

// patience is how long a test waits for what should take milliseconds.
const patience = 10 * time.Second

var (
	own      = egress.Binding{Sandbox: "sbx_own", Org: "org_a", Incarnation: 1, Addr: netip.MustParseAddr("10.200.0.1")}
	attached = egress.Binding{Sandbox: "sbx_attached", Org: "org_a", Incarnation: 1}
	hosts    = []string{"good.test", "pass.test", "evil.test", "denied.test", "clear.test", "raw.test", "private.test", "granted.test"}
)

// A world is one proxy with every way into it: the wire of an own sandbox, and the doors of an attached one.
type world struct {
	t        *testing.T
	bindings *egress.Bindings
	policies *egresstest.Policies
	recorder *recorder
	dialer   *dialer
	flows    *flows.Table
	proxy    *proxy.Proxy
	explicit *explicit.Server
	gate     *credentials.Gate
	key      credentials.Key

	wire                *egresstest.Wire
	http, socks, socket net.Listener
	doorCA              *x509.CertPool // who signed the doors
	orgCA               *x509.CertPool // who signs opened connections
	ctx                 context.Context
}

func newWorld(t *testing.T, rules string) *world {
	t.Helper()
	w := &world{t: t, bindings: egress.NewBindings(nil), policies: egresstest.NewPolicies(t, rules), recorder: newRecorder(),
		dialer: &dialer{upstreams: map[string]string{}}, key: credentials.Key{Version: 1, Secret: []byte(strings.Repeat("k", 32))}}
	w.dialer.recorder = w.recorder
	if err := errors.Join(w.bindings.Bind(own), w.bindings.Attach(attached, time.Now().Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	floor, err := policies.NewFloor(policies.FloorConfig{Exempt: []policies.Exemption{{CIDR: netip.MustParsePrefix("203.0.113.0/24"), Orgs: []string{"*"}}}})
	if err != nil {
		t.Fatal(err)
	}
	w.flows, err = flows.New(flows.Config{Policies: w.policies, Bindings: w.bindings, Floor: func() *policies.Floor { return floor }})
	if err != nil {
		t.Fatal(err)
	}
	org, orgCA := issuer(t)
	w.orgCA = orgCA
	upstreams, upstreamCA := issuer(t)
	w.proxy, err = proxy.New(proxy.Config{
		Bindings: w.bindings, Policies: w.policies, Floor: func() *policies.Floor { return floor }, Names: names{}, Recorder: w.recorder, Dialer: w.dialer, Flows: flowTable{w.flows},
		Certificates: org, UpstreamRoots: upstreamCA, Injector: injector{}, Timeouts: proxy.Timeouts{FirstBytes: 200 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	if w.explicit, err = explicit.New(explicit.Config{Proxy: w.proxy}); err != nil {
		t.Fatal(err)
	}
	w.gate, err = credentials.NewGate(credentials.GateConfig{Lookup: func(id string) (egress.Binding, []credentials.Key, bool) {
		b, ok := w.bindings.Attached(id)
		return b, []credentials.Key{w.key}, ok
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.serveUpstreams(upstreams)
	w.listen()
	return w
}

// issuer is an authority of its own, and who trusts it.
func issuer(t *testing.T) (*ca.Issuer, *x509.CertPool) {
	t.Helper()
	root, err := ca.NewRoot("test", time.Now(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	i, err := ca.NewIssuer(ca.IssuerConfig{Signer: signer{root}})
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(root.Certificate)
	return i, pool
}

type signer struct{ root *ca.Root }

func (s signer) Intermediate(_ context.Context, _ string, key *ecdsa.PublicKey) ([][]byte, error) {
	c, err := s.root.Intermediate(key, time.Now(), time.Now())
	if err != nil {
		return nil, err
	}
	return [][]byte{c.Raw, s.root.Certificate.Raw}, nil
}

// serveUpstreams answers for each host: TLS on 443, clear on 80, an echo on 5432.
func (w *world) serveUpstreams(certs *ca.Issuer) {
	w.t.Helper()
	echo := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(rw, "%s %s %s auth=%q proxy=%q %s", r.Method, r.Host, r.RequestURI, r.Header.Get("Authorization"), r.Header.Get("Proxy-Authorization"), body)
	})
	for _, host := range hosts {
		leaf, err := certs.Leaf(w.t.Context(), "upstreams", host)
		if err != nil {
			w.t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(echo)
		s.TLS = &tls.Config{Certificates: []tls.Certificate{*leaf}}
		s.StartTLS()
		c := httptest.NewServer(echo)
		w.t.Cleanup(func() { s.Close(); c.Close() })
		w.dialer.upstreams[host+":443"], w.dialer.upstreams[host+":80"] = s.Listener.Addr().String(), c.Listener.Addr().String()
	}
	raw, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { raw.Close() })
	go func() {
		for {
			nc, err := raw.Accept()
			if err != nil {
				return
			}
			go func() { defer nc.Close(); io.Copy(nc, nc) }()
		}
	}()
	w.dialer.upstreams["raw.test:5432"] = raw.Addr().String()
}

// listen opens every way in.
func (w *world) listen() {
	t := w.t
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w.ctx = ctx
	var served sync.WaitGroup
	doors, doorCA := issuer(t)
	w.doorCA = doorCA
	leaf, err := doors.Leaf(ctx, "doors", "door.test")
	if err != nil {
		t.Fatal(err)
	}
	tcp := func() net.Listener {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	w.wire = egresstest.NewWire(t)
	secure := &tls.Config{Certificates: []tls.Certificate{*leaf}}
	w.http, w.socks = tls.NewListener(tcp(), secure), tls.NewListener(tcp(), secure)
	if w.socket, err = net.Listen("unix", filepath.Join(shortDir(t), "s")); err != nil {
		t.Fatal(err)
	}
	served.Go(func() { w.proxy.Serve(ctx, w.wire) })
	served.Go(func() { w.explicit.Run(ctx) })
	accept := func(l net.Listener, serve func(net.Conn)) {
		served.Go(func() {
			for {
				nc, err := l.Accept()
				if err != nil {
					return
				}
				served.Go(func() { serve(nc) })
			}
		})
	}
	accept(w.http, func(nc net.Conn) { w.explicit.ServeConn(ctx, nc, w.keeper(credentials.HTTP, nc)) })
	accept(w.socks, func(nc net.Conn) { socks.Serve(ctx, nc, w.keeper(credentials.SOCKS, nc), socks.Config{Proxy: w.proxy}) })
	accept(w.socket, func(nc net.Conn) {
		first, rest := firstByte(nc)
		if first == 5 {
			socks.Serve(ctx, rest, plugged{w.bindings}, socks.Config{Proxy: w.proxy})
		} else {
			w.explicit.ServeConn(ctx, rest, plugged{w.bindings})
		}
	})
	t.Cleanup(func() {
		cancel()
		for _, l := range []net.Listener{w.http, w.socks, w.socket, w.wire} {
			l.Close()
		}
		gone, stop := context.WithCancel(context.Background())
		stop()
		w.proxy.Shutdown(gone)
		served.Wait()
		if n := w.flows.Len(); n > 0 {
			t.Errorf("%d flows were never removed", n)
		}
	})
}

// shortDir is short enough for the path of a socket.
func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/tmp", "door")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func firstByte(nc net.Conn) (byte, net.Conn) {
	b := make([]byte, 1)
	if _, err := io.ReadFull(nc, b); err != nil {
		return 0, nc
	}
	return b[0], &replayed{Conn: nc, first: b}
}

type replayed struct {
	net.Conn
	first []byte
}

func (r *replayed) Read(p []byte) (int, error) {
	if len(r.first) > 0 {
		n := copy(p, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	return r.Conn.Read(p)
}

func (r *replayed) CloseWrite() error { return r.Conn.(*net.UnixConn).CloseWrite() }

// A keeper of a door that needs a credential.
type keeper struct {
	w    *world
	at   credentials.Door
	from netip.Addr
}

func (w *world) keeper(at credentials.Door, nc net.Conn) credentials.Keeper {
	return keeper{w, at, netip.MustParseAddrPort(nc.RemoteAddr().String()).Addr()}
}

func (k keeper) Known() (egress.Binding, bool) { return egress.Binding{}, false }
func (k keeper) Admit(ctx context.Context, username, password string) credentials.Admission {
	return k.w.gate.Admit(ctx, k.at, k.from, username, password)
}

// plugged is the keeper of the sandbox's own socket.
type plugged struct{ bindings *egress.Bindings }

func (p plugged) Known() (egress.Binding, bool) { return p.bindings.Attached(attached.Sandbox) }
func (p plugged) Admit(context.Context, string, string) credentials.Admission {
	b, ok := p.Known()
	if !ok {
		return credentials.Admission{Reason: policies.ReasonUnbound}
	}
	return credentials.Admission{Binding: b}
}

func (w *world) password(at credentials.Door) string {
	w.t.Helper()
	p, err := credentials.Mint(w.key, credentials.Claims{Sandbox: attached.Sandbox, Incarnation: 1, Door: at,
		Source: netip.MustParseAddr("127.0.0.1"), Expires: time.Now().Add(credentials.Lifetime)})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) basic(at credentials.Door) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(attached.Sandbox+":"+w.password(at)))
}

// tlsTo connects to a door.
func (w *world) tlsTo(l net.Listener) net.Conn {
	w.t.Helper()
	nc, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: w.doorCA, ServerName: "door.test"})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.bounded(nc)
}

func (w *world) bounded(nc net.Conn) net.Conn {
	nc.SetDeadline(time.Now().Add(patience))
	w.t.Cleanup(func() { nc.Close() })
	return nc
}

func (w *world) plug() net.Conn {
	w.t.Helper()
	nc, err := net.Dial("unix", w.socket.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	return w.bounded(nc)
}

var errRefused = errors.New("refused at the door")

// connect sends a CONNECT; errRefused is an answer other than 200.
func connect(nc net.Conn, host string, port uint16, field string) (net.Conn, error) {
	fmt.Fprintf(nc, "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n%s\r\n", host, port, host, port, field)
	r := bufio.NewReader(nc)
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != 200 {
		return nil, errRefused
	}
	if r.Buffered() > 0 {
		return nil, fmt.Errorf("%d bytes behind the answer", r.Buffered())
	}
	return nc, nil
}

// sock speaks SOCKS5; login is nil where none is needed.
func sock(nc net.Conn, host string, port uint16, username, password string) (net.Conn, error) {
	method := byte(0)
	if username != "" {
		method = 2
	}
	nc.Write([]byte{5, 1, method})
	answer := make([]byte, 2)
	if _, err := io.ReadFull(nc, answer); err != nil || answer[1] != method {
		return nil, fmt.Errorf("method: %v, %w", answer, err)
	}
	if method == 2 {
		nc.Write(slices.Concat([]byte{1, byte(len(username))}, []byte(username), []byte{byte(len(password))}, []byte(password)))
		if _, err := io.ReadFull(nc, answer); err != nil || answer[1] != 0 {
			return nil, errRefused
		}
	}
	nc.Write(slices.Concat([]byte{5, 1, 0, 3, byte(len(host))}, []byte(host), []byte{byte(port >> 8), byte(port)}))
	got := make([]byte, 10)
	if _, err := io.ReadFull(nc, got); err != nil {
		return nil, err
	}
	if got[1] != 0 {
		return nil, errRefused
	}
	return nc, nil
}

// names stand for the hosts in their order.
type names struct{}

func synthetic(host string) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, 0, byte(slices.Index(hosts, host) + 1)})
}

func (names) Pinned(string, uint64, netip.Addr, time.Time) []string { return nil }
func (names) InRange(a netip.Addr) bool                             { return netip.MustParsePrefix("198.18.0.0/15").Contains(a) }
func (names) Name(sandbox string, _ uint64, a netip.Addr) (string, bool) {
	i := int(a.As4()[3]) - 1
	if sandbox != own.Sandbox || i < 0 || i >= len(hosts) {
		return "", false
	}
	return hosts[i], true
}

type recorder struct {
	mu      sync.Mutex
	list    []decisions.Decision
	err     error
	changed chan struct{}
}

func newRecorder() *recorder { return &recorder{changed: make(chan struct{})} }

func (r *recorder) Record(_ context.Context, d *decisions.Decision) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	r.list = append(r.list, *d)
	close(r.changed)
	r.changed = make(chan struct{})
	return nil
}

func (r *recorder) Close(context.Context, string, proxy.Closing) {}

// wait returns the decisions once there are n.
func (r *recorder) wait(t *testing.T, n int) []decisions.Decision {
	t.Helper()
	limit := time.After(patience)
	for {
		r.mu.Lock()
		list, changed := slices.Clone(r.list), r.changed
		r.mu.Unlock()
		if len(list) >= n {
			if len(list) > n {
				t.Fatalf("%d decisions, want %d: %+v", len(list), n, list)
			}
			return list
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("%d decisions, want %d: %+v", len(list), n, list)
		}
	}
}

type dialer struct {
	mu        sync.Mutex
	upstreams map[string]string
	dialled   []string
	recorder  *recorder
	early     bool // dialled before anything was recorded
}

func (d *dialer) Dial(ctx context.Context, to proxy.Target) (net.Conn, netip.Addr, error) {
	key := fmt.Sprintf("%s:%d", to.Host, to.Port)
	addr := netip.MustParseAddr("203.0.113.1")
	if to.Host == "private.test" {
		addr = netip.MustParseAddr("10.0.0.5")
	}
	d.recorder.mu.Lock()
	recorded := len(d.recorder.list)
	d.recorder.mu.Unlock()
	d.mu.Lock()
	d.dialled = append(d.dialled, key)
	d.early = d.early || recorded == 0
	upstream := d.upstreams[key]
	d.mu.Unlock()
	if to.Host == "private.test" {
		return nil, addr, &proxy.RefusedError{Verdict: policies.Denied(policies.ReasonFloorSoft), Addr: addr}
	}
	if v := to.Address(addr); !v.Allowed() {
		return nil, addr, &proxy.RefusedError{Verdict: v, Addr: addr}
	}
	if upstream == "" {
		return nil, addr, &proxy.DialError{Kind: "dial_refused"}
	}
	nc, err := new(net.Dialer).DialContext(ctx, "tcp4", upstream)
	return nc, addr, err
}

func (d *dialer) dials() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.dialled)
}

type flowTable struct{ *flows.Table }

func (t flowTable) Add(f proxy.Flow) (func(), error) {
	return t.Table.Add(flows.Flow{ID: f.ID, Binding: f.Binding, Request: f.Request, Kill: f.Kill, Within: f.Parent, Remote: f.Remote, Opaque: f.Opaque, Local: f.Local})
}

type injector struct{}

func (injector) Granted(_ egress.Binding, host string) bool { return host == "granted.test" }
func (injector) Apply(_ context.Context, _ egress.Binding, to proxy.Place, r *http.Request) (proxy.Injection, error) {
	if to.Withhold {
		return proxy.Injection{}, nil
	}
	r.Header.Set("Authorization", "ours")
	return proxy.Injection{Uses: []decisions.Use{{Secret: "sec_1", Version: 1, Place: "header:authorization"}}}, nil
}

func (injector) Current(egress.Binding, string, uint16, decisions.Use) bool { return true }
