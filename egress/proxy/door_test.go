package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
)

var attachedBox = egress.Binding{Sandbox: "sbx_2", Org: testOrg, Incarnation: 1}

// enter serves one end of a TCP connection as a door would, and returns the other and what the door was told to answer.
func (w *world) enter(to DoorTarget) (net.Conn, <-chan *DoorRefusal) {
	w.t.Helper()
	return w.enterOver(to, func(nc net.Conn) net.Conn { return nc }, func(nc net.Conn) net.Conn { return nc })
}

func (w *world) enterOver(to DoorTarget, server, client func(net.Conn) net.Conn) (net.Conn, <-chan *DoorRefusal) {
	w.t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	defer l.Close()
	answers := make(chan *DoorRefusal, 1)
	if to.Answer == nil && !to.Forward {
		to.Answer = func(r *DoorRefusal) error { answers <- r; return nil }
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	nc, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	theirs, err := l.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer close(done)
		w.proxy.ServeDoor(ctx, server(theirs), attachedBox, to)
	}()
	nc.SetDeadline(time.Now().Add(10 * time.Second))
	w.t.Cleanup(func() { nc.Close(); cancel(); <-done })
	return client(nc), answers
}

func TestDoorHoldsItsName(t *testing.T) {
	good := DoorTarget{Host: "good.test", Port: 443}
	ask := func(w *world, nc net.Conn, sni, host string) string {
		conn := tls.Client(nc, &tls.Config{RootCAs: w.orgCA.pool(), ServerName: sni})
		if err := conn.Handshake(); err != nil {
			return "no handshake"
		}
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		resp, _ := readAnswer(w.t, bufio.NewReader(conn))
		return resp.Status
	}
	for name, c := range map[string]struct {
		to        DoorTarget
		sni, host string
		got       string
		reason    policies.Reason
	}{
		"the same everywhere":       {good, "good.test", "good.test", "200 OK", policies.ReasonAllowed},
		"another server name (B05)": {good, "other.test", "other.test", "no handshake", policies.ReasonSNIMismatch},
		"another Host (B01)":        {good, "good.test", "other.test", "421 Misdirected Request", policies.ReasonIdentityMismatch},
		"another name at the door":  {DoorTarget{Host: "other.test", Port: 443}, "good.test", "good.test", "no handshake", policies.ReasonSNIMismatch},
		"its address at the door":   {DoorTarget{Addr: netip.MustParseAddr("203.0.113.1"), Port: 443}, "good.test", "good.test", "refused", policies.ReasonNoRule},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, allowGood+`, {"id": "other", "action": "allow", "hosts": ["other.test"], "tls": "inspect", "foreign_credentials": "allow"}`)
			w.upstream("good.test", 443, echo())
			w.upstream("other.test", 443, echo())
			nc, answers := w.enter(c.to)
			got := "refused"
			if <-answers == nil {
				got = ask(w, nc, c.sni, c.host)
			}
			d, _ := w.decided()
			if got != c.got || d.Reason != c.reason.String() || d.Sandbox != attachedBox.Sandbox {
				t.Errorf("%q, want %q; recorded %+v", got, c.got, d)
			}
			if c.reason != policies.ReasonAllowed && len(w.dialer.dials()) > 0 {
				t.Errorf("dialled %v", w.dialer.dials())
			}
		})
	}
}

func TestDoorIsToldWhy(t *testing.T) {
	w := newWorld(t, allowGood)
	nc, answers := w.enter(DoorTarget{Host: "evil.test", Port: 443})
	r := <-answers
	if r == nil || r.Status != http.StatusForbidden || r.Reason != policies.ReasonNoRule {
		t.Fatalf("told %+v", r)
	}
	var p problem
	if err := json.Unmarshal(r.Body, &p); err != nil || p.Decision != r.Decision || p.Destination != "evil.test:443" || !p.Requestable {
		t.Errorf("its body is %s (%v)", r.Body, err)
	}
	if _, err := nc.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on")
	}
	if d, _ := w.decided(); d.ID != r.Decision || d.Host != "evil.test" || d.Port != 443 {
		t.Errorf("recorded %+v", d)
	}
	if p.Type == "" || len(w.dialer.dials()) > 0 {
		t.Errorf("dialled %v", w.dialer.dials())
	}
}

// A name that a sandbox makes up is looked up before it is dialled: at a door it is out of the budget of its wildcard, by CONNECT and in
// absolute form.
func TestNamesAtDoorsAreBounded(t *testing.T) {
	w := newWorld(t, `{"id": "wild", "action": "allow", "hosts": ["*.wild.test"], "protocols": ["http", "https"], "ports": [80, 443]}`, func(c *Config) {
		c.NameBudget = func(b egress.Binding, host string) (string, bool) {
			if b != attachedBox || !strings.HasSuffix(host, ".wild.test") {
				t.Errorf("%s is charged to %+v", host, b)
			}
			return "*.wild.test", host == "a.wild.test"
		}
	})
	w.stranger("a.wild.test", 80, echo())
	for host, want := range map[string]policies.Reason{"a.wild.test": policies.ReasonAllowed, "b.wild.test": policies.ReasonNameBudget, "evil.test": policies.ReasonNoRule} {
		nc, answers := w.enter(DoorTarget{Host: host, Port: 80})
		got := policies.ReasonAllowed
		if r := <-answers; r != nil {
			got = r.Reason
		}
		nc.Close()
		if got != want {
			t.Errorf("CONNECT %s: %s, want %s", host, got, want)
		}
		nc, _ = w.enter(DoorTarget{Forward: true})
		fmt.Fprintf(nc, "GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n", host, host)
		resp, body := readAnswer(t, bufio.NewReader(nc))
		nc.Close()
		if (resp.StatusCode == http.StatusOK) != (want == policies.ReasonAllowed) || resp.StatusCode != http.StatusOK && !strings.Contains(body, want.String()) {
			t.Errorf("GET http://%s/: %d %s, want %s", host, resp.StatusCode, body, want)
		}
	}
	for _, d := range w.decisions(5, false) {
		if d.Reason == policies.ReasonNameBudget.String() && d.Host != "*.wild.test" {
			t.Errorf("a line of its own for %s", d.Host)
		}
	}
	if dials := w.dialer.dials(); len(dials) != 1 {
		t.Errorf("dialled %v", dials)
	}
}

func TestDoorWithoutARecordIsClosed(t *testing.T) {
	w := newWorld(t, allowGood)
	w.recorder.fail(io.ErrShortWrite)
	_, answers := w.enter(DoorTarget{Host: "evil.test", Port: 443})
	if r := <-answers; r == nil || r.Status != http.StatusServiceUnavailable || r.Reason != policies.ReasonRecordFailed || r.Decision != "" {
		t.Errorf("told %+v", r)
	}
	if r := w.proxy.RefuseDoor(t.Context(), attachedBox, DoorTarget{}, policies.ReasonCredential, ""); r.Reason != policies.ReasonRecordFailed {
		t.Errorf("a refusal that can't be recorded is told as %+v", r)
	}
	w.recorder.fail(nil)
	if r := w.proxy.RefuseDoor(t.Context(), attachedBox, DoorTarget{}, policies.ReasonCredential, ""); r.Status != http.StatusProxyAuthRequired || r.Decision == "" {
		t.Errorf("the same when it can be: %+v", r)
	}
}

func TestForwardedRequestsGoTheirOwnWays(t *testing.T) {
	w := newWorld(t, allowClear+`, {"id": "other", "action": "allow", "hosts": ["other.test"], "protocols": ["http"], "foreign_credentials": "block"}`)
	var seen []string
	note := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		for field := range r.Header {
			if strings.HasPrefix(field, "Proxy-") {
				seen = append(seen, field)
			}
		}
		echo().ServeHTTP(rw, r)
	})
	w.upstream("clear.test", 80, note)
	w.upstream("other.test", 80, note)
	var asked [][]string
	nc, _ := w.enter(DoorTarget{Forward: true, Admit: func(sent []string) policies.Reason {
		asked = append(asked, sent)
		if len(sent) == 1 && sent[0] == "Basic expired" {
			return policies.ReasonCredentialExpired
		}
		return ""
	}})
	r := bufio.NewReader(nc)
	ask := func(method, url, host, credential string) string {
		fmt.Fprintf(nc, "%s %s HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: %s\r\nProxy-Connection: keep-alive\r\n\r\n", method, url, host, credential)
		resp, body := readAnswer(t, r)
		if resp.StatusCode == http.StatusProxyAuthRequired && resp.Header.Get("Proxy-Authenticate") == "" {
			t.Error("it is asked for no credential")
		}
		return fmt.Sprintf("%d %s", resp.StatusCode, body)
	}
	for _, c := range []struct{ method, url, host, want string }{
		{"GET", "http://clear.test/a", "clear.test", "200 GET clear.test /a "},
		{"GET", "http://other.test/b?c", "other.test", "200 GET other.test /b?c "}, // another host on the same connection
		{"GET", "http://clear.test", "clear.test", "200 GET clear.test / "},
		{"GET", "http://evil.test/", "evil.test", "403 "},
		{"GET", "/", "clear.test", "400 "},
		{"GET", "https://clear.test/", "clear.test", "400 "},
		{"GET", "http://127.1/", "127.1", "400 "},
		{"GET", "http://clear.test:81/", "clear.test:81", "403 "},
		{"GET", "http://other.test/b", "other.test", "200 GET other.test /b "}, // and it still goes on
	} {
		if got := ask(c.method, c.url, c.host, "Basic good"); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s %s: %q, want %q", c.method, c.url, got, c.want)
		}
	}
	if got := ask("GET", "http://clear.test/a", "clear.test", "Basic expired"); !strings.HasPrefix(got, "407 ") {
		t.Errorf("with an expired credential: %q", got)
	}
	if _, err := r.ReadByte(); err != io.EOF {
		t.Errorf("after it the connection goes on: %v", err)
	}
	if len(seen) > 0 || len(asked) != 10 {
		t.Errorf("upstreams saw %v; asked %d times", seen, len(asked))
	}
	list := w.decisions(10, true)
	if last := list[9]; last.Reason != "credential_expired" || last.Sandbox != attachedBox.Sandbox {
		t.Errorf("recorded %+v", last)
	}
	if want := []string{"clear.test:80", "other.test:80"}; !slices.Equal(w.dialer.dials(), want) {
		t.Errorf("dialled %v, want %v", w.dialer.dials(), want)
	}
}

// A request without a credential is refused before it is looked at: what stands on record is the connection, and nothing that the
// request says of itself.
func TestMissingCredentialIsRecordedOfTheConnection(t *testing.T) {
	w := newWorld(t, allowClear)
	w.upstream("clear.test", 80, echo())
	nc, _ := w.enter(DoorTarget{Forward: true, Admit: func(sent []string) policies.Reason {
		if len(sent) == 0 {
			return policies.ReasonCredential
		}
		return ""
	}})
	r := bufio.NewReader(nc)
	for _, c := range []struct {
		credential string
		status     int
	}{{"Proxy-Authorization: Basic good\r\n", http.StatusOK}, {"", http.StatusProxyAuthRequired}} {
		fmt.Fprintf(nc, "GET http://clear.test/a HTTP/1.1\r\nHost: clear.test\r\n%s\r\n", c.credential)
		if resp, body := readAnswer(t, r); resp.StatusCode != c.status {
			t.Errorf("with %q: %d %s", c.credential, resp.StatusCode, body)
		}
	}
	type record struct{ Verdict, Reason, Layer, Level, Protocol, Host, Method, Path string }
	want := []record{
		{"allow", "allowed", "http", "http", "http", "clear.test", "GET", "/a"},
		{"deny", policies.ReasonCredential.String(), "connect", "address", "", "", "", ""},
	}
	for i, d := range w.decisions(2, true) {
		if got := (record{d.Verdict, d.Reason, d.Layer, d.Level, d.Protocol, d.Host, d.Method, d.Path}); got != want[i] {
			t.Errorf("recorded %+v, want %+v", got, want[i])
		}
	}
}

func TestForwardedHeadIsStrict(t *testing.T) {
	w := newWorld(t, allowClear)
	nc, _ := w.enter(DoorTarget{Forward: true, Replay: []byte("GET http://clear.test/ HTTP/1.1\r\nHost: clear.test\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n")})
	resp, _ := readAnswer(t, bufio.NewReader(nc))
	if d, _ := w.decided(); resp.StatusCode != http.StatusBadRequest || d.Reason != policies.ReasonParse.String() || d.Host != "" {
		t.Errorf("%d, recorded %+v", resp.StatusCode, d)
	}
}

func TestForwardedUpgrade(t *testing.T) {
	w := newWorld(t, allowClear)
	w.upstream("clear.test", 80, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		nc, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer nc.Close()
		io.WriteString(nc, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		io.Copy(nc, nc)
	}))
	nc, _ := w.enter(DoorTarget{Forward: true})
	io.WriteString(nc, "GET http://clear.test/ws HTTP/1.1\r\nHost: clear.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
	r := bufio.NewReader(nc)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
	io.WriteString(nc, "hello")
	got := make([]byte, 5)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestDoorOverTLSIsNotBypassed(t *testing.T) {
	w := newWorld(t, allowRaw)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer nc.Close(); io.Copy(nc, nc) }()
		}
	}()
	w.dialer.serve("raw.test", 9000, l.Addr().String())
	leaf := w.realCA.leaf(t, "door.test")
	nc, answers := w.enterOver(DoorTarget{Host: "raw.test", Port: 9000},
		func(nc net.Conn) net.Conn { return tls.Server(nc, &tls.Config{Certificates: []tls.Certificate{*leaf}}) },
		func(nc net.Conn) net.Conn {
			return tls.Client(nc, &tls.Config{RootCAs: w.realCA.pool(), ServerName: "door.test"})
		})
	conn := nc.(*tls.Conn)
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	if r := <-answers; r != nil {
		t.Fatalf("refused: %+v", r)
	}
	// More than is copied by hand: then the kernel would move the bytes, were it let.
	sent := []byte(strings.Repeat("0123456789abcdef", 2*spliceAfter/16))
	go func() {
		conn.Write(sent)
		conn.CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != string(sent) {
		t.Errorf("%d of %d bytes came back whole: %v", len(got), len(sent), err)
	}
	if _, end := w.decided(); end.BytesIn != int64(len(sent)) || end.BytesOut != int64(len(sent)) || end.Error != "" {
		t.Errorf("closed as %+v", end)
	}
}

func TestTightenedPolicyEndsDoors(t *testing.T) {
	w := newWorld(t, allowRaw)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w.dialer.serve("raw.test", 9000, l.Addr().String())
	nc, answers := w.enter(DoorTarget{Host: "raw.test", Port: 9000})
	if r := <-answers; r != nil {
		t.Fatalf("refused: %+v", r)
	}
	up, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	io.WriteString(up, "x")
	if _, err := io.ReadFull(nc, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	w.tighten(allowGood)
	if _, err := nc.Read(make([]byte, 1)); !isReset(err) {
		t.Errorf("it ends with %v", err)
	}
	if _, end := w.decided(); end.Error != policies.ReasonRevoked.String() {
		t.Errorf("closed as %+v", end)
	}
}

func TestSelfThroughADoor(t *testing.T) {
	w := newWorld(t, allowGood, func(c *Config) {
		c.Self = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			b, _ := BindingOf(r.Context())
			io.WriteString(rw, b.Sandbox)
		})
	})
	nc, _ := w.enter(DoorTarget{Forward: true})
	io.WriteString(nc, "GET http://portreeve.internal/ HTTP/1.1\r\nHost: portreeve.internal\r\nX-Portreeve-Self: 1\r\n\r\n")
	if resp, body := readAnswer(t, bufio.NewReader(nc)); resp.StatusCode != 200 || body != attachedBox.Sandbox {
		t.Errorf("absolute form: %d %q", resp.StatusCode, body)
	}
	nc, answers := w.enter(DoorTarget{Host: SelfHost, Port: 80})
	if r := <-answers; r != nil {
		t.Fatalf("refused: %+v", r)
	}
	io.WriteString(nc, "GET / HTTP/1.1\r\nHost: portreeve.internal\r\nX-Portreeve-Self: 1\r\n\r\n")
	if resp, body := readAnswer(t, bufio.NewReader(nc)); resp.StatusCode != 200 || body != attachedBox.Sandbox {
		t.Errorf("CONNECT: %d %q", resp.StatusCode, body)
	}
	_, answers = w.enter(DoorTarget{Host: SelfHost, Port: 443})
	if r := <-answers; r == nil || r.Reason != policies.ReasonProtocol {
		t.Errorf("on port 443: %+v", r)
	}
}
