package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"portreeve.dev/lab"
)

var appProgram = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "app")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "app"), "./app")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building app: %w\n%s", err, out)
	}
	return os.ReadFile(filepath.Join(dir, "app"))
})

// serving makes the sandbox run the application at an address, and returns once it listens.
func (b *box) serving(address string) {
	b.t.Helper()
	program, err := appProgram()
	if err != nil {
		b.t.Fatal(err)
	}
	b.write("/workspace/app", program)
	b.exec("chmod", "755", "/workspace/app")
	b.background("cd /workspace; ./app " + address)
	b.works("once the app listens", "ls", "/workspace/listening")
}

// A tunnel is one of a test.
type tunnel struct {
	b       *box
	l       *lab.Lab
	ID      string    `json:"id"`
	URL     string    `json:"url"`
	HTTPURL string    `json:"http_url"`
	Token   string    `json:"token"`
	Ends    time.Time `json:"expires_at"`
}

// tunnel opens one; more is pairs of field and value.
func (b *box) tunnel(l *lab.Lab, port int, more ...any) *tunnel {
	b.t.Helper()
	body := map[string]any{"port": port}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	t := &tunnel{b: b, l: l}
	call(b.t, b.p, "POST", "/sandbox/"+b.ID+"/tunnels", body, 201, t)
	return t
}

func (t *tunnel) host() string {
	u, err := url.Parse(t.URL)
	if err != nil {
		t.b.t.Fatal(err)
	}
	return u.Host
}

// client calls tunnels from the machine: names under localhost are loopback, and the product's authority is trusted. It follows
// no redirect and asks no one twice.
func client(l *lab.Lab, p *lab.Product, h2 bool) *http.Client {
	pool := x509.NewCertPool()
	if pem, err := os.ReadFile(p.Info.CAFile); err == nil {
		pool.AppendCertsFromPEM(pem)
	}
	c := l.Client()
	c.Timeout = 30 * time.Second
	transport := c.Transport.(*http.Transport)
	transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	transport.ForceAttemptHTTP2 = h2
	return c
}

// An answer is what came back, and the application's word in it if it was the application that answered.
type answer struct {
	Status int
	Proto  string
	Header http.Header
	Body   string
	App    struct {
		N      int64       `json:"n"`
		Method string      `json:"method"`
		Host   string      `json:"host"`
		URI    string      `json:"uri"`
		Header http.Header `json:"header"`
		Body   string      `json:"body"`
	}
}

// code is the word that marks an answer as the product's own.
func (a answer) code() string { return a.Header.Get("X-Portreeve-Code") }

func (a answer) String() string { return fmt.Sprintf("%d %s %s", a.Status, a.code(), a.Body) }

// ask sends a request; header is pairs of name and value.
func ask(c *http.Client, method, url, body string, header ...string) (answer, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	a := answer{Status: resp.StatusCode, Proto: resp.Proto, Header: resp.Header, Body: string(data)}
	json.Unmarshal(data, &a.App)
	return a, err
}

// get asks with the tunnel's token, over plain HTTP.
func (t *tunnel) get(path string, header ...string) (answer, error) {
	return ask(client(t.l, t.b.p, false), "GET", t.HTTPURL+path, "", append([]string{"X-Portreeve-Token", t.Token}, header...)...)
}

// says wants that answer.
func (t *tunnel) says(when string, status int, code string) {
	t.b.t.Helper()
	a, err := t.get("/")
	if err != nil || a.Status != status || a.code() != code {
		t.b.t.Errorf("%s: %v %v, want %d %s", when, a, err, status, code)
	}
}

// webSocket opens one to the application's echo, and shows that it works.
func (t *tunnel) webSocket(base string) *websocket.Conn {
	t.b.t.Helper()
	ctx, cancel := context.WithTimeout(t.b.t.Context(), 20*time.Second)
	defer cancel()
	header := http.Header{"X-Portreeve-Token": {t.Token}, "Origin": {base}}
	conn, _, err := websocket.Dial(ctx, base+"/ws", &websocket.DialOptions{HTTPClient: client(t.l, t.b.p, false), HTTPHeader: header})
	if err != nil {
		t.b.t.Fatalf("opening a WebSocket: %v", err)
	}
	t.b.t.Cleanup(func() { conn.CloseNow() })
	if err := echoes(conn, "hello"); err != nil {
		t.b.t.Fatalf("the WebSocket: %v", err)
	}
	return conn
}

// echoes says whether the other side of a WebSocket is there.
func echoes(conn *websocket.Conn, text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := conn.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		return err
	}
	_, data, err := conn.Read(ctx)
	if err == nil && string(data) != text {
		err = fmt.Errorf("it said %q", data)
	}
	return err
}

// closed waits for the end of a WebSocket and returns why.
func closed(conn *websocket.Conn, limit time.Duration) websocket.CloseError {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, _, err := conn.Read(ctx)
	var why websocket.CloseError
	if !errors.As(err, &why) {
		why.Reason = fmt.Sprint(err)
	}
	return why
}

// TestTunnelCarries: over plain HTTP, TLS and HTTP/2, to an application on every address or on loopback alone.
func TestTunnelCarries(t *testing.T) {
	l, p := shared(t)
	for name, address := range map[string]string{"on every address": ":8000", "on loopback alone": "127.0.0.1:8000"} {
		b := sandbox(t, p)
		b.serving(address)
		tun := b.tunnel(l, 8000)
		for _, c := range []struct {
			name, base, proto string
			h2                bool
		}{{"HTTP", tun.HTTPURL, "HTTP/1.1", false}, {"HTTPS", tun.URL, "HTTP/1.1", false}, {"HTTP/2", tun.URL, "HTTP/2.0", true}} {
			t.Run(c.name+" to an app "+name, func(t *testing.T) {
				callers := client(l, p, c.h2)
				a, err := ask(callers, "POST", c.base+"/a//b%2Fc?q=1&portreeve_token="+tun.Token+"&r", "hello", "X-Portreeve-Token", tun.Token,
					"Authorization", "Bearer the app's own", "Cookie", "app=1")
				if err != nil || a.Status != 200 || a.Proto != c.proto {
					t.Fatalf("%v %v over %s", a, err, a.Proto)
				}
				if a.App.Method != "POST" || a.App.URI != "/a//b%2Fc?q=1&r" || a.App.Body != "hello" || a.App.Host != "localhost:8000" ||
					a.App.Header.Get("Authorization") != "Bearer the app's own" || a.App.Header.Get("Cookie") != "app=1" {
					t.Errorf("the app received %+v", a.App)
				}
				if all := fmt.Sprint(a.App); strings.Contains(all, tun.Token) || strings.Contains(all, "Portreeve") {
					t.Errorf("what is ours reached the app: %s", all)
				}
				a, err = ask(callers, "GET", c.base+"/moved", "", "X-Portreeve-Token", tun.Token)
				if err != nil || a.Status != 302 || a.Header.Get("Location") != c.base+"/here" {
					t.Errorf("a redirect of the app's: %v %v %v", a, err, a.Header)
				}
				req, _ := http.NewRequestWithContext(t.Context(), "GET", c.base+"/events", nil)
				req.Header.Set("X-Portreeve-Token", tun.Token)
				resp, err := callers.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				lines, begun := bufio.NewReader(resp.Body), time.Now()
				for i := range 5 {
					if line, err := lines.ReadString('\n'); err != nil || i%2 == 0 && line != fmt.Sprintf("data: %d\n", i/2) {
						t.Fatalf("a stream of events said %q, %v", line, err)
					}
				}
				if took := time.Since(begun); took > 2*time.Second {
					t.Errorf("three events took %v", took)
				}
			})
		}
		b.t = t
		tun.webSocket(tun.HTTPURL)
		tun.webSocket(tun.URL)
	}
}

// TestTunnelWantsItsToken, which may come in three ways, and is known under no other tunnel.
func TestTunnelWantsItsToken(t *testing.T) {
	l, p := shared(t)
	b := sandbox(t, p)
	b.serving("127.0.0.1:8000")
	tun, other, public := b.tunnel(l, 8000), b.tunnel(l, 8000), b.tunnel(l, 8000, "public", true)
	if public.Token != "" || tun.Token == "" {
		t.Fatalf("tokens: public %q, other %q", public.Token, tun.Token)
	}
	callers := client(l, p, false)
	for name, c := range map[string]struct {
		url    string
		header []string
		status int
	}{
		"none":                    {tun.URL + "/", nil, 401},
		"a wrong one":             {tun.URL + "/", []string{"X-Portreeve-Token", "wrong"}, 401},
		"another tunnel's":        {tun.URL + "/", []string{"X-Portreeve-Token", other.Token}, 401},
		"one in the query, wrong": {tun.URL + "/?portreeve_token=wrong", nil, 401},
		"one as Authorization":    {tun.URL + "/", []string{"Authorization", "Bearer " + tun.Token}, 401},
		"the header":              {tun.URL + "/", []string{"X-Portreeve-Token", tun.Token}, 200},
		"none, and it is public":  {public.URL + "/", nil, 200},
		"the API key":             {tun.URL + "/", []string{"Authorization", "ApiKey " + p.Info.APIKey}, 401},
	} {
		a, err := ask(callers, "GET", c.url, "", c.header...)
		if err != nil || a.Status != c.status || c.status == 401 && a.code() != "token_required" {
			t.Errorf("%s: %v %v, want %d", name, a, err, c.status)
		}
	}
	// In a browser's address bar: the token vanishes, a cookie stays, and counts here alone.
	jar, _ := cookiejar.New(nil)
	browser := client(l, p, false)
	browser.Jar, browser.CheckRedirect = jar, nil
	a, err := ask(browser, "GET", tun.URL+"/page?portreeve_token="+tun.Token+"&q=1", "")
	if err != nil || a.Status != 200 || a.App.URI != "/page?q=1" || strings.Contains(fmt.Sprint(a.App), "portreeve") {
		t.Errorf("by the query: %v %v", a, err)
	}
	if a, err := ask(browser, "GET", tun.URL+"/", ""); err != nil || a.Status != 200 {
		t.Errorf("by the cookie: %v %v", a, err)
	}
	if a, err := ask(browser, "POST", tun.URL+"/", "x", "Origin", other.URL); err != nil || a.Status != 403 {
		t.Errorf("by the cookie, from a page of another tunnel: %v %v", a, err)
	}
	if a, err := ask(browser, "GET", other.URL+"/", ""); err != nil || a.Status != 401 {
		t.Errorf("another tunnel, by the cookie: %v %v", a, err)
	}
}

// TestTunnelsAndAPIAreApart: what comes in on the one is never answered by the other.
func TestTunnelsAndAPIAreApart(t *testing.T) {
	l, p := shared(t)
	b := sandbox(t, p)
	b.serving("127.0.0.1:8000")
	tun, other := b.tunnel(l, 8000, "public", true), b.tunnel(l, 8000, "public", true)
	host, _, _ := strings.Cut(tun.host(), ":")
	callers := client(l, p, false)
	api, err := url.Parse(p.Info.APIURL)
	if err != nil {
		t.Fatal(err)
	}
	named := "localhost:" + api.Port()
	key := []string{"Authorization", "ApiKey " + p.Info.APIKey}
	for name, c := range map[string]struct {
		url, host, path string
		status          int
	}{
		"the tunnel itself":                   {tun.URL, tun.host(), "/", 200},
		"another tunnel's host":               {tun.URL, other.host(), "/", 421},
		"the API's host under a tunnel's SNI": {tun.URL, named, "/api/v1/sandboxes", 421},
		"the API's host in the clear":         {tun.HTTPURL, named, "/api/v1/sandboxes", 421},
		"the API's address":                   {tun.HTTPURL, api.Host, "/api/v1/sandboxes", 400},
		"a host of elsewhere":                 {tun.HTTPURL, "example.com", "/", 421},
		"the tunnel domain itself":            {tun.HTTPURL, p.Info.TunnelDomain, "/api/v1/sandboxes", 404},
		"a tunnel's host at the API":          {"http://" + api.Host, tun.host(), "/", 421},
		"a tunnel's host at the API's path":   {"http://" + api.Host, host, "/api/v1/sandboxes", 421},
		"the API itself":                      {"http://" + api.Host, api.Host, "/api/v1/sandboxes", 200},
	} {
		a, err := ask(callers, "GET", c.url+c.path, "", append([]string{"Host", c.host}, key...)...)
		if err != nil || a.Status != c.status {
			t.Errorf("%s: %v %v, want %d", name, a, err, c.status)
		}
		if a.App.N > 0 && c.url+c.host != tun.URL+tun.host() || strings.Contains(a.Body, b.ID) && name != "the API itself" {
			t.Errorf("%s: it was answered by the other: %v", name, a)
		}
	}
	// A path of the API's under a tunnel is the app's.
	if a, err := ask(callers, "GET", tun.URL+"/api/v1/sandboxes", "", key...); err != nil || a.App.URI != "/api/v1/sandboxes" {
		t.Errorf("a path of the API under a tunnel: %v %v", a, err)
	}
	unknown := "aaaaaaaaaaaaaaaa-8000." + p.Info.TunnelDomain
	_, port, _ := strings.Cut(tun.host(), ":")
	if a, err := ask(callers, "GET", "http://"+unknown+":"+port+"/", ""); err != nil || a.Status != 404 || a.code() != "tunnel_not_found" {
		t.Errorf("a tunnel that never was: %v %v", a, err)
	}
	for _, name := range []string{unknown, "localhost", "api.test"} {
		if names, err := certificate(l, p, name); err == nil {
			t.Errorf("there is a certificate for %s, which names %v", name, names)
		}
	}
	if names, err := certificate(l, p, host); err != nil || len(names) != 1 || names[0] != host {
		t.Errorf("the tunnel's certificate names %v, %v", names, err)
	}
}

// certificate returns the names in the certificate that a hello gets, whoever signed it.
func certificate(l *lab.Lab, p *lab.Product, sni string) ([]string, error) {
	c, err := l.DialGateway(context.Background(), "tcp", p.Info.HTTPSAddr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	t := tls.Client(c, &tls.Config{ServerName: sni, InsecureSkipVerify: true})
	if err := t.Handshake(); err != nil {
		return nil, err
	}
	return t.ConnectionState().PeerCertificates[0].DNSNames, nil
}

// TestTunnelEnds by its time, by being deleted, and with its sandbox; what is open through it is told, and ends.
func TestTunnelEnds(t *testing.T) {
	l, p := shared(t)
	b := sandbox(t, p)
	b.serving("127.0.0.1:8000")
	for name, c := range map[string]struct {
		more []any
		end  func(*tunnel)
		why  string
	}{
		"expired": {[]any{"expires_in", 2}, func(*tunnel) {}, "tunnel expired"},
		"deleted": {nil, func(tun *tunnel) { call(t, p, "DELETE", "/sandbox/"+b.ID+"/tunnels/"+tun.ID, nil, 200, nil) }, "tunnel deleted"},
	} {
		tun, lasting := b.tunnel(l, 8000, c.more...), b.tunnel(l, 8000)
		conn, other := tun.webSocket(tun.URL), lasting.webSocket(lasting.URL)
		c.end(tun)
		if why := closed(conn, 10*time.Second); why.Code != websocket.StatusGoingAway || why.Reason != c.why {
			t.Errorf("%s: an open WebSocket ended with %d %q", name, why.Code, why.Reason)
		}
		if late := time.Since(tun.Ends); name == "expired" && (late < 0 || late > time.Second) {
			t.Errorf("it ended %v after its time", late)
		}
		tun.says(name, 410, "tunnel_ended")
		if err := echoes(other, "still here"); err != nil {
			t.Errorf("%s: another tunnel's WebSocket: %v", name, err)
		}
		lasting.says("another tunnel", 200, "")
	}
	tun := b.tunnel(l, 8000)
	conn := tun.webSocket(tun.HTTPURL)
	call(t, p, "POST", "/sandbox/"+b.ID+"/stop", nil, 200, nil)
	if why := closed(conn, 10*time.Second); why.Code != websocket.StatusGoingAway {
		t.Errorf("with its sandbox gone an open WebSocket ended with %d %q", why.Code, why.Reason)
	}
	if err := lab.Await(5*time.Second, "end of the tunnel", func() bool {
		a, err := tun.get("/")
		return err == nil && a.Status == 410
	}); err != nil {
		t.Error(err)
	}
	if answer, err := p.API("POST", "/sandbox/"+b.ID+"/tunnels", map[string]any{"port": 8000}); err != nil || answer.Status != 409 && answer.Status != 404 {
		t.Errorf("a tunnel to a sandbox that is gone: %v %v", answer, err)
	}
}

func TestPortWithoutAnAppSaysSo(t *testing.T) {
	l, p := shared(t)
	b := sandbox(t, p)
	b.tunnel(l, 9).says("nobody listens", 502, "port_closed")
	for _, body := range []string{`{"port":0}`, `{"port":70000}`, `{"port":"http"}`, `{"port":80,"expires_in":0}`, `{"port":80,"expires_in":90000}`, `{}`, `{"prt":80}`} {
		if answer, err := p.API("POST", "/sandbox/"+b.ID+"/tunnels", body); err != nil || answer.Status != 400 && answer.Status != 422 {
			t.Errorf("%s: %v %v", body, answer, err)
		}
	}
}

// TestForwardBringsAPortHere runs the command as somebody would, beside a sandbox whose app is on loopback alone.
func TestForwardBringsAPortHere(t *testing.T) {
	l, p := shared(t)
	b := sandbox(t, p)
	b.serving("127.0.0.1:8000")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := p.Command(ctx, "forward", "8000", "--sandbox", b.ID, "--listen", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Signal(syscall.SIGTERM)
	local, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	local = strings.TrimSpace(local)
	a, err := ask(client(l, p, false), "GET", local+"/x", "", "Origin", local)
	if err != nil || a.App.URI != "/x" || a.App.Host != "localhost:8000" || a.App.Header.Get("Origin") != "http://localhost:8000" {
		t.Errorf("at %s: %v %v", local, a, err)
	}
	conn, _, err := websocket.Dial(ctx, local+"/ws", &websocket.DialOptions{HTTPClient: client(l, p, false), HTTPHeader: http.Header{"Origin": {local}}})
	if err != nil {
		t.Fatalf("a WebSocket at %s: %v", local, err)
	}
	defer conn.CloseNow()
	if err := echoes(conn, "hello"); err != nil {
		t.Error(err)
	}
	var list struct {
		Tunnels []tunnel `json:"tunnels"`
	}
	call(t, p, "GET", "/sandbox/"+b.ID+"/tunnels", nil, 200, &list)
	if len(list.Tunnels) != 1 {
		t.Errorf("it made %d tunnels", len(list.Tunnels))
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	call(t, p, "GET", "/sandbox/"+b.ID+"/tunnels", nil, 200, &list)
	if len(list.Tunnels) != 0 {
		t.Errorf("it left %d tunnels", len(list.Tunnels))
	}
}

// TestTunnelByCommandLine: what tunnel open prints is what works.
func TestTunnelByCommandLine(t *testing.T) {
	l, p := shared(t)
	b := sandbox(t, p)
	b.serving("127.0.0.1:8000")
	r := p.CLI("tunnel", "open", "8000", "--sandbox", b.ID)
	said := map[string]string{}
	for line := range strings.Lines(r.Stdout) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		said[key] = strings.TrimSpace(value)
	}
	if !strings.HasPrefix(r.Stdout, "url ") || !strings.HasPrefix(said["url"], "http://") || !strings.HasPrefix(said["https"], "https://") {
		t.Fatalf("tunnel open: %v", r)
	}
	callers := client(l, p, false)
	for _, base := range []string{said["url"], said["https"]} {
		if a, err := ask(callers, "GET", base+"/", "", "X-Portreeve-Token", said["token"]); err != nil || a.App.N == 0 {
			t.Errorf("%s: %v %v", base, a, err)
		}
	}
	if a, err := ask(callers, "GET", said["browser"], ""); err != nil || a.Status != 303 || a.Header.Get("Location") != said["url"]+"/" {
		t.Errorf("%s: %v %v", said["browser"], a, err)
	}
	inside := exec.Command("ip", "netns", "exec", l.Gateway.Name, "sh", "-c", said["try"]+" -sS")
	if out, err := inside.CombinedOutput(); err != nil || !strings.Contains(string(out), `"n":`) {
		t.Errorf("%s: %v %s", said["try"], err, out)
	}
	if r := p.CLI("tunnel", "list"); r.Code != 0 || !strings.Contains(r.Stdout, said["id"]) || strings.Contains(r.Stdout, said["token"]) {
		t.Errorf("tunnel list: %v", r)
	}
	if r := p.CLI("tunnel", "close", said["id"]); r.Code != 0 {
		t.Errorf("tunnel close: %v", r)
	}
	if a, err := ask(callers, "GET", said["url"]+"/", "", "X-Portreeve-Token", said["token"]); err != nil || a.Status != 410 {
		t.Errorf("once it is closed: %v %v", a, err)
	}
}

// TestTunnelsOutliveProcesses kills the processes beside them in turn. A stream goes on unless its own carrier died, and every
// tunnel works again by itself.
func TestTunnelsOutliveProcesses(t *testing.T) {
	t.Parallel()
	l, p := own(t)
	ceiling(t, p, allow("echo", "tcp.test", "ports", []int{7}, "protocols", []string{"tcp"}))
	b := armed(t, p)
	b.serving("127.0.0.1:8000")
	direct := sandbox(t, p)
	direct.serving(":8000")
	b.background("while :; do /workspace/hostile hold tcp.test:7; sleep 0.2; done")
	flowing := func(when string) int {
		t.Helper()
		if err := lab.Await(10*time.Second, "open flow "+when, func() bool { return l.TCP.Connections() == 1 }); err != nil {
			t.Error(err)
		}
		return len(openings(t, l, func(q lab.Packet) bool { return q.Dst == l.TCP.Addr }))
	}
	relayed, dialled := b.tunnel(l, 8000), direct.tunnel(l, 8000)
	for _, c := range []struct {
		role             string
		relayed, dialled bool // what is open to an app on loopback, and to one at the sandbox's address, goes on
	}{
		{"control", true, true}, {"node", true, true}, {"edge", true, true},
		{"inward", false, true}, // it carries what goes by way of init, and only hands over what it dials
		{"ingress", false, false},
	} {
		flows := flowing("before the death of " + c.role)
		byInit, straight := relayed.webSocket(relayed.URL), dialled.webSocket(dialled.URL)
		old, err := p.Kill(c.role, syscall.SIGKILL)
		if err != nil {
			t.Fatal(err)
		}
		if err := echoes(byInit, "still here"); (err == nil) != c.relayed {
			t.Errorf("%s died, a stream to loopback: %v", c.role, err)
		}
		if err := echoes(straight, "still here"); (err == nil) != c.dialled {
			t.Errorf("%s died, a stream to the sandbox's address: %v", c.role, err)
		}
		if err := p.AwaitRestart(c.role, old, 15*time.Second); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for _, tun := range []*tunnel{relayed, dialled} {
			var last string
			if err := lab.Await(15*time.Second, "answer after the death of "+c.role, func() bool {
				a, err := tun.get("/")
				last = fmt.Sprint(a, err)
				return err == nil && a.Status == 200
			}); err != nil {
				t.Errorf("%v: %s", err, last)
			}
		}
		t.Logf("%s died; %v after its return tunnels answer", c.role, time.Since(began).Round(time.Millisecond))
		if n := flowing("after the death of " + c.role); n != flows && c.role != "edge" { // which carries it
			t.Errorf("%s died, and the flow out of the sandbox was opened %d times, it was %d", c.role, n, flows)
		}
		if err := lab.Await(15*time.Second, "command after the death of "+c.role, func() bool {
			answer, err := p.API("POST", "/sandbox/"+b.ID+"/execute", map[string]any{"command": []string{"true"}, "timeout": 5000})
			return err == nil && answer.Status == 200
		}); err != nil {
			t.Error(err)
		}
	}
}

// TestIngressPolicyHolds from outside: what the org refuses is not opened, what it no longer allows ends, and callers without a
// credential don't wake more often than it lets them; each beside what goes on.
func TestIngressPolicyHolds(t *testing.T) {
	l, p := shared(t)
	b := sandbox(t, otherOrg(t, p))
	b.serving("127.0.0.1:8000")
	public, private := b.tunnel(l, 8000, "public", true), b.tunnel(l, 8000)
	policy := func(modes []string, wakes int) {
		t.Helper()
		call(t, b.p, "PUT", "/settings/ingress", map[string]any{"modes": modes, "ports": []string{"8000"}, "max_expires_in": 3600, "public_with_grants": false, "anonymous_wakes_per_minute": wakes}, 200, nil)
	}
	policy([]string{"token", "public"}, 0)
	b.pause()
	public.says("who may not wake", 429, "wake_budget_spent")
	if now := b.view(); now.Status != "paused" {
		t.Errorf("a caller without a budget left it %s", now.Status)
	}
	private.says("with the token", 200, "")
	public.says("who finds it awake", 200, "")
	policy([]string{"token", "public"}, 1)
	b.running()
	b.pause()
	public.says("the one wake there is", 200, "")
	policy([]string{"token"}, 1)
	public.says("public no more", 410, "tunnel_ended")
	private.says("with the token still", 200, "")
	call(t, b.p, "POST", "/sandbox/"+b.ID+"/tunnels", map[string]any{"port": 8000, "public": true}, 403, nil)
	call(t, b.p, "POST", "/sandbox/"+b.ID+"/tunnels", map[string]any{"port": 8001}, 403, nil)
	b.tunnel(l, 8000).says("as the policy has it", 200, "")
}
