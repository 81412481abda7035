package explicit

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elazarl/goproxy"
	"go.uber.org/goleak"

	"portreeve.dev/egress"
	"portreeve.dev/egress/credentials"
	"portreeve.dev/egress/proxy"
	"portreeve.dev/policies"
	"portreeve.dev/policies/httphead"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

var box = egress.Binding{Sandbox: "sbx_a", Org: "org_a", Incarnation: 1}

// A fakeProxy answers for what it is given: CONNECT with what comes through the tunnel, echoed; forward with what was replayed.
type fakeProxy struct {
	mu      sync.Mutex
	served  []proxy.DoorTarget
	refused []policies.Reason
	deny    policies.Reason
	hold    chan struct{} // a refusal waits for its end, if there is one
}

func (f *fakeProxy) ServeDoor(ctx context.Context, nc net.Conn, b egress.Binding, to proxy.DoorTarget) {
	defer nc.Close()
	f.mu.Lock()
	f.served = append(f.served, to)
	deny := f.deny
	f.mu.Unlock()
	if to.Forward {
		fmt.Fprintf(nc, "replayed %q", to.Replay)
		return
	}
	if deny != "" {
		to.Answer(f.RefuseDoor(ctx, b, to, deny, ""))
		return
	}
	if to.Answer(nil) != nil {
		return
	}
	nc.Write(to.Replay)
	io.Copy(nc, nc)
}

func (f *fakeProxy) RefuseDoor(_ context.Context, _ egress.Binding, _ proxy.DoorTarget, reason policies.Reason, _ string) *proxy.DoorRefusal {
	if f.hold != nil {
		<-f.hold
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = append(f.refused, reason)
	status := http.StatusForbidden
	if reason == policies.ReasonCredential {
		status = http.StatusProxyAuthRequired
	}
	return &proxy.DoorRefusal{Status: status, Reason: reason, Decision: "dec_1", Body: []byte(`{"code":"` + reason.String() + `"}`)}
}

func (f *fakeProxy) seen() ([]proxy.DoorTarget, []policies.Reason) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.served), slices.Clone(f.refused)
}

// A door asks for a password; an open one knows whose it is.
type door struct{ open bool }

func (d door) Known() (egress.Binding, bool) { return box, d.open }
func (d door) Admit(_ context.Context, username, password string) credentials.Admission {
	switch {
	case d.open, username == "sbx_a" && password == "right":
		return credentials.Admission{Binding: box}
	case username == "sbx_a":
		return credentials.Admission{Binding: box, Reason: policies.ReasonCredential, Record: true}
	case username == "sbx_b" && password == "right":
		return credentials.Admission{Binding: egress.Binding{Sandbox: "sbx_b", Org: "org_a"}}
	}
	return credentials.Admission{Reason: policies.ReasonCredential}
}

const (
	right   = "Proxy-Authorization: Basic c2J4X2E6cmlnaHQ=\r\n" // sbx_a:right
	wrong   = "Proxy-Authorization: Basic c2J4X2E6d3Jvbmc=\r\n" // sbx_a:wrong
	another = "Proxy-Authorization: Basic c2J4X2I6cmlnaHQ=\r\n" // sbx_b:right
)

type world struct {
	t      *testing.T
	server *Server
	proxy  *fakeProxy
	l      net.Listener
	conns  sync.WaitGroup // that are not settled
}

// calm returns when nothing is left to do for the connections there were.
func (w *world) calm() { w.conns.Wait() }

func newWorld(t *testing.T, keeper credentials.Keeper, change ...func(*Config)) *world {
	t.Helper()
	w := &world{t: t, proxy: &fakeProxy{}}
	cfg := Config{Proxy: w.proxy}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if w.server, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	if w.l, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { w.server.Run(ctx) })
	all.Go(func() {
		for {
			nc, err := w.l.Accept()
			if err != nil {
				return
			}
			w.conns.Add(1)
			all.Go(func() { defer w.conns.Done(); w.server.ServeConn(ctx, nc, keeper) })
		}
	})
	t.Cleanup(func() {
		cancel()
		w.l.Close()
		all.Wait()
	})
	return w
}

func (w *world) dial() *net.TCPConn {
	w.t.Helper()
	nc, err := net.Dial("tcp4", w.l.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	nc.SetDeadline(time.Now().Add(patience))
	w.t.Cleanup(func() { nc.Close() })
	return nc.(*net.TCPConn)
}

// ask sends bytes and reads until the end.
func (w *world) ask(sent string) string {
	w.t.Helper()
	nc := w.dial()
	io.WriteString(nc, sent)
	nc.CloseWrite()
	got, err := io.ReadAll(nc)
	if err != nil {
		w.t.Fatalf("after %q: %v", got, err)
	}
	return string(got)
}

func status(answer string) string {
	line, _, _ := strings.Cut(answer, "\r\n")
	return strings.TrimPrefix(line, "HTTP/1.1 ")
}

func TestConnectIsGivenAway(t *testing.T) {
	for name, c := range map[string]struct {
		authority string
		want      proxy.DoorTarget
	}{
		"a name":                           {"good.test:443", proxy.DoorTarget{Host: "good.test", Port: 443}},
		"a name in another spelling (B20)": {"GOOD.test.:8443", proxy.DoorTarget{Host: "good.test", Port: 8443}},
		"an address":                       {"203.0.113.5:443", proxy.DoorTarget{Addr: netip.MustParseAddr("203.0.113.5"), Port: 443}},
		"an IPv6 address":                  {"[2001:db8::1]:22", proxy.DoorTarget{Addr: netip.MustParseAddr("2001:db8::1"), Port: 22}},
		"IPv4 in an IPv6 address (B17)":    {"[::ffff:169.254.169.254]:80", proxy.DoorTarget{Addr: netip.MustParseAddr("169.254.169.254"), Port: 80}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, door{})
			// The first bytes of the tunnel come with the request (B68).
			got := w.ask("CONNECT " + c.authority + " HTTP/1.1\r\nHost: " + c.authority + "\r\n" + right + "\r\nearly GET / HTTP/1.1\r\n\r\n")
			if got != "HTTP/1.1 200 Connection established\r\n\r\nearly GET / HTTP/1.1\r\n\r\n" {
				t.Errorf("it got %q", got)
			}
			served, refused := w.proxy.seen()
			if len(served) != 1 || len(refused) != 0 || served[0].Host != c.want.Host || served[0].Addr != c.want.Addr || served[0].Port != c.want.Port || served[0].Forward {
				t.Errorf("served %+v, refused %v", served, refused)
			}
		})
	}
}

func TestAbsoluteFormIsGivenAway(t *testing.T) {
	w := newWorld(t, door{})
	request := "POST http://good.test/a?b HTTP/1.1\r\nHost: good.test\r\nContent-Length: 4\r\n" + right + "\r\nbody and more"
	if got := w.ask(request); got != fmt.Sprintf("replayed %q", request) {
		t.Errorf("it got %q", got)
	}
	if served, _ := w.proxy.seen(); len(served) != 1 || !served[0].Forward || served[0].Admit == nil {
		t.Errorf("served %+v", served)
	}
}

func TestNamesThatAreNone(t *testing.T) {
	// B16, B19, B21, B25: odd spellings of addresses, names in brackets.
	for _, host := range []string{"2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0", "-a.test", "a..test", "1.2.3.4.5", strings.Repeat("a", 64) + ".test"} {
		w := newWorld(t, door{})
		got := w.ask("CONNECT " + host + ":443 HTTP/1.1\r\nHost: " + host + ":443\r\n" + right + "\r\n")
		served, refused := w.proxy.seen()
		if status(got) != "403 Forbidden" || len(served) != 0 || !slices.Equal(refused, []policies.Reason{policies.ReasonHostInvalid}) {
			t.Errorf("%q: %q, served %v, refused %v", host, status(got), served, refused)
		}
	}
}

func TestCredentialIsNeeded(t *testing.T) {
	for form, line := range map[string]string{"CONNECT": "CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:443\r\n", "absolute form": "GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n"} {
		for name, c := range map[string]struct {
			field   string
			records int
		}{
			"none (B12)": {"", 0}, "a wrong password": {wrong, 1}, "nobody's": {"Proxy-Authorization: Basic eDp5\r\n", 0},
			"not base64": {"Proxy-Authorization: Basic !!\r\n", 0}, "another scheme": {"Proxy-Authorization: Bearer right\r\n", 0},
			"two, of which one is right": {wrong + right, 0}, "in another field": {"Authorization: Basic c2J4X2E6cmlnaHQ=\r\n", 0},
		} {
			t.Run(form+"/"+name, func(t *testing.T) {
				w := newWorld(t, door{})
				got := w.ask(line + c.field + "\r\nGET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n" + right + "\r\n")
				if status(got) != "407 Proxy Authentication Required" || strings.Count(got, "HTTP/1.1 ") != 1 ||
					!strings.Contains(got, "Proxy-Authenticate: Basic") || !strings.Contains(got, "credential_invalid") {
					t.Errorf("it got %q", got)
				}
				w.calm()
				if served, refused := w.proxy.seen(); len(served) != 0 || len(refused) != c.records || w.server.Refused() != uint64(1-c.records) {
					t.Errorf("served %v, refused %v, counted %d", served, refused, w.server.Refused())
				}
			})
		}
		t.Run(form+"/the right one", func(t *testing.T) {
			w := newWorld(t, door{})
			w.ask(line + right + "\r\n")
			if served, refused := w.proxy.seen(); len(served) != 1 || len(refused) != 0 {
				t.Errorf("served %v, refused %v", served, refused)
			}
		})
		t.Run(form+"/none, on the sandbox's own socket", func(t *testing.T) {
			w := newWorld(t, door{open: true})
			w.ask(line + "\r\n")
			if served, refused := w.proxy.seen(); len(served) != 1 || len(refused) != 0 {
				t.Errorf("served %v, refused %v", served, refused)
			}
		})
	}
}

// Whoever guesses doesn't learn whether a sandbox is there: a wrong password for one is answered as nobody's is, and before it is recorded.
func TestWrongPasswordTellsNothing(t *testing.T) {
	w := newWorld(t, door{})
	w.proxy.hold = make(chan struct{})
	record := sync.OnceFunc(func() { close(w.proxy.hold) })
	t.Cleanup(record)
	const line = "CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:443\r\n"
	known, nobody := w.ask(line+wrong+"\r\n"), w.ask(line+"Proxy-Authorization: Basic eDp5\r\n\r\n")
	if known != nobody || status(known) != "407 Proxy Authentication Required" {
		t.Errorf("a sandbox that is there gets %q, nobody %q", known, nobody)
	}
	record()
	w.calm()
	if _, refused := w.proxy.seen(); len(refused) != 1 || w.server.Refused() != 1 {
		t.Errorf("recorded %v, counted %d", refused, w.server.Refused())
	}
}

func TestEachRequestShowsTheCredential(t *testing.T) {
	w := newWorld(t, door{})
	w.ask("GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n" + right + "\r\n")
	served, _ := w.proxy.seen()
	if len(served) != 1 {
		t.Fatalf("served %v", served)
	}
	value := func(field string) []string {
		_, v, _ := strings.Cut(strings.TrimSpace(field), ": ")
		return []string{v}
	}
	for name, c := range map[string]struct {
		sent []string
		want policies.Reason
	}{
		"the same": {value(right), ""}, "none": {nil, policies.ReasonCredential}, "a wrong one": {value(wrong), policies.ReasonCredential},
		"another sandbox's": {value(another), policies.ReasonCredential}, "two": {append(value(right), value(right)...), policies.ReasonCredential},
	} {
		if got := served[0].Admit(c.sent); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestAmbiguousHeadIsRefusedBeforeGoproxy(t *testing.T) {
	for name, c := range map[string]struct{ sent, status string }{
		"CL and TE (B65)":       {"POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "400 Bad Request"},
		"two Hosts (B09)":       {"GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\nHost: evil.test\r\n\r\n", "400 Bad Request"},
		"another Host (B07)":    {"CONNECT good.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", "400 Bad Request"},
		"userinfo (B22)":        {"CONNECT good.test:443@evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", "400 Bad Request"},
		"an odd port (B25)":     {"CONNECT good.test:00443 HTTP/1.1\r\nHost: good.test:00443\r\n\r\n", "400 Bad Request"},
		"a NUL (B15)":           {"CONNECT evil.test\x00.good.test:443 HTTP/1.1\r\nHost: good.test:443\r\n\r\n", "400 Bad Request"},
		"another letter (B21)":  {"CONNECT ⓖood.test:443 HTTP/1.1\r\nHost: ⓖood.test:443\r\n\r\n", "400 Bad Request"},
		"a name in [] (B19)":    {"CONNECT [evil.test]:443 HTTP/1.1\r\nHost: [evil.test]:443\r\n\r\n", "400 Bad Request"},
		"an upgrade to h2":      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 HTTP Version Not Supported"},
		"TRACE (B14)":           {"TRACE http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", "405 Method Not Allowed"},
		"not a proxy's request": {"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n", "400 Bad Request"},
		"65 KiB (B75)":          {"GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\nX: " + strings.Repeat("a", 65<<10), "431 Request Header Fields Too Large"},
		"500 lines (B75)":       {"GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n" + strings.Repeat("X: y\r\n", 500) + "\r\n", "431 Request Header Fields Too Large"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, door{open: true})
			got := w.ask(c.sent)
			served, refused := w.proxy.seen()
			if status(got) != c.status || strings.Count(got, "HTTP/1.1 ") != 1 || len(served) != 0 || len(refused) != 1 {
				t.Errorf("it got %q; served %v, refused %v", got, served, refused)
			}
			if _, body, ok := strings.Cut(got, "\r\n\r\n"); !ok || !json.Valid([]byte(body)) {
				t.Errorf("its body is %q", body)
			}
		})
		t.Run(name+", of nobody known", func(t *testing.T) {
			w := newWorld(t, door{})
			got := w.ask(c.sent)
			if served, refused := w.proxy.seen(); status(got) != c.status || len(served)+len(refused) != 0 || w.server.Refused() != 1 {
				t.Errorf("it got %q; served %v, refused %v, counted %d", got, served, refused, w.server.Refused())
			}
		})
	}
}

// A head that is refused is in the decisions of whoever showed a credential in it.
func TestRefusedHeadIsRecordedForWhoeverSentIt(t *testing.T) {
	for name, c := range map[string]struct {
		sent   string
		record bool
	}{
		"the right one":        {"CONNECT good.test HTTP/1.1\r\nHost: good.test\r\n" + right + "\r\n", true},
		"before what is wrong": {"GET http://good.test/ HTTP/1.1\r\n" + right + "Host: good.test\r\nHost: evil.test\r\n\r\n", true},
		"none":                 {"CONNECT good.test HTTP/1.1\r\nHost: good.test\r\n\r\n", false},
		"a wrong one":          {"CONNECT good.test HTTP/1.1\r\nHost: good.test\r\n" + wrong + "\r\n", false},
		"two of them":          {"CONNECT good.test HTTP/1.1\r\nHost: good.test\r\n" + right + right + "\r\n", false},
		"behind the head":      {"CONNECT good.test HTTP/1.1\r\nHost: good.test\r\n\r\n" + right + "\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, door{})
			got := w.ask(c.sent)
			served, refused := w.proxy.seen()
			if want := map[bool]int{true: 1}[c.record]; status(got) != "400 Bad Request" || len(served) != 0 || len(refused) != want {
				t.Errorf("it got %q; served %v, refused %v", got, served, refused)
			}
			if c.record && len(refused) > 0 && refused[0] != policies.ReasonParse {
				t.Errorf("recorded is %q", refused[0])
			}
		})
	}
}

// heldDoor holds back its answer about a credential.
type heldDoor struct {
	door
	asked, answer chan struct{}
}

func (d heldDoor) Admit(ctx context.Context, username, password string) credentials.Admission {
	close(d.asked)
	<-d.answer
	return d.door.Admit(ctx, username, password)
}

// Until it is known whose a connection is, and where it goes, it is its caller's to count.
func TestStrangerIsCountedUntilItIsKnown(t *testing.T) {
	w := newWorld(t, door{})
	for name, field := range map[string]string{"let in": right, "refused": wrong} {
		mine, theirs := net.Pipe()
		keeper := heldDoor{asked: make(chan struct{}), answer: make(chan struct{})}
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			w.server.ServeConn(context.Background(), theirs, keeper)
		}()
		mine.SetDeadline(time.Now().Add(patience))
		io.WriteString(mine, "CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:443\r\n"+field+"\r\n")
		<-keeper.asked
		select {
		case <-returned:
			t.Errorf("%s: it is nobody's while its credential is checked", name)
		case <-time.After(100 * time.Millisecond):
		}
		close(keeper.answer)
		if n, err := mine.Read(make([]byte, 12)); n == 0 {
			t.Fatal(err)
		}
		mine.Close()
		<-returned
	}
}

func TestNothingBehindARefusalIsParsed(t *testing.T) {
	w := newWorld(t, door{})
	w.proxy.deny = policies.ReasonNoRule
	const behind = "GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n" + right + "\r\n"
	for name, sent := range map[string]string{
		"a denied CONNECT (B66, B68)": "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n" + right + "\r\n" + behind,
		"a refused head":              "CONNECT evil.test HTTP/1.1\r\nHost: evil.test\r\n" + right + "\r\n" + behind,
		"a wrong credential":          "CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:443\r\n" + wrong + "\r\n" + behind,
	} {
		before, _ := w.proxy.seen()
		got := w.ask(sent)
		after, _ := w.proxy.seen()
		if strings.Count(got, "HTTP/1.1 ") != 1 || strings.HasPrefix(got, "HTTP/1.1 2") {
			t.Errorf("%s: it got %q", name, got)
		}
		for _, to := range after[len(before):] {
			if to.Forward {
				t.Errorf("%s: what came behind it was served", name)
			}
		}
	}
}

func TestGoproxyAloneReachesNothing(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1") // B114
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	reached := make(chan struct{}, 1)
	target, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	go func() {
		for {
			nc, err := target.Accept()
			if err != nil {
				return
			}
			nc.Close()
			reached <- struct{}{}
		}
	}()
	s, err := New(Config{Proxy: &fakeProxy{}})
	if err != nil {
		t.Fatal(err)
	}
	// goproxy by itself, served like any handler: nobody's credential was checked, so nobody's visit is known.
	front := &http.Server{Handler: s.goproxy, ErrorLog: s.http.ErrorLog}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- front.Serve(l) }()
	defer func() { front.Close(); <-served }()
	for _, line := range []string{"CONNECT " + target.Addr().String() + " HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://" + target.Addr().String() + "/ HTTP/1.1\r\nHost: x\r\n\r\n"} {
		nc, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		nc.SetDeadline(time.Now().Add(patience))
		io.WriteString(nc, line)
		resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err == nil && resp.StatusCode < 400 {
			t.Errorf("%q was answered with %d", line, resp.StatusCode)
		}
		nc.Close()
	}
	if s.goproxy.Tr.Proxy != nil {
		t.Error("a proxy is taken from the environment")
	}
	for way, dial := range map[string]func() (net.Conn, error){
		"the transport": func() (net.Conn, error) { return s.goproxy.Tr.DialContext(t.Context(), "tcp", target.Addr().String()) },
		"TLS": func() (net.Conn, error) {
			return s.goproxy.Tr.DialTLSContext(t.Context(), "tcp", target.Addr().String())
		},
		"CONNECT":             func() (net.Conn, error) { return s.goproxy.ConnectDial("tcp", target.Addr().String()) },
		"CONNECT, by request": func() (net.Conn, error) { return s.goproxy.ConnectDialWithReq(nil, "tcp", target.Addr().String()) },
	} {
		if nc, err := dial(); err == nil {
			nc.Close()
			t.Errorf("%s dials", way)
		}
	}
	select {
	case <-reached:
		t.Error("the target was reached")
	default:
	}
}

// B59: whatever of goproxy's carries the key that everybody has is not named in what we build.
func TestGoproxysReadyActionsAreNotNamed(t *testing.T) {
	_ = goproxy.AlwaysReject // the one that is
	for _, file := range []string{"explicit.go", "goproxy.go", "answer.go", "conn.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"Goproxy" + "Ca", "Always" + "Mitm", "Mitm" + "Connect", "Ok" + "Connect", "Reject" + "Connect", "TLSConfig" + "FromCA", "Connect" + "Accept", "Connect" + "Mitm", "ConnectHTTP" + "Mitm"} {
			if strings.Contains(string(text), word) {
				t.Errorf("%s names %s", file, word)
			}
		}
	}
}

func TestSilentConnectionIsClosed(t *testing.T) {
	for name, sent := range map[string]string{"silent": "", "in the middle of a head (B74)": "CONNECT good.test:443 HTTP/1.1\r\nHost:"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, door{open: true}, func(c *Config) { c.Head = 200 * time.Millisecond })
			nc := w.dial()
			io.WriteString(nc, sent)
			if got, err := io.ReadAll(nc); err != nil || len(got) > 0 {
				t.Errorf("it got %q, %v", got, err)
			}
			if served, refused := w.proxy.seen(); len(served) != 0 || !slices.Equal(refused, []policies.Reason{policies.ReasonTimeout}) {
				t.Errorf("served %v, refused %v", served, refused)
			}
		})
	}
	t.Run("slow, but in time", func(t *testing.T) {
		w := newWorld(t, door{open: true})
		nc := w.dial()
		for _, b := range []byte("CONNECT good.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n") {
			nc.Write([]byte{b})
		}
		nc.CloseWrite()
		if got, _ := io.ReadAll(nc); status(string(got)) != "200 Connection established" {
			t.Errorf("it got %q", got)
		}
	})
}

// A head that never ends costs its size and no more.
func TestUnfinishedHeadIsBounded(t *testing.T) {
	w := newWorld(t, door{open: true})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	nc := w.dial()
	io.WriteString(nc, "GET http://good.test/ HTTP/1.1\r\nX: ")
	sent := 0
	for chunk := strings.Repeat("a", 64<<10); sent < 64<<20; sent += len(chunk) {
		if _, err := io.WriteString(nc, chunk); err != nil {
			break
		}
	}
	runtime.ReadMemStats(&after)
	if sent >= 64<<20 || after.TotalAlloc-before.TotalAlloc > 64*httphead.MaxHead {
		t.Errorf("%d bytes were taken, and %d allocated", sent, after.TotalAlloc-before.TotalAlloc)
	}
}
