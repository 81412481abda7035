// Command goproxy is elazarl/goproxy doing the same job with nothing judged: it opens TLS, or passes it, and sets a header.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/elazarl/goproxy"
)

func main() {
	listen := flag.String("listen", "", "")
	open := flag.Bool("open", false, "open TLS and set a header, but for pass.test")
	cert, key := flag.String("cert", "", "of the authority, PEM"), flag.String("key", "", "PEM")
	roots := flag.String("roots", "", "PEM")
	resolve := flag.String("resolve", "", "what every name is dialled as: host:port")
	flood := flag.String("flood", "", "what flood.test is dialled as: host:port")
	flag.Parse()
	p := goproxy.NewProxyHttpServer()
	pool := x509.NewCertPool()
	pem, err := os.ReadFile(*roots)
	if err != nil || !pool.AppendCertsFromPEM(pem) {
		log.Fatal("no roots: ", err)
	}
	plain, flooding := dialer(*resolve), dialer(*flood)
	p.Tr = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, MaxIdleConnsPerHost: 64, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == "flood.test:443" {
			return flooding(ctx, network, addr)
		}
		return plain(ctx, network, addr)
	}}
	p.ConnectDialWithReq = nil
	usual, flooded := connectDialer(*resolve), connectDialer(*flood)
	p.ConnectDial = func(network, addr string) (net.Conn, error) {
		if addr == "flood.test:443" {
			return flooded(network, addr)
		}
		return usual(network, addr)
	}
	if *open {
		authority, err := tls.LoadX509KeyPair(*cert, *key)
		if err != nil {
			log.Fatal(err)
		}
		leaves := &store{}
		p.CertStore = leaves
		action := &goproxy.ConnectAction{Action: goproxy.ConnectMitm, TLSConfig: goproxy.TLSConfigFromCA(&authority)}
		p.OnRequest().HandleConnectFunc(func(host string, _ *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
			if host == "pass.test:443" {
				return goproxy.OkConnect, host
			}
			return action, host
		})
		p.OnRequest().DoFunc(func(r *http.Request, _ *goproxy.ProxyCtx) (*http.Request, *http.Response) {
			r.Header.Set("X-Api-Key", "0123456789abcdef")
			return r, nil
		})
	}
	log.Fatal(http.ListenAndServe(*listen, p))
}
