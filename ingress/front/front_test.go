package front

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"portreeve.dev/ingress/route"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	hostA = "a.tunnel.localhost"
	hostB = "b.tunnel.localhost"
)

// A world is a front on real sockets whose handler says what reached it.
type world struct {
	t             testing.TB
	secure, plain string
	served        atomic.Int64
}

func newWorld(t testing.TB, change ...func(*Config)) *world {
	t.Helper()
	w := &world{t: t}
	zone, err := route.NewZone("tunnel.localhost")
	if err != nil {
		t.Fatal(err)
	}
	certificate := selfSigned(t)
	c := Config{
		Zone:        zone,
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil },
		Handler: func(rw http.ResponseWriter, r *http.Request, in Inbound) {
			w.served.Add(1)
			b, err := io.ReadAll(r.Body)
			if err != nil {
				Answer(rw, r, Problem{Status: 400, Code: "bad_body", Detail: "the body is malformed"})
				return
			}
			fmt.Fprintf(rw, "%s %s %s %v %v %s", in.Host, in.Authority, in.Client, in.Secure, r.RequestURI, b)
		},
	}
	for _, f := range change {
		f(&c)
	}
	f, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	secure, plain := listen(t), listen(t)
	w.secure, w.plain = secure.Addr().String(), plain.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Serve(ctx, secure, plain) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
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

func selfSigned(t testing.TB) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"*.tunnel.localhost"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// dial opens a connection; without a server name it is a plain one.
func (w *world) dial(name string, protocols ...string) net.Conn {
	w.t.Helper()
	addr := w.plain
	if name != "" {
		addr = w.secure
	}
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		w.t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	if name != "" {
		c := tls.Client(nc, &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: protocols})
		if err := c.Handshake(); err != nil {
			w.t.Fatal(err)
		}
		nc = c
	}
	w.t.Cleanup(func() { nc.Close() })
	return nc
}

// ask sends bytes and reads one answer.
func (w *world) ask(name, request string) (int, string) {
	w.t.Helper()
	nc := w.dial(name)
	defer nc.Close()
	if _, err := io.WriteString(nc, request); err != nil {
		w.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		return 0, err.Error()
	}
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

func get(host string, fields ...string) string {
	return "GET / HTTP/1.1\r\nHost: " + host + "\r\n" + strings.Join(append(fields, "\r\n"), "\r\n")
}

func TestAmbiguousRequestsReachNobody(t *testing.T) {
	w := newWorld(t)
	for name, request := range map[string]string{
		"an opaque target":         "GET http:http://x/admin HTTP/1.1\r\nHost: " + hostA + "\r\n\r\n",
		"another authority":        "GET http://" + hostB + "/ HTTP/1.1\r\nHost: " + hostA + "\r\n\r\n",
		"an authority form":        "GET " + hostA + ":80 HTTP/1.1\r\nHost: " + hostA + "\r\n\r\n",
		"CONNECT":                  "CONNECT " + hostA + ":80 HTTP/1.1\r\nHost: " + hostA + "\r\n\r\n",
		"TRACE":                    "TRACE / HTTP/1.1\r\nHost: " + hostA + "\r\n\r\n",
		"no host":                  "GET / HTTP/1.1\r\n\r\n",
		"no host in HTTP/1.0":      "GET / HTTP/1.0\r\n\r\n",
		"two hosts":                get(hostA, "Host: "+hostB),
		"two framings":             "POST / HTTP/1.1\r\nHost: " + hostA + "\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two lengths":              "POST / HTTP/1.1\r\nHost: " + hostA + "\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"a signed length":          "POST / HTTP/1.1\r\nHost: " + hostA + "\r\nContent-Length: +2\r\n\r\nab",
		"an unknown coding":        "POST / HTTP/1.1\r\nHost: " + hostA + "\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"line ends without CR":     "GET / HTTP/1.1\nHost: " + hostA + "\n\n",
		"a folded line":            get(hostA, "X: a", " b"),
		"space before the colon":   get(hostA, "X : a"),
		"a head without end":       get(hostA, "X: "+strings.Repeat("x", 70_000)),
		"too many lines":           get(hostA, strings.Repeat("X: y\r\n", 300)),
		"the stand-in's method":    "PORTREEVE-REFUSED / HTTP/1.1\r\nHost: " + hostA + "\r\n\r\n",
		"user information":         get("u@" + hostA),
		"a NUL in the host":        get(hostA + "\x00"),
		"the preface of HTTP/2":    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"an asterisk":              "OPTIONS * HTTP/1.1\r\nHost: " + hostA + "\r\n\r\n",
		"a fragment in the target": "GET /#x HTTP/1.1\r\nHost: " + hostA + "\r\n\r\n",
	} {
		for _, sni := range []string{"", hostA} {
			if status, body := w.ask(sni, request); status < 400 || status >= 500 && status != 505 {
				t.Errorf("%s (TLS %v): %d %q", name, sni != "", status, body)
			}
		}
	}
	if n := w.served.Load(); n != 0 {
		t.Errorf("%d of them reached the handler", n)
	}
	if status, body := w.ask("", "POST / HTTP/1.1\r\nHost: "+hostA+"\r\nTransfer-Encoding: chunked\r\n\r\n2\nhi\r\n0\r\n\r\n"); status == 200 {
		t.Errorf("a chunk size ended by LF: %d %q", status, body)
	}
	for _, h := range [][]hpack.HeaderField{
		{{Name: ":method", Value: "CONNECT"}, {Name: ":authority", Value: hostA}},
		{{Name: ":method", Value: "get"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: "/"}, {Name: ":authority", Value: hostA}},
		{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: "/"}, {Name: ":authority", Value: hostA}, {Name: "host", Value: hostB}},
		{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: "/"}},
		{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: "/"}, {Name: ":authority", Value: "u@" + hostA}},
		{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: "*"}, {Name: ":authority", Value: hostA}},
	} {
		before := w.served.Load()
		if status := w.h2(hostA, h); status == "200" || w.served.Load() != before {
			t.Errorf("%v: %s", h, status)
		}
	}
	if status, body := w.ask("", get(hostA)); status != 200 {
		t.Errorf("an ordinary request: %d %q", status, body)
	}
	if status := w.h2(hostA, []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: "/"}, {Name: ":authority", Value: hostA}}); status != "200" {
		t.Errorf("an ordinary request over HTTP/2: %s", status)
	}
}

// h2 sends one request as it is on the wire and returns the status, or what came instead.
func (w *world) h2(sni string, fields []hpack.HeaderField) string {
	w.t.Helper()
	nc := w.dial(sni, "h2")
	defer nc.Close()
	io.WriteString(nc, http2.ClientPreface)
	f := http2.NewFramer(nc, nc)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = f.WriteSettings()
	var block strings.Builder
	e := hpack.NewEncoder(&block)
	for _, h := range fields {
		_ = e.WriteField(h)
	}
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(block.String()), EndHeaders: true, EndStream: true})
	for {
		frame, err := f.ReadFrame()
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			return frame.PseudoValue("status")
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return "reset"
		}
		if err != nil {
			return err.Error()
		}
	}
}

func TestPipelinedRequestsAreChecked(t *testing.T) {
	w := newWorld(t)
	nc := w.dial("")
	io.WriteString(nc, get(hostA)+"POST / HTTP/1.1\r\nHost: "+hostA+"\r\nContent-Length: 2\r\n\r\nhi"+get(hostB, "Host: "+hostA)+get(hostA))
	r := bufio.NewReader(nc)
	var got []int
	for {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			break
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		got = append(got, resp.StatusCode)
	}
	if fmt.Sprint(got) != "[200 200 400]" || w.served.Load() != 2 {
		t.Errorf("%v, %d served", got, w.served.Load())
	}
}

func TestHostMustBeTheConnectionsName(t *testing.T) {
	w := newWorld(t)
	for host, want := range map[string]string{
		hostA: hostA + " " + hostA, hostA + ":8443": hostA + " " + hostA + ":8443", "A.Tunnel.LOCALHOST.:443": hostA + " " + hostA + ":443",
	} {
		if status, body := w.ask(hostA, get(host)); status != 200 || !strings.HasPrefix(body, want+" 127.0.0.1 true") {
			t.Errorf("%q: %d %q", host, status, body)
		}
	}
	for _, host := range []string{hostB, "a.a.tunnel.localhost", "tunnel.localhost", "api.localhost"} {
		if status, body := w.ask(hostA, get(host)); status != 421 {
			t.Errorf("%q on a connection for %s: %d %q", host, hostA, status, body)
		}
		fields := []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: "/"}, {Name: ":authority", Value: host}}
		if status := w.h2(hostA, fields); status != "421" {
			t.Errorf("%q over HTTP/2 on a connection for %s: %s", host, hostA, status)
		}
	}
}

func TestOtherHostsAreMisdirected(t *testing.T) {
	w := newWorld(t)
	for _, host := range []string{"localhost", "localhost:8080", "portreeve.localhost", "xtunnel.localhost", "tunnel.localhost.evil.test", "evil.test"} {
		if status, body := w.ask("", get(host)); status != 421 {
			t.Errorf("%q: %d %q", host, status, body)
		}
		if status, body := w.ask(strings.TrimSuffix(host, ":8080"), get(host)); status != 421 {
			t.Errorf("%q over TLS: %d %q", host, status, body)
		}
	}
	for _, host := range []string{"127.0.0.1", "[::1]:80", "0x7f.1"} {
		if status, body := w.ask("", get(host)); status != 400 {
			t.Errorf("%q: %d %q", host, status, body)
		}
	}
	if status, body := w.ask("", get(hostA+":8080")); status != 200 || !strings.HasPrefix(body, hostA+" "+hostA+":8080 127.0.0.1 false") {
		t.Errorf("%d %q", status, body)
	}
}

func TestSlowClientsAreCutOff(t *testing.T) {
	// A limit is short where nothing has to happen within it.
	w := newWorld(t, func(c *Config) { c.Head, c.Idle = 100*time.Millisecond, 200*time.Millisecond })
	patient := newWorld(t, func(c *Config) { c.Head, c.Idle = time.Second, time.Minute })
	hasty := newWorld(t, func(c *Config) { c.Hello = 100 * time.Millisecond })
	for name, test := range map[string]struct {
		w     *world
		sni   string
		begin []string
	}{
		"nothing at all":                   {w, "", nil},
		"nothing after the handshake":      {w, hostA, nil},
		"half a head":                      {w, "", []string{"GET / HTTP/1.1\r\nHost: "}},
		"half a head over TLS":             {w, hostA, []string{"GET / HTTP/1.1\r\nHost: "}},
		"nothing after a request":          {w, "", []string{get(hostA)}},
		"half a second head":               {patient, "", []string{get(hostA), "GET / HTTP/1.1\r\n"}},
		"half a second head, sent at once": {patient, "", []string{get(hostA) + "GET / HTTP/1.1\r\n"}},
	} {
		nc := test.w.dial(test.sni)
		_ = nc.SetDeadline(time.Now().Add(5 * time.Second))
		began := time.Now()
		r := bufio.NewReader(nc)
		for i, part := range test.begin {
			io.WriteString(nc, part)
			if i == 0 && len(test.begin) == 2 {
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
			}
		}
		if _, err := io.Copy(io.Discard, r); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("%s: cut off after %v", name, took)
		}
	}
	nc, err := net.Dial("tcp", hasty.secure) // no hello
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(nc, "\x16\x03\x01")
	if _, err := io.Copy(io.Discard, nc); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("half a hello: %v", err)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Connections = 2 })
	a, b := w.dial(""), w.dial(hostA)
	for _, nc := range []net.Conn{a, b} {
		io.WriteString(nc, get(hostA))
		if _, err := http.ReadResponse(bufio.NewReader(nc), nil); err != nil {
			t.Fatal(err)
		}
	}
	if status, _ := w.ask("", get(hostA)); status != 0 {
		t.Errorf("a third connection was served: %d", status)
	}
	a.Close()
	deadline := time.Now().Add(5 * time.Second)
	for {
		if status, _ := w.ask("", get(hostA)); status == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the place of a closed connection stays taken")
		}
	}
}

func TestOwnAnswersAreInert(t *testing.T) {
	const marker = "zzcanaryzz"
	w := newWorld(t, func(c *Config) {
		c.Handler = func(rw http.ResponseWriter, r *http.Request, _ Inbound) {
			Answer(rw, r, Problem{Status: 503, Code: "waking", Detail: "the sandbox is being woken", RetryAfter: time.Second, Reload: time.Second})
		}
	})
	for name, test := range map[string]struct {
		fields []string
		kind   string
		status int
	}{
		"a page for a browser":          {[]string{"Accept: text/html", "Sec-Fetch-Mode: navigate"}, "text/html; charset=utf-8", 503},
		"a page for an old browser":     {[]string{"Accept: text/html"}, "text/html; charset=utf-8", 503},
		"a problem for a script":        {[]string{"Accept: text/html", "Sec-Fetch-Mode: cors", "User-Agent: Mozilla/5.0 Chrome/150"}, "application/problem+json", 503},
		"a problem for a program":       {nil, "application/problem+json", 503},
		"a status for gRPC":             {[]string{"Content-Type: application/grpc+proto"}, "application/grpc", 200},
		"a problem for gRPC in the web": {[]string{"Content-Type: application/grpc-web"}, "application/problem+json", 503},
	} {
		nc := w.dial("")
		io.WriteString(nc, "GET /"+marker+"?"+marker+" HTTP/1.1\r\nHost: "+marker+".tunnel.localhost\r\nX: "+marker+"\r\n"+strings.Join(append(test.fields, "\r\n"), "\r\n"))
		resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		h := resp.Header
		if resp.StatusCode != test.status || h.Get("Content-Type") != test.kind {
			t.Errorf("%s: %d %q", name, resp.StatusCode, h.Get("Content-Type"))
		}
		csp := h.Get("Content-Security-Policy")
		if h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") || h.Get("Retry-After") != "1" || h.Get(CodeHeader) != "waking" {
			t.Errorf("%s: %v", name, h)
		}
		if all := fmt.Sprint(h, string(b)); strings.Contains(all, marker) || strings.Contains(all, "<script") {
			t.Errorf("%s: %s", name, all)
		}
		if test.kind == "application/grpc" && (h.Get("Grpc-Status") != "14" || len(b) != 0) {
			t.Errorf("%s: %v %q", name, h, b)
		}
	}
}

func TestPanicIsNotedAndCutsTheConnection(t *testing.T) {
	lines := make(chan string, 10)
	w := newWorld(t, func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(sink(lines), nil))
		c.Handler = func(http.ResponseWriter, *http.Request, Inbound) { panic("a bug") }
	})
	if status, body := w.ask("", get(hostA)); status != 0 {
		t.Errorf("%d %q", status, body)
	}
	if line := <-lines; !strings.Contains(line, "a bug") {
		t.Errorf("logged %q", line)
	}
}

// A sink gives on what is written to it.
type sink chan string

func (s sink) Write(b []byte) (int, error) {
	s <- string(b)
	return len(b), nil
}

func TestFailedListenerEndsServe(t *testing.T) {
	zone, _ := route.NewZone("tunnel.localhost")
	f, err := New(Config{Zone: zone, Handler: func(http.ResponseWriter, *http.Request, Inbound) {}})
	if err != nil {
		t.Fatal(err)
	}
	ln := listen(t)
	ln.Close()
	if err := f.Serve(context.Background(), nil, ln); err == nil {
		t.Error("no error")
	}
	if err := f.Serve(context.Background(), listenClosed(t), nil); err == nil {
		t.Error("TLS without certificates")
	}
}

func listenClosed(t *testing.T) net.Listener {
	ln := listen(t)
	ln.Close()
	return ln
}
