package certs

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var now = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

func devCA(t testing.TB, domain string) *DevCA {
	t.Helper()
	ca, err := NewDevCA(domain, now)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ca.MarshalKey()
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := LoadDevCA(ca.Certificate(), key)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// counting counts what is signed.
type counting struct {
	Issuer
	n atomic.Int64
}

func (c *counting) Issue(host string, from, now time.Time) (*tls.Certificate, error) {
	c.n.Add(1)
	return c.Issuer.Issue(host, from, now)
}

func source(t testing.TB, issuer Issuer, change ...func(*Config)) *Source {
	t.Helper()
	c := Config{Issuer: issuer, Known: func(h string) bool { return h == "a-1.tunnel.localhost" }, Now: func() time.Time { return now }}
	for _, f := range change {
		f(&c)
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// shake does a TLS handshake for name and returns what each side says.
func shake(s *Source, name string) (*x509.Certificate, error) {
	client, server := net.Pipe()
	defer client.Close()
	go func() {
		defer server.Close()
		_ = tls.Server(server, &tls.Config{GetCertificate: s.Get}).Handshake()
	}()
	c := tls.Client(client, &tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err := c.Handshake(); err != nil {
		return nil, err
	}
	return c.ConnectionState().PeerCertificates[0], nil
}

func TestOnlyKnownHostsGetACertificate(t *testing.T) {
	issuer := &counting{Issuer: devCA(t, "tunnel.localhost")}
	s := source(t, issuer)
	for _, name := range []string{"a-1.tunnel.localhost", "A-1.Tunnel.localhost"} {
		if c, err := shake(s, name); err != nil || !slices.Equal(c.DNSNames, []string{"a-1.tunnel.localhost"}) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "b-1.tunnel.localhost", "tunnel.localhost", "x.a-1.tunnel.localhost", "evil.test", "a-1.tunnel.localhost.evil.test", "*.tunnel.localhost", "127.0.0.1"} {
		_, err := shake(s, name)
		if err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("%q: %v, want the alert unrecognized_name", name, err)
		}
	}
	for i := range 10_000 {
		if c, err := s.Get(&tls.ClientHelloInfo{ServerName: fmt.Sprintf("x%d.tunnel.localhost", i)}); c != nil || err != nil {
			t.Fatalf("%v, %v", c, err)
		}
	}
	if issuer.n.Load() != 1 || s.kept.Len() != 1 {
		t.Errorf("%d leaves were signed and %d kept for one known host", issuer.n.Load(), s.kept.Len())
	}
}

func TestAuthorityIsConfined(t *testing.T) {
	for domain, hosts := range map[string][]string{
		"tunnel.localhost": {"a-1.tunnel.localhost", "localhost", "other.localhost"},
		"t.example.test":   {"a-1.t.example.test", "t.example.test"},
	} {
		ca := devCA(t, domain)
		roots := x509.NewCertPool()
		roots.AddCert(ca.certificate)
		check := func(host string) error {
			leaf, err := ca.Issue(host, now, now)
			if err != nil {
				t.Fatal(err)
			}
			_, err = leaf.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, CurrentTime: now})
			return err
		}
		for _, host := range hosts {
			if err := check(host); err != nil {
				t.Errorf("%s under %s: %v", host, domain, err)
			}
		}
		for _, host := range []string{"example.com", "example.test", "notlocalhost", "xt.example.test", "localhost.evil.test"} {
			if check(host) == nil {
				t.Errorf("%s is believed under %s", host, domain)
			}
		}
		if !critical(ca.certificate, asn1.ObjectIdentifier{2, 5, 29, 30}) {
			t.Error("the constraint is not critical")
		}
		if !ca.certificate.MaxPathLenZero || ca.certificate.MaxPathLen != 0 {
			t.Error("it may sign another authority")
		}
		if ranges := ca.certificate.ExcludedIPRanges; len(ranges) != 2 || !ranges[0].Contains(net.IPv4(127, 0, 0, 1)) || !ranges[1].Contains(net.IPv6loopback) {
			t.Errorf("addresses are not excluded: %v", ranges)
		}
	}
}

func critical(c *x509.Certificate, id asn1.ObjectIdentifier) bool {
	for _, e := range c.Extensions {
		if e.Id.Equal(id) {
			return e.Critical
		}
	}
	return false
}

func TestLeafNamesOneHost(t *testing.T) {
	ca := devCA(t, "tunnel.localhost")
	a, err := ca.Issue("a-1.tunnel.localhost", now, now)
	if err != nil {
		t.Fatal(err)
	}
	b, err := ca.Issue("b-1.tunnel.localhost", now, now)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.Leaf.DNSNames, []string{"a-1.tunnel.localhost"}) || a.Leaf.IsCA || a.Leaf.Subject.CommonName != "" {
		t.Errorf("%v, CA %v, %q", a.Leaf.DNSNames, a.Leaf.IsCA, a.Leaf.Subject.CommonName)
	}
	if a.Leaf.PublicKey.(*ecdsa.PublicKey).Equal(b.Leaf.PublicKey) {
		t.Error("two hosts share a key")
	}
	if a.Leaf.SerialNumber.Cmp(b.Leaf.SerialNumber) == 0 {
		t.Error("two leaves share a serial")
	}
}

func TestOtherKeysAreNotLoaded(t *testing.T) {
	ca, other := devCA(t, "tunnel.localhost"), devCA(t, "tunnel.localhost")
	key, _ := ca.MarshalKey()
	wrong, _ := other.MarshalKey()
	leaf, err := ca.Issue("a-1.tunnel.localhost", now, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LoadDevCA(ca.Certificate(), key); err != nil {
		t.Error(err)
	}
	for name, pair := range map[string][2][]byte{"another key": {ca.Certificate(), wrong}, "no key": {ca.Certificate(), nil}, "no certificate": {nil, key}, "a leaf": {leaf.Certificate[0], key}} {
		if _, err := LoadDevCA(pair[0], pair[1]); err == nil {
			t.Errorf("%s was loaded", name)
		}
	}
}

func TestLeavesAreBounded(t *testing.T) {
	s := source(t, devCA(t, "tunnel.localhost"), func(c *Config) { c.Keep = 3; c.Known = func(string) bool { return true } })
	for i := range 10 {
		if c, err := s.Get(&tls.ClientHelloInfo{ServerName: fmt.Sprintf("x%d.tunnel.localhost", i)}); c == nil || err != nil {
			t.Fatal(err)
		}
	}
	if s.kept.Len() != 3 {
		t.Errorf("%d are kept", s.kept.Len())
	}
}

func TestOneFlightPerName(t *testing.T) {
	issuer := &counting{Issuer: devCA(t, "tunnel.localhost")}
	s := source(t, issuer)
	hello := &tls.ClientHelloInfo{ServerName: "a-1.tunnel.localhost"}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if c, err := s.Get(hello); c == nil || err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := issuer.n.Load(); n != 1 {
		t.Errorf("%d leaves for 50 hellos", n)
	}
	s.cfg.Now = func() time.Time { return now.Add(leafLifetime - renewBefore) }
	if c, err := s.Get(hello); err != nil || issuer.n.Load() != 2 || !c.Leaf.NotAfter.After(now.Add(leafLifetime)) {
		t.Errorf("an old leaf was not replaced: %v", err)
	}
}

// A flight that ends between another hello's look and its flight has made the leaf: here within the look, where the clock is read.
func TestFlightThatEndedIsSeen(t *testing.T) {
	issuer := &counting{Issuer: devCA(t, "tunnel.localhost")}
	s := source(t, issuer)
	hello := &tls.ClientHelloInfo{ServerName: "a-1.tunnel.localhost"}
	get := func() *tls.Certificate {
		c, err := s.Get(hello)
		if c == nil || err != nil {
			t.Fatal(err)
		}
		return c
	}
	get()
	later := func() time.Time { return now.Add(leafLifetime - renewBefore) }
	var between *tls.Certificate
	s.cfg.Now = func() time.Time {
		s.cfg.Now = later
		between = get()
		return later()
	}
	if get() != between || issuer.n.Load() != 2 {
		t.Errorf("%d leaves were made, want the first and one after it", issuer.n.Load())
	}
}

// BenchmarkGet watches what a hello costs before its signature.
func BenchmarkGet(b *testing.B) {
	s := source(b, devCA(b, "tunnel.localhost"))
	hello := &tls.ClientHelloInfo{ServerName: "a-1.tunnel.localhost"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Get(hello); err != nil {
			b.Fatal(err)
		}
	}
}
