package dial_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"portreeve.dev/egress/dial"
	"portreeve.dev/egress/egresstest"
	"portreeve.dev/policies"
	"portreeve.dev/secrets"
)

const proxyName = "proxy.company.test"

// A company is a proxy as companies have it. It writes down what it is asked for, and connects to the target's port on good.
type company struct {
	addr   netip.AddrPort
	scheme dial.Scheme
	roots  *x509.CertPool
	answer string         // HTTP: instead of "200"; SOCKS: instead of the reply to a request
	greet  string         // SOCKS: instead of the choice of a method
	silent bool           // says nothing
	dns    netip.AddrPort // connected to when asked for; other targets are on good

	mu    sync.Mutex
	asked []string
	login []string
}

func newCompany(t *testing.T, scheme dial.Scheme) *company {
	t.Helper()
	p := &company{scheme: scheme}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addr = l.Addr().(*net.TCPAddr).AddrPort()
	if scheme == dial.HTTPS {
		var config *tls.Config
		config, p.roots = certified(t, proxyName)
		l = tls.NewListener(l, config)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer context.AfterFunc(ctx, func() { c.Close() })()
				defer c.Close()
				p.serve(ctx, c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); cancel(); running.Wait() })
	return p
}

// certified is what a server of that name needs, and who trusts it.
func certified(t *testing.T, name string) (*tls.Config, *x509.CertPool) {
	t.Helper()
	ca := egresstest.NewCA(t)
	return &tls.Config{Certificates: []tls.Certificate{*ca.Leaf(t, name)}}, ca.Pool()
}

func (p *company) note(asked, login string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked, p.login = append(p.asked, asked), append(p.login, login)
}

// deny sets the answer of later questions.
func (p *company) deny(answer string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

// was returns what was asked for so far.
func (p *company) was() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.asked...)
}

func (p *company) serve(ctx context.Context, c net.Conn) {
	if p.silent {
		<-ctx.Done()
		return
	}
	in := bufio.NewReader(c)
	target, ok := "", false
	if p.scheme == dial.SOCKS5 {
		target, ok = p.socks(in, c)
	} else {
		target, ok = p.http(in, c)
	}
	if !ok {
		return
	}
	_, port, _ := net.SplitHostPort(target)
	at := net.JoinHostPort(good.String(), port)
	if target == p.dns.String() {
		at = target
	}
	up, err := net.Dial("tcp", at)
	if err != nil {
		return
	}
	defer up.Close()
	go func() { io.Copy(up, in); up.(*net.TCPConn).CloseWrite() }()
	io.Copy(c, up)
}

func (p *company) http(in *bufio.Reader, c net.Conn) (string, bool) {
	r, err := http.ReadRequest(in)
	if err != nil || r.Method != "CONNECT" || r.Host != r.URL.Host {
		return "", false
	}
	p.note(r.Host, r.Header.Get("Proxy-Authorization"))
	p.mu.Lock()
	answer := p.answer
	p.mu.Unlock()
	if answer != "" {
		io.WriteString(c, answer)
		return "", false
	}
	_, err = io.WriteString(c, "HTTP/1.1 200 Connection established\r\nVia: company\r\n\r\n")
	return r.Host, err == nil
}

func (p *company) socks(in *bufio.Reader, c net.Conn) (string, bool) {
	take := func(n int) []byte { b := make([]byte, n); io.ReadFull(in, b); return b }
	methods, login := take(int(take(2)[1])), ""
	if p.greet != "" {
		io.WriteString(c, p.greet)
		return "", false
	}
	if strings.Contains(string(methods), "\x02") {
		c.Write([]byte{5, 2})
		take(1)
		login = string(take(int(take(1)[0])))
		login += ":" + string(take(int(take(1)[0])))
		c.Write([]byte{1, 0})
	} else {
		c.Write([]byte{5, 0})
	}
	var host string
	switch head := take(4); head[3] {
	case 1:
		host = netip.AddrFrom4([4]byte(take(4))).String()
	case 3:
		host = string(take(int(take(1)[0])))
	case 4:
		host = netip.AddrFrom16([16]byte(take(16))).String()
	}
	target := net.JoinHostPort(host, fmt.Sprint(binary.BigEndian.Uint16(take(2))))
	p.note(target, login)
	if p.answer != "" {
		io.WriteString(c, p.answer)
		return "", false
	}
	_, err := io.WriteString(c, "\x05\x00\x00\x03\x05there\x00\x07")
	return target, err == nil
}

func (p *company) config() *dial.UpstreamProxy {
	return &dial.UpstreamProxy{Scheme: p.scheme, Addrs: []netip.AddrPort{p.addr}, Name: proxyName, Roots: p.roots}
}

func password(t *testing.T, text string) secrets.Value {
	t.Helper()
	v, err := secrets.NewValue([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// talker is a server on good that speaks first and then echoes. It counts.
func talker(t *testing.T) (netip.AddrPort, *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", good.String()+":0")
	if err != nil {
		t.Fatal(err)
	}
	n := new(atomic.Int64)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n.Add(1)
			running.Go(func() { defer c.Close(); io.WriteString(c, "hello "); io.Copy(c, c) })
		}
	})
	t.Cleanup(func() { l.Close(); running.Wait() })
	return l.Addr().(*net.TCPAddr).AddrPort(), n
}

var schemes = []dial.Scheme{dial.HTTP, dial.HTTPS, dial.SOCKS5}

func TestConnectionsGoThroughTheProxy(t *testing.T) {
	for _, scheme := range schemes {
		t.Run(string(scheme), func(t *testing.T) {
			leaks := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, leaks) }) // after the servers ended
			n, p := newNameserver(t), newCompany(t, scheme)
			at, count := talker(t)
			n.records("good.test", "good.test. 60 IN A 127.0.0.2")
			u := p.config()
			u.User, u.Password = "gateway", password(t, "open sesame")
			d := dialer(t, n, dial.Config{Upstream: u})
			c, res, err := d.Dial(context.Background(), dial.Target{Org: "org_a", Host: "good.test", Port: at.Port()})
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(c, "and back")
			if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				t.Error(err)
			}
			said, err := io.ReadAll(c)
			if string(said) != "hello and back" || err != nil || res.Addr != good || res.Tries != 1 {
				t.Errorf("%q, %v, %+v", said, err, res)
			}
			c.Close()
			if diff := cmp.Diff([]string{at.String()}, p.was()); diff != "" {
				t.Errorf("it was asked for other than the address that was judged:\n%s", diff)
			}
			if want := map[bool]string{true: "gateway:open sesame", false: "Basic Z2F0ZXdheTpvcGVuIHNlc2FtZQ=="}[scheme == dial.SOCKS5]; p.login[0] != want {
				t.Errorf("the login is %q", p.login)
			}
			if _, err := c.Write([]byte("x")); err == nil {
				t.Error("a closed connection takes bytes")
			}
			// An org with a direct way, and the only one.
			d.SetWays(map[string]dial.Way{"org_b": {Direct: true}})
			if a, err := reach(d, dial.Target{Org: "org_b", Host: "good.test", Port: at.Port()}); err != nil || a != good || len(p.was()) != 1 {
				t.Errorf("directly: %v, %v, asked %v", a, err, p.was())
			}
			if _, err := reach(d, dial.Target{Org: "org_c", Addr: good, Port: at.Port()}); err != nil || len(p.was()) != 2 {
				t.Errorf("an org that nothing is known of: %v, asked %v", err, p.was())
			}
			processed(t, "three connections", func() bool { return count.Load() == 3 })
		})
	}
}

// processed waits for what another goroutine does.
func processed(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 5000 {
		if done() {
			return
		}
		<-tick.C
	}
	t.Errorf("not seen: %s", what)
}

// TestFailingProxyIsNotPassedBy: whatever it does, nothing goes directly, and the record says what it did.
func TestFailingProxyIsNotPassedBy(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(*company)
		want  dial.Kind
		kinds []dial.Scheme
	}{
		{"refuses the target", func(p *company) { p.answer = "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno" }, dial.ProxyRefused, schemes[:2]},
		{"can't reach it", func(p *company) { p.answer = "HTTP/1.1 503 Service Unavailable\r\n\r\n" }, dial.ProxyRefused, schemes[:2]},
		{"wants a login", func(p *company) { p.answer = "HTTP/1.1 407 x\r\nProxy-Authenticate: Basic\r\n\r\n" }, dial.ProxyLogin, schemes[:2]},
		{"says that something was created", func(p *company) { p.answer = "HTTP/1.1 201 Created\r\n\r\n" }, dial.ProxyRefused, schemes[:2]},
		{"says that it goes on", func(p *company) { p.answer = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n" }, dial.ProxyRefused, schemes[:2]},
		{"sends elsewhere", func(p *company) { p.answer = "HTTP/1.1 302 Found\r\nLocation: http://login.company.test/\r\n\r\n" }, dial.ProxyRefused, schemes[:2]},
		{"speaks something else", func(p *company) { p.answer = "SSH-2.0-company\r\n\r\n" }, dial.ProxyAnswer, schemes[:2]},
		{"breaks its answer off", func(p *company) { p.answer = "HTTP/1.1 200 OK\r\n" }, dial.ProxyAnswer, schemes[:2]},
		{"never ends its answer", func(p *company) { p.answer = "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 9<<10) }, dial.ProxyAnswer, schemes[:2]},
		{"says nothing", func(p *company) { p.silent = true }, dial.ProxyAnswer, schemes[2:]},
		{"is another version", func(p *company) { p.greet = "\x04\x00" }, dial.ProxyAnswer, schemes[2:]},
		{"wants another login", func(p *company) { p.greet = "\x05\xff" }, dial.ProxyLogin, schemes[2:]},
		{"chooses what was not offered", func(p *company) { p.greet = "\x05\x01" }, dial.ProxyAnswer, schemes[2:]},
		{"wants a login where there is none", func(p *company) { p.greet = "\x05\x02" }, dial.ProxyAnswer, schemes[2:]},
		{"refuses by its rules", func(p *company) { p.answer = "\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00" }, dial.ProxyRefused, schemes[2:]},
		{"breaks the reply off", func(p *company) { p.answer = "\x05\x00\x00\x01\x00" }, dial.ProxyAnswer, schemes[2:]},
		{"answers with no address", func(p *company) { p.answer = "\x05\x00\x00\x09\x00\x00\x00\x00\x00\x00" }, dial.ProxyAnswer, schemes[2:]},
	} {
		for _, scheme := range tt.kinds {
			t.Run(string(scheme)+" "+tt.name, func(t *testing.T) {
				t.Parallel()
				p := newCompany(t, scheme)
				tt.spoil(p)
				at, count := talker(t)
				cfg := dial.Config{Upstream: p.config()}
				if p.silent {
					cfg.ConnectTimeout = 200 * time.Millisecond
				}
				d := dialer(t, newNameserver(t), cfg)
				_, err := reach(d, dial.Target{Org: "org_a", Addr: good, Port: at.Port()})
				wantKind(t, err, tt.want)
				if n := count.Load(); n != 0 || !tt.want.OfProxy() {
					t.Errorf("%d connections went directly", n)
				}
			})
		}
	}
	t.Run("is not there", func(t *testing.T) {
		at, count := talker(t)
		p := newCompany(t, dial.HTTP)
		u := p.config()
		closed, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		closed.Close()
		gone := closed.Addr().(*net.TCPAddr).AddrPort()
		u.Addrs = []netip.AddrPort{gone}
		d := dialer(t, newNameserver(t), dial.Config{Upstream: u})
		_, err = reach(d, dial.Target{Org: "org_a", Addr: good, Port: at.Port()})
		wantKind(t, err, dial.ProxyDown)
		if n := count.Load(); n != 0 {
			t.Errorf("%d connections went directly", n)
		}
		u.Addrs = []netip.AddrPort{gone, p.addr}
		d = dialer(t, newNameserver(t), dial.Config{Upstream: u})
		if _, err := reach(d, dial.Target{Org: "org_a", Addr: good, Port: at.Port()}); err != nil {
			t.Errorf("its second address: %v", err)
		}
	})
	t.Run("doesn't prove its name", func(t *testing.T) {
		p := newCompany(t, dial.HTTPS)
		for what, change := range map[string]func(*dial.UpstreamProxy){
			"another name": func(u *dial.UpstreamProxy) { u.Name = "other.company.test" }, "nobody's authority": func(u *dial.UpstreamProxy) { u.Roots = x509.NewCertPool() },
		} {
			u := p.config()
			change(u)
			d := dialer(t, newNameserver(t), dial.Config{Upstream: u})
			_, err := reach(d, dial.Target{Org: "org_a", Addr: good, Port: 7})
			t.Run(what, func(t *testing.T) { wantKind(t, err, dial.ProxyDown) })
		}
		if asked := p.was(); len(asked) != 0 {
			t.Errorf("it was asked for %v", asked)
		}
	})
}

// TestChecksComeBeforeTheProxy: it never hears of what is denied, by address, by name or because the floor changed meanwhile.
func TestChecksComeBeforeTheProxy(t *testing.T) {
	n, p := newNameserver(t), newCompany(t, dial.HTTP)
	at, _ := talker(t)
	n.records("good.test", "good.test. 60 IN A 127.0.0.2")
	n.records("evil.test", "evil.test. 60 IN A 127.0.0.1")
	n.records("mixed.test", "mixed.test. 60 IN A 127.0.0.2", "mixed.test. 60 IN A 127.0.0.1")
	u := p.config()
	u.ByName = true
	byName, byAddr := dialer(t, n, dial.Config{Upstream: u}), dialer(t, n, dial.Config{Upstream: p.config()})
	to := func(host string) dial.Target { return dial.Target{Org: "org_a", Host: host, Port: at.Port()} }
	for _, d := range []*dial.Dialer{byName, byAddr} {
		for _, target := range []dial.Target{{Org: "org_a", Addr: evil, Port: at.Port()}, to("evil.test"), {Org: "org_a", Host: "evil.test", Pin: evil, Port: at.Port()}} {
			_, err := reach(d, target)
			wantRefused(t, err, policies.ReasonFloorHard)
		}
	}
	// Asked by name, it might choose the closed one.
	_, err := reach(byName, to("mixed.test"))
	wantRefused(t, err, policies.ReasonFloorHard)
	if asked := p.was(); len(asked) != 0 {
		t.Fatalf("it was asked for %v", asked)
	}
	calls := 0
	late := dialer(t, n, dial.Config{Upstream: p.config()})
	late.JudgeForTest(func(string, netip.Addr, uint16) policies.Verdict {
		if calls++; calls == 1 {
			return policies.Verdict{Action: policies.Allow}
		}
		return policies.Denied(policies.ReasonFloorSoft)
	})
	_, err = reach(late, to("good.test"))
	wantRefused(t, err, policies.ReasonFloorSoft)
	// The twins.
	for _, d := range []*dial.Dialer{byName, byAddr} {
		if _, err := reach(d, to("good.test")); err != nil {
			t.Error(err)
		}
	}
	if _, err := reach(byAddr, to("mixed.test")); err != nil {
		t.Error(err)
	}
	if _, err := reach(byName, dial.Target{Org: "org_a", Addr: good, Port: at.Port()}); err != nil {
		t.Error(err)
	}
	want := []string{fmt.Sprintf("good.test:%d", at.Port()), at.String(), at.String(), at.String()}
	if diff := cmp.Diff(want, p.was()); diff != "" {
		t.Errorf("asked:\n%s", diff)
	}
}

func TestLoginIsInNoError(t *testing.T) {
	for _, scheme := range schemes {
		p := newCompany(t, scheme)
		p.answer, p.greet = "HTTP/1.1 407 gateway opensesame Z2F0ZXdheTpvcGVuc2VzYW1l\r\n\r\n", map[bool]string{true: "\x05\xff"}[scheme == dial.SOCKS5]
		u := p.config()
		u.User, u.Password = "gateway", password(t, "opensesame")
		_, err := reach(dialer(t, newNameserver(t), dial.Config{Upstream: u}), dial.Target{Org: "org_a", Addr: good, Port: 7})
		wantKind(t, err, dial.ProxyLogin)
		if text := fmt.Sprintf("%v %+v %#v", err, u, u); strings.Contains(text, "opensesame") || strings.Contains(text, "Z2F0ZXdheTpvcGVuc2VzYW1l") {
			t.Errorf("%s: the password is in %s", scheme, text)
		}
	}
}

func TestProxySettingsAreChecked(t *testing.T) {
	at := netip.MustParseAddrPort("10.0.0.5:3128")
	fine := dial.UpstreamProxy{Scheme: dial.HTTP, Addrs: []netip.AddrPort{at}}
	for name, spoil := range map[string]func(*dial.UpstreamProxy){
		"":                  func(*dial.UpstreamProxy) {},
		"no scheme":         func(u *dial.UpstreamProxy) { u.Scheme = "" },
		"another scheme":    func(u *dial.UpstreamProxy) { u.Scheme = "socks4" },
		"no address":        func(u *dial.UpstreamProxy) { u.Addrs = nil },
		"no port":           func(u *dial.UpstreamProxy) { u.Addrs = []netip.AddrPort{netip.AddrPortFrom(at.Addr(), 0)} },
		"unspecified":       func(u *dial.UpstreamProxy) { u.Addrs = []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:3128")} },
		"no name over TLS":  func(u *dial.UpstreamProxy) { u.Scheme = dial.HTTPS },
		"user alone":        func(u *dial.UpstreamProxy) { u.User = "gateway" },
		"password alone":    func(u *dial.UpstreamProxy) { u.Password = password(t, "x") },
		"a line in a name":  func(u *dial.UpstreamProxy) { u.User, u.Password = "a\r\nX: y", password(t, "x") },
		"a colon in a name": func(u *dial.UpstreamProxy) { u.User, u.Password = "a:b", password(t, "x") },
		"a name too long": func(u *dial.UpstreamProxy) {
			u.Scheme, u.User, u.Password = dial.SOCKS5, strings.Repeat("a", 256), password(t, "x")
		},
	} {
		u := fine
		spoil(&u)
		_, err := dial.New(dial.Config{Servers: []netip.AddrPort{at}, Upstream: &u}, nil)
		if (err == nil) != (name == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzProxyAnswer: only a whole head with status 200 is a connection, and nothing behind the head is read.
func FuzzProxyAnswer(f *testing.F) {
	for _, s := range []string{"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 200 Connection established\r\nA: b\r\n\r\nSSH-2.0", "HTTP/1.1 407 x\r\n\r\n", "HTTP/1.1 2000 x\r\n\r\n", "\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := strings.NewReader(s)
		head, err := dial.ReadHeadForTest(r)
		if err != nil {
			return
		}
		end := strings.Index(s, "\r\n\r\n") + 4
		if string(head) != s[:end] || r.Len() != len(s)-end {
			t.Fatalf("read %q of %q, %d bytes are left", head, s, r.Len())
		}
		line, _, _ := strings.Cut(s, "\n")
		if fields := strings.Fields(line); dial.ReadAnswerForTest(head) == nil && (len(fields) < 2 || !strings.HasPrefix(fields[0], "HTTP/") || fields[1] != "200") {
			t.Errorf("%q is taken for a connection", s)
		}
	})
}

// The length of a name is one byte of the request (RFC 1928, section 5).
func TestNameFitsItsSocksRequest(t *testing.T) {
	longest := strings.Repeat("n", 255)
	want := "\x05\x01\x00\x03\xff" + longest + "\x01\xbb"
	if ask, err := dial.SocksConnectForTest(longest + ":443"); err != nil || string(ask) != want {
		t.Errorf("255 bytes: %q, %v", ask, err)
	}
	if ask, err := dial.SocksConnectForTest(longest + "n:443"); err == nil {
		t.Errorf("256 bytes: %q", ask)
	}
}
