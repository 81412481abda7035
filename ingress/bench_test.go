package ingress

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"portreeve.dev/ingress/certs"
)

// BenchmarkServe watches what one TLS request through all of ingress costs, beside a stock server with a stock reverse proxy.
// Client and app run in the same process and cost the same in both.
func BenchmarkServe(b *testing.B) {
	body := strings.Repeat("x", 1024)
	w := newWorld(b)
	w.app("sbx_b", func(rw http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(rw, body) })
	stock := w.stock(b, w.boxes.apps["sbx_b:3000"])
	for _, h2 := range []bool{false, true} {
		for name, port := range map[string]string{"ours": w.https, "stock": stock} {
			version := map[bool]string{false: "h1", true: "h2"}[h2]
			b.Run(version+"/"+name, func(b *testing.B) {
				c := w.client(h2)
				c.Transport.(*http.Transport).MaxIdleConnsPerHost = 64
				c.Jar = nil
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if a, err := try(c, "GET", "https://"+hostB(port)+"/", nil); err != nil || a.StatusCode != 200 {
							b.Error(a, err)
							return
						}
					}
				})
			})
		}
	}
}

// stock runs the standard library's server and proxy under a certificate of the same kind, and returns its port.
func (w *world) stock(b *testing.B, addr string) string {
	b.Helper()
	ca, err := certs.NewDevCA("tunnel.localhost", time.Now())
	if err != nil {
		b.Fatal(err)
	}
	w.roots.AppendCertsFromPEM(ca.PEM())
	host, _, _ := net.SplitHostPort(hostB("0"))
	leaf, err := ca.Issue(host, time.Now(), time.Now())
	if err != nil {
		b.Fatal(err)
	}
	to := &url.URL{Scheme: "http", Host: addr}
	s := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{*leaf}},
		Handler: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to); r.SetXForwarded() },
			Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
		},
	}
	ln := listen(b)
	go func() { _ = s.ServeTLS(ln, "", "") }()
	b.Cleanup(func() { s.Close() })
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port
}
