package lab

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Request is what one of the lab's servers received.
type Request struct {
	At     time.Time   `json:"-"`
	Proto  string      `json:"proto"`
	TLS    bool        `json:"tls"`
	SNI    string      `json:"sni"`
	Method string      `json:"method"`
	Host   string      `json:"host"`
	URI    string      `json:"uri"`
	Header http.Header `json:"header"`
	Body   string      `json:"body"`
	From   string      `json:"from"`
}

// Web is the lab's web servers. Each answers with the request that it received, as JSON; /bytes/N answers N bytes,
// /status/N that status, .../events goes on for a while, and a WebSocket echoes.
type Web struct {
	mu       sync.Mutex
	requests []Request
	servers  []*http.Server
	wg       sync.WaitGroup
}

func startWeb(ns *Namespace, ca *CA) (*Web, error) {
	w := &Web{}
	ok := func(names ...string) func() (*tls.Config, error) {
		return func() (*tls.Config, error) { return ca.server(names...) }
	}
	for _, s := range []struct {
		addr netip.Addr
		tls  func() (*tls.Config, error)
	}{
		{goodAddr, ok("good.test", "example.com", "postman-echo.com")},
		{apiAddr, ok("api.test")},
		{wildAddr, ok("*.wild.test")},
		{publicAddr, ok("public.test")},
		{privateAddr, ok("private.test")},
		{badCertAddr, badCerts(ca)},
	} {
		config, err := s.tls()
		if err == nil {
			err = w.listen(ns, netip.AddrPortFrom(s.addr, 443), config)
		}
		if err == nil {
			err = w.listen(ns, netip.AddrPortFrom(s.addr, 80), nil)
		}
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	return w, nil
}

// badCerts serves what no client should accept: another host's certificate, one that ran out, one by an unknown CA.
func badCerts(ca *CA) func() (*tls.Config, error) {
	return func() (*tls.Config, error) {
		wrong, err := ca.Issue(time.Now().Add(time.Hour), "other.test")
		if err != nil {
			return nil, err
		}
		expired, err := ca.Issue(time.Now().Add(-time.Hour), "expired.test")
		if err != nil {
			return nil, err
		}
		self, err := selfSigned("selfsigned.test")
		if err != nil {
			return nil, err
		}
		return &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			switch hello.ServerName {
			case "expired.test":
				return expired, nil
			case "selfsigned.test":
				return self, nil
			}
			return wrong, nil
		}}, nil
	}
}

func selfSigned(name string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(7), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func (w *Web) listen(ns *Namespace, at netip.AddrPort, config *tls.Config) error {
	l, err := ns.Listen("tcp", at.String())
	if err != nil {
		return err
	}
	s := &http.Server{Handler: w, TLSConfig: config, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	w.servers = append(w.servers, s)
	w.wg.Add(1)
	go w.serve(s, l)
	return nil
}

func (w *Web) serve(s *http.Server, l net.Listener) {
	defer w.wg.Done()
	if s.TLSConfig != nil {
		s.ServeTLS(l, "", "")
	} else {
		s.Serve(l)
	}
}

func (w *Web) close() error {
	var errs []error
	for _, s := range w.servers {
		errs = append(errs, s.Close())
	}
	w.wg.Wait()
	return errors.Join(errs...)
}

// Requests returns what arrived for host so far; for all hosts when it is "".
func (w *Web) Requests(host string) []Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	if host == "" {
		return slices.Clone(w.requests)
	}
	var seen []Request
	for _, r := range w.requests {
		if r.Host == host {
			seen = append(seen, r)
		}
	}
	return seen
}

// ServeHTTP records and answers one request.
func (w *Web) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	got := record(r)
	w.mu.Lock()
	w.requests = append(w.requests, got)
	w.mu.Unlock()
	if stream(rw, r) {
		return
	}
	if what, arg, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); what == "bytes" || what == "status" {
		n, err := strconv.Atoi(arg)
		switch {
		case err != nil || n < 0 || n > 1<<30:
			http.Error(rw, "not a number", http.StatusBadRequest)
		case what == "status":
			rw.WriteHeader(min(max(n, 200), 999))
		default:
			writeBytes(rw, n)
		}
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	json.NewEncoder(rw).Encode(got)
}

func writeBytes(rw http.ResponseWriter, n int) {
	rw.Header().Set("Content-Length", fmt.Sprint(n))
	block := bytes.Repeat([]byte("x"), 32<<10)
	for n > 0 {
		wrote, err := rw.Write(block[:min(n, len(block))])
		if err != nil {
			return
		}
		n -= wrote
	}
}

func record(r *http.Request) Request {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	got := Request{At: time.Now(), Proto: r.Proto, TLS: r.TLS != nil, Method: r.Method, Host: r.Host, URI: r.RequestURI, Header: r.Header.Clone(), Body: string(body), From: r.RemoteAddr}
	if r.TLS != nil {
		got.SNI = r.TLS.ServerName
	}
	return got
}
