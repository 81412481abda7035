package dial_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	"go.uber.org/goleak"

	"portreeve.dev/egress/dial"
)

const dnsName = "dns.company.test"

// A tlsNameserver answers over TLS what n answers, and listens in the clear beside it on UDP, where nothing may come.
type tlsNameserver struct {
	addr  netip.AddrPort
	roots *x509.CertPool
	clear *atomic.Int64
	sizes *sync.Map // of queries
}

func newTLSNameserver(t *testing.T, n *nameserver) *tlsNameserver {
	t.Helper()
	l, u := onePort(t)
	s := &tlsNameserver{addr: l.Addr().(*net.TCPAddr).AddrPort(), clear: new(atomic.Int64), sizes: new(sync.Map)}
	config, roots := certified(t, dnsName)
	s.roots = roots
	server := &dns.Server{Listener: tls.NewListener(l, config), Net: "tcp-tls", Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		s.sizes.Store(q.Len(), true)
		n.ServeDNS(w, q)
	})}
	started, ended, quiet := make(chan struct{}), make(chan struct{}), make(chan struct{})
	server.NotifyStartedFunc = func() { close(started) }
	go func() { defer close(ended); server.ActivateAndServe() }()
	<-started
	go func() {
		defer close(quiet)
		for buf := make([]byte, 512); ; {
			if _, _, err := u.ReadFrom(buf); err != nil {
				return
			}
			s.clear.Add(1)
		}
	}()
	t.Cleanup(func() { server.Shutdown(); u.Close(); <-ended; <-quiet })
	return s
}

func (s *tlsNameserver) config() dial.TLSServer {
	return dial.TLSServer{Addr: s.addr, Name: dnsName, Roots: s.roots}
}

func tlsDialer(t *testing.T, cfg dial.Config, servers ...dial.TLSServer) *dial.Dialer {
	t.Helper()
	cfg.TLSServers = servers
	return dialer(t, nil, cfg)
}

// TestQuestionsOverTLSStayThere: they are answered over TLS by whoever proves the name, and else not at all.
func TestQuestionsOverTLSStayThere(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) }) // after the servers ended
	n, u := newNameserver(t), newUpstream(t)
	n.records("good.test", "good.test. 0 IN A 127.0.0.2")
	n.records("private.test", "private.test. 0 IN A 127.0.0.1")
	s := newTLSNameserver(t, n)
	d := tlsDialer(t, dial.Config{MixedCase: true}, s.config())
	for range 3 {
		if a, err := reach(d, u.target("good.test")); err != nil || a != good {
			t.Fatalf("%v, %v", a, err)
		}
	}
	if _, err := reach(d, u.target("private.test")); err == nil {
		t.Error("a private answer is good when it came over TLS")
	}
	s.sizes.Range(func(size, _ any) bool {
		if size.(int)%128 != 0 {
			t.Errorf("a query has %d bytes", size)
		}
		return true
	})
	asked := n.queries.Load()
	for name, spoil := range map[string]func(*dial.TLSServer){
		"another name":       func(s *dial.TLSServer) { s.Name = "other.company.test" },
		"nobody's authority": func(s *dial.TLSServer) { s.Roots = x509.NewCertPool() },
		"no TLS there":       func(s *dial.TLSServer) { s.Addr = n.addr },
	} {
		server := s.config()
		spoil(&server)
		_, err := reach(tlsDialer(t, dial.Config{TryTimeout: time.Second}, server), u.target("good.test"))
		var failed *dial.Error
		if !errors.As(err, &failed) || !failed.Kind.Resolving() {
			t.Errorf("%s: %v", name, err)
		}
		// The next one, which is as good as the first, is asked.
		if _, err := reach(tlsDialer(t, dial.Config{}, server, s.config()), u.target("good.test")); err != nil {
			t.Errorf("%s, with another server: %v", name, err)
		}
		asked++
	}
	if got := n.queries.Load(); got != asked {
		t.Errorf("%d questions were asked of servers that prove nothing", got-asked)
	}
	if got := s.clear.Load(); got != 0 {
		t.Errorf("%d packets came in the clear", got)
	}
	at := s.addr
	for name, cfg := range map[string]dial.Config{
		"both kinds":          {Servers: []netip.AddrPort{at}, TLSServers: []dial.TLSServer{s.config()}},
		"no name":             {TLSServers: []dial.TLSServer{{Addr: at, Roots: s.roots}}},
		"no roots":            {TLSServers: []dial.TLSServer{{Addr: at, Name: dnsName}}},
		"clear by the proxy":  {Servers: []netip.AddrPort{at}, Upstream: &dial.UpstreamProxy{Scheme: dial.HTTP, Addrs: []netip.AddrPort{at}, DNS: true}},
		"nobody":              {},
		"nobody with a proxy": {Upstream: &dial.UpstreamProxy{Scheme: dial.HTTP, Addrs: []netip.AddrPort{at}, DNS: true}},
	} {
		if _, err := dial.New(cfg, nil); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
}

// TestQuestionsGoThroughTheProxy where the operator says so, and with it gone nowhere.
func TestQuestionsGoThroughTheProxy(t *testing.T) {
	n, u := newNameserver(t), newUpstream(t)
	n.records("good.test", "good.test. 0 IN A 127.0.0.2")
	s := newTLSNameserver(t, n)
	p := newCompany(t, dial.HTTP)
	p.dns = s.addr
	proxy := p.config()
	proxy.DNS = true
	d := tlsDialer(t, dial.Config{Upstream: proxy}, s.config())
	if _, err := reach(d, u.target("good.test")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{s.addr.String(), netip.AddrPortFrom(good, u.port).String()}, p.was()); diff != "" {
		t.Errorf("the proxy was asked for:\n%s", diff)
	}
	asked := n.queries.Load()
	p.deny("HTTP/1.1 403 Forbidden\r\n\r\n")
	d.KeptForTest().ExpireForTest() // else the next question goes through the same tunnel
	_, _, err := d.Lookup(context.Background(), u.target("good.test"))
	wantKind(t, err, dial.ServFail)
	if got := n.queries.Load(); got != asked {
		t.Error("a question went past the proxy")
	}
}
