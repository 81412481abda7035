package lab

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// dial opens a connection from the gateway namespace, as the product does.
func dial(t *testing.T, l *Lab, network string, to netip.AddrPort) net.Conn {
	t.Helper()
	c, err := l.DialGateway(context.Background(), network, to.String())
	if err != nil {
		t.Fatalf("dialling %v: %v", to, err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

func ask(t *testing.T, l *Lab, name string, qtype uint16) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), qtype)
	c := &dns.Conn{Conn: dial(t, l, "udp", l.DNS.Addr)}
	if err := c.WriteMsg(m); err != nil {
		t.Fatal(err)
	}
	answer, err := c.ReadMsg()
	if err != nil {
		t.Fatalf("asking for %s: %v", name, err)
	}
	return answer
}

func addresses(m *dns.Msg) (found []string) {
	for _, rr := range m.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			found = append(found, rr.A.String())
		case *dns.AAAA:
			found = append(found, rr.AAAA.String())
		}
	}
	return found
}

func TestNameServerAnswers(t *testing.T) {
	l := Start(t, Options{})
	for _, c := range []struct {
		name  string
		qtype uint16
		want  []string
	}{
		{"good.test", dns.TypeA, []string{"203.0.113.10"}},
		{"good.test", dns.TypeAAAA, nil},
		{"any.wild.test", dns.TypeA, []string{"203.0.113.30"}},
		{"aliasevil.test", dns.TypeA, []string{"198.51.100.66"}},
		{"mixed.test", dns.TypeA, []string{"203.0.113.10", "127.0.0.1"}},
		{"rebind.test", dns.TypeA, []string{"203.0.113.10"}},
		{"rebind.test", dns.TypeA, []string{"127.0.0.1"}},
		{"rebind.test", dns.TypeA, []string{"203.0.113.10"}},
	} {
		if got := addresses(ask(t, l, c.name, c.qtype)); !slices.Equal(got, c.want) {
			t.Errorf("%s %s = %v, want %v", c.name, dns.TypeToString[c.qtype], got, c.want)
		}
	}
	if got := ask(t, l, "nobody.test", dns.TypeA); got.Rcode != dns.RcodeNameError {
		t.Errorf("an unknown name = %s, want NXDOMAIN", dns.RcodeToString[got.Rcode])
	}
	if n := len(l.DNS.Queries("rebind.test")); n != 3 {
		t.Errorf("%d queries about rebind.test in the record, want 3", n)
	}
	if err := l.Capture.Unspoken("good.test"); err == nil {
		t.Error("the capture did not hear the name good.test")
	}
	if err := l.Capture.Unspoken("evil.test"); err == nil {
		t.Error("the capture did not hear the alias's target evil.test")
	}
	if err := l.Capture.Unspoken("never.test"); err != nil {
		t.Errorf("nobody said never.test: %v", err)
	}
}

// get fetches a URL's path at the address with the SNI, from the gateway namespace.
func get(l *Lab, at netip.Addr, url string) (*http.Response, error) {
	client := l.Client()
	transport := client.Transport.(*http.Transport)
	transport.TLSClientConfig = &tls.Config{RootCAs: l.CA.Pool}
	transport.ForceAttemptHTTP2 = true
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		return l.DialGateway(ctx, network, net.JoinHostPort(at.String(), port))
	}
	return client.Get(url)
}

func TestWebEchoesWhatItReceived(t *testing.T) {
	l := Start(t, Options{})
	resp, err := get(l, apiAddr, "https://api.test/v1/things?q=1")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got Request
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.URI != "/v1/things?q=1" || got.Host != "api.test" || got.SNI != "api.test" || got.Proto != "HTTP/2.0" {
		t.Errorf("api.test says it received %+v", got)
	}
	if seen := l.Web.Requests("api.test"); len(seen) != 1 || seen[0].Method != "GET" {
		t.Errorf("the record says %+v", seen)
	}
	if resp, err := get(l, goodAddr, "http://plain.test/bytes/70000"); err != nil {
		t.Error(err)
	} else if n, _ := io.Copy(io.Discard, resp.Body); n != 70000 {
		t.Errorf("/bytes/70000 gave %d bytes", n)
	}
}

func TestBadCertificatesAreBad(t *testing.T) {
	l := Start(t, Options{})
	for _, host := range []string{"wrongname.test", "expired.test", "selfsigned.test"} {
		var bad *tls.CertificateVerificationError
		if _, err := get(l, badCertAddr, "https://"+host+"/"); !errors.As(err, &bad) {
			t.Errorf("%s: %v, want a certificate error", host, err)
		}
	}
	if _, err := get(l, wildAddr, "https://one.wild.test/"); err != nil {
		t.Errorf("a good certificate: %v", err)
	}
}

func TestPlainServices(t *testing.T) {
	l := Start(t, Options{})
	c := dial(t, l, "tcp", netip.AddrPortFrom(l.TCP.Addr, 22))
	if line, err := bufio.NewReader(c).ReadString('\n'); line != Greeting {
		t.Errorf("port 22 says %q, %v", line, err)
	}
	c = dial(t, l, "tcp", netip.AddrPortFrom(l.TCP.Addr, 7))
	io.WriteString(c, "hello\n")
	if line, err := bufio.NewReader(c).ReadString('\n'); line != "hello\n" {
		t.Errorf("port 7 says %q, %v", line, err)
	}
}

func TestQuietSeesOnePacket(t *testing.T) {
	l := Start(t, Options{})
	if err := l.Capture.Quiet(l.Evil.Addr, l.Evil.Addr6); err != nil {
		t.Fatalf("nothing was sent yet: %v", err)
	}
	ask(t, l, "good.test", dns.TypeA) // traffic to others is no reason
	if err := l.Capture.Quiet(l.Evil.Addr); err != nil {
		t.Errorf("only the name server was asked: %v", err)
	}
	if err := l.Capture.Only(dnsAddr); err != nil {
		t.Errorf("only the name server was asked: %v", err)
	}
	for name, send := range map[string]func(){
		"udp to a port where nobody listens": func() {
			dial(t, l, "udp", netip.AddrPortFrom(l.Evil.Addr, 40000)).Write([]byte("x"))
		},
		"a tcp opening": func() {
			if c, err := l.DialGateway(context.Background(), "tcp", netip.AddrPortFrom(l.Evil.Addr, 40001).String()); err == nil {
				c.Close()
			}
		},
		"udp over IPv6": func() { dial(t, l, "udp", netip.AddrPortFrom(l.Evil.Addr6, 53)).Write([]byte("x")) },
	} {
		if err := l.Capture.Forget(); err != nil {
			t.Fatal(err)
		}
		send()
		if err := l.Capture.Quiet(l.Evil.Addr, l.Evil.Addr6); err == nil {
			t.Errorf("%s: the capture vouched for a silence", name)
		}
		if err := l.Capture.Only(dnsAddr); err == nil {
			t.Errorf("%s: the capture vouched for talk with the name server alone", name)
		}
	}
}

func TestQuietIsNoGuess(t *testing.T) {
	l := Start(t, Options{})
	if err := l.Capture.Quiet(l.Evil.Addr); err != nil {
		t.Fatalf("a whole capture: %v", err)
	}
	l.Capture.note(nil, errors.New("a frame was lost"))
	if err := l.Capture.Quiet(l.Evil.Addr); err == nil {
		t.Error("a capture that lost a frame vouched for a silence")
	}
	blind := Start(t, Options{})
	blind.Capture.sock.SetReadDeadline(time.Unix(1, 0)) // ends its loop
	<-blind.Capture.done
	if err := blind.Capture.Quiet(blind.Evil.Addr); err == nil {
		t.Error("a capture that had ended vouched for a silence")
	}
}

func TestEvilWritesDownItsVisitors(t *testing.T) {
	l := Start(t, Options{})
	c := dial(t, l, "tcp", netip.AddrPortFrom(l.Evil.Addr, 80))
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")
	if answer, _ := io.ReadAll(c); !strings.HasSuffix(string(answer), "evil") {
		t.Errorf("evil.test answered %q", answer)
	}
	contacts := l.Evil.Contacts()
	if len(contacts) != 2 || !strings.Contains(contacts[1].Bytes, "Host: evil.test") {
		t.Errorf("evil.test wrote down %+v", contacts)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	l, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"/run/netns/" + l.Gateway.Name, "/run/netns/" + l.Net.Name, l.Dir}
	for _, name := range names {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("while it runs: %v", err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	for _, name := range names {
		if _, err := os.Stat(name); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
}
