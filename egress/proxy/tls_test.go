package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"portreeve.dev/egress/proxy/clienthello"
)

// helloFor returns what crypto/tls sends first.
func helloFor(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tls.Client(client, cfg).Handshake()
	}()
	_, taken, err := clienthello.Read(server)
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	<-done
	client.Close()
	return taken
}

// handshake connects to a name and shakes hands as for another one.
func (w *world) handshake(host string, cfg *tls.Config) (*tls.Conn, error) {
	nc := w.connect(host, 443)
	conn := tls.Client(nc, cfg)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := conn.HandshakeContext(ctx)
	if err != nil {
		nc.Close()
	}
	return conn, err
}

// isAccessDenied reports whether the peer sent alert 49.
func isAccessDenied(err error) bool {
	return err != nil && strings.Contains(err.Error(), "remote error: tls: access denied")
}

func TestPassedTLSReachesItsNameOnly(t *testing.T) {
	for _, sni := range []string{"pass.test", "PASS.test"} {
		w := newWorld(t, allowPass)
		w.upstream("pass.test", 443, echo())
		conn, err := w.handshake("pass.test", &tls.Config{ServerName: sni, RootCAs: w.realCA.pool()})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: pass.test\r\nConnection: close\r\n\r\n")
		if got, _ := io.ReadAll(conn); !strings.HasSuffix(string(got), "GET pass.test /x ") {
			t.Errorf("got %q", got)
		}
		conn.Close()
		d, end := w.decided()
		if d.Level != levelSNI || d.Layer != "connect" || d.Host != "pass.test" || d.Protocol != "https" || d.Path != "" {
			t.Errorf("decision %+v", d)
		}
		if end.BytesIn == 0 || end.BytesOut == 0 { // how it ends depends on who says goodbye first
			t.Errorf("end %+v", end)
		}
	}
}

// B05, B54: the server name must be there and must be the name that was connected to.
func TestSNIMismatchIsRefused(t *testing.T) {
	for _, rule := range []string{allowPass, strings.Replace(allowPass, `"hosts"`, `"tls": "inspect", "hosts"`, 1)} {
		for sni, reason := range map[string]string{"evil.test": "sni_mismatch", "a.pass.test": "sni_mismatch", "": "sni_missing", "pass..test": "host_invalid"} {
			w := newWorld(t, rule+","+strings.ReplaceAll(allowPass, "pass", "evil"))
			w.upstream("pass.test", 443, echo())
			w.upstream("evil.test", 443, echo())
			_, err := w.handshake("pass.test", &tls.Config{ServerName: sni, InsecureSkipVerify: true})
			if !isAccessDenied(err) {
				t.Errorf("SNI %q: got %v, want alert 49", sni, err)
			}
			if d, _ := w.decided(); d.Verdict != "deny" || d.Reason != reason {
				t.Errorf("SNI %q: decision %+v", sni, d)
			}
			if dials := w.dialer.dials(); len(dials) != 0 {
				t.Errorf("SNI %q: dialled %v", sni, dials)
			}
		}
	}
}

// addExtension puts an extension at the end of a hello in one record.
func addExtension(hello []byte, kind uint16, data []byte) []byte {
	ext := append([]byte{byte(kind >> 8), byte(kind), byte(len(data) >> 8), byte(len(data))}, data...)
	out := append(bytes.Clone(hello), ext...)
	grow := func(at, size int) {
		n := len(ext)
		for i := at + size - 1; i >= at; i-- {
			n += int(out[i])
			out[i] = byte(n)
			n >>= 8
		}
	}
	at := 5 + 4 + 2 + 32
	at += 1 + int(out[at])
	at += 2 + int(out[at])<<8 + int(out[at+1])
	at += 1 + int(out[at])
	grow(3, 2) // record
	grow(6, 3) // message
	grow(at, 2)
	return out
}

// B52: a hello over many segments and records.
func TestHelloInPieces(t *testing.T) {
	raw := helloFor(t, &tls.Config{ServerName: "pass.test"})
	var records []byte
	for b := raw[5:]; len(b) > 0; {
		n := min(len(raw)/10+1, len(b))
		records = append(append(records, 22, 3, 1, byte(n>>8), byte(n)), b[:n]...)
		b = b[n:]
	}
	for name, send := range map[string][]byte{"segments": raw, "records and segments": records} {
		w := newWorld(t, allowPass)
		w.serveTCP("pass.test", 443, greet)
		nc := w.connect("pass.test", 443)
		nc.SetNoDelay(true)
		for _, b := range send {
			if _, err := nc.Write([]byte{b}); err != nil {
				t.Fatal(err)
			}
		}
		if got := exchangeRaw(t, nc, ""); got != "server first\ngot "+string(send) {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// B33, B54, B11: by address no server name is needed, but one that a rule denies is denied.
func TestTLSByAddress(t *testing.T) {
	const rules = `{"id": "net", "action": "allow", "cidrs": ["203.0.113.9/32"], "protocols": ["https"], "ports": [443]}, {"id": "evil", "action": "deny", "hosts": ["evil.test"]}`
	for sni, reason := range map[string]string{"": "allowed", "other.test": "allowed", "evil.test": "rule_denied"} {
		w := newWorld(t, rules)
		w.serveTCP("203.0.113.9", 443, greet)
		got := exchangeRaw(t, w.connect("203.0.113.9", 443), string(helloFor(t, &tls.Config{ServerName: sni, InsecureSkipVerify: true})))
		d, _ := w.decided()
		if d.Reason != reason || strings.HasPrefix(got, "server first") != (reason == "allowed") {
			t.Errorf("SNI %q: got %q, decision %+v", sni, got, d)
		}
	}
}

// A server name is only a claim by address, but a rule may come to deny it: the flow table has to know.
func TestFlowByAddressSaysWhatItClaims(t *testing.T) {
	w := newWorld(t, `{"id": "net", "action": "allow", "cidrs": ["203.0.113.9/32"], "protocols": ["https"], "ports": [443]}`)
	w.serveTCP("203.0.113.9", 443, greet)
	nc := w.connect("203.0.113.9", 443)
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(10 * time.Second))
	nc.Write(helloFor(t, &tls.Config{ServerName: "OTHER.test", InsecureSkipVerify: true}))
	if _, err := nc.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	w.flows.mu.Lock()
	defer w.flows.mu.Unlock()
	opaque, dialled := 0, 0
	for _, f := range w.flows.live {
		if f.Claim == "other.test" && f.Opaque {
			opaque++
		}
		if f.Claim == "other.test" && f.Remote.IsValid() {
			dialled++
		}
	}
	if opaque != 1 || dialled != 1 {
		t.Errorf("%d flows pass unseen and %d were dialled under that name, want one each: %+v", opaque, dialled, w.flows.live)
	}
}

// B56: what is not TLS on a port that is for TLS only, and the other way round.
func TestWrongProtocolIsRefused(t *testing.T) {
	tests := []struct {
		name, host string
		port       uint16
		send       string
		reason     string
	}{
		{"SSH on 443", "pass.test", 443, "SSH-2.0-OpenSSH\r\n", "not_tls"},
		{"HTTP on 443", "pass.test", 443, "GET / HTTP/1.1\r\nHost: pass.test\r\n\r\n", "not_tls"},
		{"broken TLS on 443", "pass.test", 443, "\x16\x03\x01\x00\x05\x0b\x00\x00\x01\x00", "parse_error"},
		{"something on 80", "clear.test", 80, "\x00\x01\x02", "not_http"},
		{"TLS on 80", "clear.test", 80, string(helloFor(t, &tls.Config{ServerName: "clear.test"})), "no_rule"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, allowPass+","+allowClear)
			w.serveTCP(tt.host, tt.port, greet)
			got := exchangeRaw(t, w.connect(tt.host, tt.port), tt.send)
			if d, _ := w.decided(); d.Reason != tt.reason || strings.Contains(got, "server") || len(w.dialer.dials()) > 0 {
				t.Errorf("got %q, decision %+v", got, d)
			}
		})
	}
}

func TestDeniedNameGetsAnAlert(t *testing.T) {
	w := newWorld(t, allowPass)
	_, err := w.handshake("evil.test", &tls.Config{ServerName: "evil.test"})
	if !isAccessDenied(err) {
		t.Errorf("got %v, want alert 49", err)
	}
	if d, _ := w.decided(); d.Reason != "no_rule" || d.Host != "evil.test" {
		t.Errorf("decision %+v", d)
	}
}

func TestOpenedTLS(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, allowGood)
		w.upstream("good.test", 443, echo())
		resp, err := w.client(h2, w.orgCA.pool()).Post("https://good.test/a/../b?q=1", "text/plain", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(body) != "POST good.test /b?q=1 hello" || (resp.ProtoMajor == 2) != h2 {
			t.Errorf("%s: %q", resp.Proto, body)
		}
		d, end := w.decided()
		if d.Layer != "http" || d.Level != "http" || d.Method != "POST" || d.Path != "/b" || d.Protocol != "https" || d.Host != "good.test" {
			t.Errorf("decision %+v", d)
		}
		if end.Status != 200 || end.BytesOut != 5 || end.BytesIn != int64(len(body)) || end.Addr.String() != "203.0.113.1" {
			t.Errorf("end %+v", end)
		}
	}
}

func TestInspectWithoutCertificatesIsRefused(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"not set up": func(c *Config) { c.Certificates = nil },
		"failing":    func(c *Config) { c.Certificates = &authority{err: errors.New("sealed")} },
	} {
		w := newWorld(t, allowGood, change)
		w.upstream("good.test", 443, echo())
		if _, err := w.handshake("good.test", &tls.Config{ServerName: "good.test", RootCAs: w.realCA.pool()}); err == nil {
			t.Errorf("%s: the connection was passed through", name)
		}
		if d, _ := w.decided(); d.Reason != "protocol_not_supported" || len(w.dialer.dials()) > 0 {
			t.Errorf("%s: decision %+v", name, d)
		}
	}
}

// B61: an upstream that can't prove its name gets nothing.
func TestUpstreamMustProveItsName(t *testing.T) {
	tests := map[string]*tls.Certificate{
		"another name":       nil,
		"an unknown issuer":  newAuthority(t).leaf(t, "good.test"),
		"a self-made issuer": newAuthority(t).leaf(t, "*.test"),
	}
	for name, leaf := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, allowGood)
			s := w.upstream("good.test", 443, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request arrived") }))
			if leaf == nil {
				leaf = w.realCA.leaf(t, "evil.test")
			}
			s.TLS.Certificates = []tls.Certificate{*leaf}
			resp, err := w.client(false, w.orgCA.pool()).Get("https://good.test/")
			if err != nil {
				t.Fatal(err)
			}
			if p := problemIn(t, resp); p.Status != 502 || p.Code != "upstream_tls" {
				t.Errorf("answer %+v", p)
			}
			if _, end := w.decided(); end.Error != "upstream_tls" {
				t.Errorf("end %+v", end)
			}
		})
	}
}

// TestEndedCertificateStaysEnded: by the machine's clock, which was set back, it would be good.
func TestEndedCertificateStaysEnded(t *testing.T) {
	for name, tt := range map[string]struct {
		later time.Duration // than the machine's clock
		want  int
	}{"in its time": {0, 200}, "after its end": {2 * time.Hour, 502}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, allowGood, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(tt.later) } })
			w.upstream("good.test", 443, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			resp, err := w.client(false, w.orgCA.pool()).Get("https://good.test/")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != tt.want {
				t.Errorf("status %d, want %d", resp.StatusCode, tt.want)
			}
		})
	}
}

// B55: a session is resumed for the name it was made for, and nowhere else.
func TestResumptionStaysWithItsName(t *testing.T) {
	w := newWorld(t, allowGood+","+strings.ReplaceAll(allowGood, "good", "other"))
	cache := &oneSession{}
	dial := func(name string) bool {
		conn, err := w.handshake(name, &tls.Config{ServerName: name, RootCAs: w.orgCA.pool(), ClientSessionCache: cache, NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "TRACE / HTTP/1.1\r\nHost: x\r\n\r\n") // the ticket comes before the answer
		_, _ = io.ReadAll(conn)
		return conn.ConnectionState().DidResume
	}
	if dial("good.test") || !dial("good.test") {
		t.Error("the second connection to the same name was not resumed")
	}
	if dial("other.test") {
		t.Error("a session of one name was resumed for another")
	}
}

// oneSession offers its session to every server.
type oneSession struct{ s *tls.ClientSessionState }

func (c *oneSession) Get(string) (*tls.ClientSessionState, bool) { return c.s, c.s != nil }
func (c *oneSession) Put(_ string, s *tls.ClientSessionState)    { c.s = s }
