package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"portreeve.dev/lab"
)

// TestCompanyProxyIsTheOnlyWay: everything of a sandbox goes through the proxy, and while that is away, refuses or lies nothing goes at
// all. The judge is the capture, which saw nobody but the proxy and the name server from the first packet to the last.
func TestCompanyProxyIsTheOnlyWay(t *testing.T) {
	t.Parallel()
	l := lab.Start(t, lab.Options{})
	proxy := l.StartProxy(t, "http")
	p := l.StartProduct(t, lab.ProductOptions{Config: throughProxy(t, l, proxy, "direct") + small})
	good := l.Addr("good.test")
	ceiling(t, p,
		allow("good", "good.test"),
		allow("clear", "plain.test", "ports", []int{80}, "protocols", []string{"http"}),
		allow("ssh", "tcp.test", "ports", []int{22}, "protocols", []string{"tcp"}),
		map[string]any{"id": "itself", "action": "allow", "cidrs": []string{proxy.Addr.Addr().String() + "/32", l.TCP.Addr.String() + "/32"}, "ports": []int{7, lab.ProxyPort}, "protocols": []string{"tcp"}},
	)
	b := armed(t, p)
	reaches := func(want bool, why string, args ...string) {
		t.Helper()
		if open, said := b.hostile(args...); open != want {
			t.Errorf("%s: got through %v: %s", why, open, said)
		}
	}
	tls := []string{"tls", "good.test:443", "good.test", "good.test", "/"}
	reaches(true, "TLS by a name", tls...)
	reaches(true, "a server that speaks first", "tcp", "tcp.test:22")
	reaches(true, "an address", "tcp", l.TCP.Addr.String()+":7")
	if open, said := b.hostile("http", "plain.test:80", "plain.test", "/"); !open || !strings.Contains(said, " 200 ") {
		t.Errorf("clear HTTP: %s", said)
	}
	asked, logins := proxy.Asked()
	for _, want := range []string{good.String() + ":443", l.TCP.Addr.String() + ":22", l.TCP.Addr.String() + ":7", l.Addr("plain.test").String() + ":80"} {
		if !slices.Contains(asked, want) {
			t.Errorf("the proxy was not asked for %s, but for %v", want, asked)
		}
	}
	if login := "Basic Z2F0ZXdheTpvcGVuIHNlc2FtZQ=="; slices.ContainsFunc(logins, func(s string) bool { return s != login }) {
		t.Errorf("logins %q", logins)
	}
	// The proxy itself is no place for a sandbox, although an exemption and a rule open its address.
	reaches(false, "the proxy itself", "tcp", proxy.Addr.String())
	b.decided("denies the proxy itself", func(d decision) bool {
		return d.Reason == "floor_hard" && d.Addr == proxy.Addr.Addr().String() && d.Port == lab.ProxyPort
	})
	// Refused, lied to, and without it.
	fails := func(why, kind string) {
		t.Helper()
		reaches(false, why, tls...)
		b.decided(why+" is recorded", func(d decision) bool { return d.Host == "good.test" && d.Closed && d.Error == kind })
	}
	proxy.Answer(403)
	fails("a proxy that refuses", "company_proxy_refused")
	proxy.Answer(407)
	fails("a proxy that wants another login", "company_proxy_login")
	proxy.Answer(201)
	fails("a proxy that says something else", "company_proxy_refused")
	proxy.Answer(200)
	proxy.Down()
	fails("a proxy that is away", "company_proxy_down")
	if _, said := b.hostile("http", "plain.test:80", "plain.test", "/"); !strings.Contains(said, " 502 ") || !strings.Contains(said, "company_proxy") {
		t.Errorf("clear HTTP without the proxy is answered with %s", said)
	}
	// Nor does the kernel let the edge's uid go past it.
	if err := l.DialAs(edgeUID(t, p), good.String()+":443"); err == nil {
		t.Errorf("the edge's uid reached %v directly", good)
	}
	if err := l.Capture.Only(l.DNS.Addr.Addr(), proxy.Addr.Addr()); err != nil {
		t.Error(err)
	}
	if err := proxy.Up(); err != nil {
		t.Fatal(err)
	}
	if err := l.DialAs(edgeUID(t, p), proxy.Addr.String()); err != nil {
		t.Errorf("the edge's uid does not reach the proxy: %v", err)
	}
	reaches(true, "a proxy that is back", tls...)
	if err := l.Capture.Only(l.DNS.Addr.Addr(), proxy.Addr.Addr()); err != nil {
		t.Error(err)
	}
	log, err := os.ReadFile(p.LogFile)
	if err != nil || strings.Contains(string(log), "open sesame") {
		t.Errorf("the password is in the log: %v", err)
	}
}

// throughProxy is the product's configuration for a company's proxy, with questions to the resolver going where dns says.
func throughProxy(t *testing.T, l *lab.Lab, proxy *lab.Proxy, dns string) string {
	t.Helper()
	file := filepath.Join(l.Dir, "proxy-password")
	if err := os.WriteFile(file, []byte("open sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("  upstream: {url: %q, addresses: [%v], user: gateway, password_file: %q, dns: %s}\n", proxy.URL, proxy.Addr.Addr(), file, dns)
}

// TestCompanyProxyByOtherProtocols: SOCKS5, and CONNECT over TLS, are the only way as well, and so is DNS over TLS: beside the proxy,
// or through it. The capture saw nothing else, and no question in the clear.
func TestCompanyProxyByOtherProtocols(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scheme, dns string
	}{{"socks5", "direct"}, {"https", "proxy"}} {
		t.Run(c.scheme, func(t *testing.T) {
			t.Parallel()
			l := lab.Start(t, lab.Options{})
			proxy := l.StartProxy(t, c.scheme)
			p := l.StartProduct(t, lab.ProductOptions{UpstreamDNS: l.StartDNSOverTLS(t), Config: throughProxy(t, l, proxy, c.dns) + small})
			ceiling(t, p, allow("good", "good.test"), allow("ssh", "tcp.test", "ports", []int{22}, "protocols", []string{"tcp"}))
			b := armed(t, p)
			tls := []string{"tls", "good.test:443", "good.test", "good.test", "/"}
			reaches := func(want bool, why string, args ...string) {
				t.Helper()
				if open, said := b.hostile(args...); open != want {
					t.Errorf("%s: got through %v: %s", why, open, said)
				}
			}
			reaches(true, "TLS by a name", tls...)
			reaches(true, "a server that speaks first", "tcp", "tcp.test:22")
			reaches(false, "a name that no rule allows", "tls", "api.test:443", "api.test", "api.test", "/")
			asked, logins := proxy.Asked()
			for _, want := range []string{l.Addr("good.test").String() + ":443", l.TCP.Addr.String() + ":22"} {
				if !slices.Contains(asked, want) {
					t.Errorf("the proxy was not asked for %s, but for %v", want, asked)
				}
			}
			if login := "Basic Z2F0ZXdheTpvcGVuIHNlc2FtZQ=="; slices.ContainsFunc(logins, func(s string) bool { return s != login }) {
				t.Errorf("logins %q", logins)
			}
			proxy.Answer(403)
			reaches(false, "a proxy that refuses", "tcp", "tcp.test:22")
			proxy.Answer(200)
			proxy.Down()
			reaches(false, "a proxy that is away", tls...)
			if err := proxy.Up(); err != nil {
				t.Fatal(err)
			}
			reaches(true, "a proxy that is back", tls...)
			if questions := l.DNS.Queries("good.test"); len(questions) == 0 || slices.ContainsFunc(questions, func(q lab.Query) bool { return !q.TLS }) {
				t.Errorf("questions %+v", questions)
			}
			only := []netip.Addr{proxy.Addr.Addr()}
			if c.dns == "direct" {
				only = append(only, l.DNS.Addr.Addr())
			}
			if err := l.Capture.Only(only...); err != nil {
				t.Error(err)
			}
			if clear := l.Capture.Seen(func(p lab.Packet) bool { return p.FromGate && p.DstPort == 53 }); len(clear) > 0 {
				t.Errorf("questions in the clear: %v", clear)
			}
		})
	}
}

// edgeUID is the uid that the edge runs under.
func edgeUID(t *testing.T, p *lab.Product) int {
	t.Helper()
	pid, err := p.PID("edge")
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.Atoi(strings.Fields(procStatus(t, pid)["Uid"])[0])
	if err != nil {
		t.Fatal(err)
	}
	return uid
}
