package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"portreeve.dev/egress"
	"portreeve.dev/egress/decisions"
)

// nothing records and registers nothing, so that the benchmarks show the proxy alone.
type nothing struct{}

func (nothing) Record(context.Context, *decisions.Decision) error { return nil }
func (nothing) Close(context.Context, string, Closing)            {}
func (nothing) Add(Flow) (func(), error)                          { return func() {}, nil }

func benchWorld(b *testing.B) *world {
	w := newWorld(b, allowGood+","+allowClear+","+allowPass+","+allowRaw, func(c *Config) { c.Recorder, c.Flows = nothing{}, nothing{} })
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "sixteen bytes ok") })
	w.upstream("good.test", 443, h).Config.SetKeepAlivesEnabled(true)
	w.upstream("pass.test", 443, h)
	w.upstream("clear.test", 80, h)
	w.serveTCP("raw.test", 9000, func(nc *net.TCPConn) { _, _ = io.Copy(nc, nc) })
	return w
}

// loop sends one small request after another on a connection.
func loop(b *testing.B, conn io.ReadWriter, host string) {
	b.Helper()
	req := fmt.Appendf(nil, "GET /v1/x?y=1 HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n", host)
	r := bufio.NewReader(conn)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := conn.Write(req); err != nil {
			b.Fatal(err)
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, resp.Body); n != 16 || err != nil || resp.StatusCode != 200 {
			b.Fatal(resp.StatusCode, n, err)
		}
	}
}

// BenchmarkKeepAlive watches what a request on a kept connection costs: opened, passed through and in the clear, each
// beside a stock ReverseProxy that does the same TLS and none of the judging.
func BenchmarkKeepAlive(b *testing.B) {
	b.Run("opened", func(b *testing.B) {
		loop(b, benchWorld(b).speak("good.test", 443).(*tls.Conn), "good.test")
	})
	b.Run("opened/stock", func(b *testing.B) { benchStock(b, "good.test", 443) })
	b.Run("passed", func(b *testing.B) {
		w := benchWorld(b)
		conn, err := w.handshake("pass.test", &tls.Config{ServerName: "pass.test", RootCAs: w.realCA.pool()})
		if err != nil {
			b.Fatal(err)
		}
		loop(b, conn, "pass.test")
	})
	b.Run("clear", func(b *testing.B) { loop(b, benchWorld(b).connect("clear.test", 80), "clear.test") })
	b.Run("clear/stock", func(b *testing.B) { benchStock(b, "clear.test", 80) })
}

func benchStock(b *testing.B, host string, port uint16) {
	w := benchWorld(b)
	scheme := "http"
	if port == 443 {
		scheme = "https"
	}
	rp := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: scheme, Host: host})
	rp.Transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp4", w.dialer.upstreams[fmt.Sprintf("%s:%d", host, port)])
		},
		TLSClientConfig: &tls.Config{ServerName: host, RootCAs: w.realCA.pool()}, ForceAttemptHTTP2: true, DisableCompression: true,
	}
	s := httptest.NewUnstartedServer(rp)
	var conn io.ReadWriteCloser
	var err error
	if port == 443 {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{*w.orgCA.leaf(b, host)}}
		s.StartTLS()
		conn, err = tls.Dial("tcp4", s.Listener.Addr().String(), &tls.Config{ServerName: host, RootCAs: w.orgCA.pool()})
	} else {
		s.Start()
		conn, err = net.Dial("tcp4", s.Listener.Addr().String())
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close(); rp.Transport.(*http.Transport).CloseIdleConnections(); s.Close() })
	loop(b, conn, host)
}

// BenchmarkNewConnection watches what it costs to bind, judge, record and open a connection.
func BenchmarkNewConnection(b *testing.B) {
	b.Run("relay", func(b *testing.B) {
		w := benchWorld(b)
		for b.Loop() {
			if got := exchangeRaw(b, w.connect("raw.test", 9000), "x"); got != "x" {
				b.Fatalf("got %q", got)
			}
		}
	})
	b.Run("opened, full handshake", func(b *testing.B) {
		w := benchWorld(b)
		for b.Loop() {
			conn, err := w.handshake("good.test", &tls.Config{ServerName: "good.test", RootCAs: w.orgCA.pool()})
			if err != nil {
				b.Fatal(err)
			}
			conn.Close()
		}
	})
}

// BenchmarkJudge watches the decision itself, without any byte moved.
func BenchmarkJudge(b *testing.B) {
	w := benchWorld(b)
	bound, _ := w.bindings.Lookup(sandboxAddr)
	c := &connection{p: w.proxy, binding: egress.Binding(bound), host: "good.test"}
	b.ReportAllocs()
	for b.Loop() {
		r := c.request(2, 1)
		r.Port, r.Method, r.Path = 443, "GET", "/v1/x"
		if !c.judge(r).v.Allowed() {
			b.Fatal("denied")
		}
	}
}
