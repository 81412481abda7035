package forward

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"portreeve.dev/ingress/route"
)

// BenchmarkForward watches what one request costs, everything included, beside the stock reverse proxy in its place. Client
// and app run in the same process and cost the same in both; ours must not be the slower one.
func BenchmarkForward(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		body := strings.Repeat("x", size)
		app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, body) }))
		defer app.Close()
		addr := app.Listener.Addr().String()
		for name, h := range map[string]http.Handler{"ours": forwarder(b, addr), "stock": stock(addr)} {
			b.Run(name+"/"+map[int]string{1 << 10: "1k", 64 << 10: "64k"}[size], func(b *testing.B) {
				front := httptest.NewServer(h)
				defer front.Close()
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) { benchClient(b, front.Listener.Addr().String(), pb) })
			})
		}
	}
}

func benchClient(b *testing.B, addr string, pb *testing.PB) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		b.Error(err)
		return
	}
	defer nc.Close()
	r := bufio.NewReader(nc)
	request := get("/path?query=1", "User-Agent: Mozilla/5.0", "Accept: text/html,application/xhtml+xml", "Accept-Encoding: gzip, br", "Accept-Language: en", "Cookie: theme=dark; session=0123456789abcdef", "Referer: https://"+public+"/", "Sec-Fetch-Mode: cors", "Sec-Fetch-Site: same-origin")
	for pb.Next() {
		if _, err := io.WriteString(nc, request); err != nil {
			b.Error(err)
			return
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode != 200 {
			b.Error(resp, err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
	}
}

type dialTo string

func (d dialTo) Dial(context.Context, *route.Record) (net.Conn, error) {
	return net.Dial("tcp", string(d))
}

func forwarder(b *testing.B, addr string) http.Handler {
	f, err := New(Config{Dialer: dialTo(addr)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(f.Close)
	rec := &route.Record{Host: public, Tunnel: "tun_1", Sandbox: "sbx_1", Org: "org_1", Port: 3000, Generation: 5, State: route.Running}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		if err := f.Forward(ctx, w, r, Hop{Record: rec, Generation: 5, Client: netip.MustParseAddr("192.0.2.7"), Authority: public, Secure: true}); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})
}

func stock(addr string) http.Handler {
	to := &url.URL{Scheme: "http", Host: addr}
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to); r.SetXForwarded() },
		Transport: &http.Transport{MaxIdleConnsPerHost: 16, DisableCompression: true},
	}
}
