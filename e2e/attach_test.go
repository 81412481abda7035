package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// doorsOpen is configuration that stands below the lab's own for egress.
const doorsOpen = "  doors: {http: '127.0.0.1:8444', socks: '127.0.0.1:1085'}\n"

// opening is an allow rule whose TLS is opened, so that programs in an attached sandbox trust what they see.
func opening(id, host string) map[string]any {
	return allow(id, host, "tls", "inspect", "foreign_credentials", "allow")
}

// attachedNow returns the youngest sandbox that was attached, ended or not.
func attachedNow(t *testing.T, p *lab.Product) *box {
	t.Helper()
	var list struct {
		Sandboxes []struct {
			ID   string `json:"sandbox_id"`
			Kind string `json:"kind"`
		} `json:"sandboxes"`
	}
	call(t, p, "GET", "/sandboxes?all=true", nil, 200, &list)
	for _, b := range list.Sandboxes {
		if b.Kind == "attached" {
			return &box{t, p, b.ID}
		}
	}
	t.Fatal("no sandbox is attached")
	return nil
}

// TestAttachedCommandIsUnderThePolicy runs programs of this machine. Each denial has a twin that is allowed; the capture judges.
func TestAttachedCommandIsUnderThePolicy(t *testing.T) {
	t.Parallel()
	l, p := own(t)
	ceiling(t, p, opening("good", "good.test"), allow("clear", "plain.test", "ports", []int{80}, "protocols", []string{"http"}))
	for _, c := range []struct {
		name string
		argv []string
		open bool
	}{
		{"https", []string{"curl", "-fsS", "https://good.test/"}, true},
		{"https to a host of no rule", []string{"curl", "-fsS", "https://evil.test/"}, false},
		{"clear http", []string{"curl", "-fsS", "http://plain.test/"}, true},
		{"clear http to a host of no rule", []string{"curl", "-fsS", "http://evil.test/"}, false},
		{"a port of no rule", []string{"curl", "-fsS", "https://good.test:8443/"}, false},
		{"SOCKS with the name", []string{"curl", "-fsS", "--proxy", "socks5h://127.0.0.1:3128", "https://good.test/"}, true},
		{"SOCKS with the name of no rule", []string{"curl", "-fsS", "--proxy", "socks5h://127.0.0.1:3128", "https://evil.test/"}, false},
		{"SOCKS with an address", []string{"curl", "-fsSk", "--proxy", "socks5h://127.0.0.1:3128", "https://" + l.Evil.Addr.String() + "/"}, false},
		{"no proxy for anybody (B112)", []string{"env", "NO_PROXY=*", "no_proxy=*", "curl", "-fsS", "https://good.test/"}, false},
		{"no proxy, by address", []string{"curl", "-fsSk", "--noproxy", "*", "https://" + l.Evil.Addr.String() + "/"}, false},
		{"a raw connection", []string{"bash", "-c", "exec 3<>/dev/tcp/" + l.Evil.Addr.String() + "/443"}, false},
		{"a raw connection over IPv6", []string{"bash", "-c", "exec 3<>/dev/tcp/" + l.Evil.Addr6.String() + "/443"}, false},
		{"a datagram", []string{"bash", "-c", "echo evil.test > /dev/udp/" + l.Evil.Addr.String() + "/53"}, false},
		{"a lookup", []string{"getent", "hosts", "evil.test"}, false},
		{"the machine's own API", []string{"curl", "-fsS", "--noproxy", "*", p.Info.APIURL + "/health"}, false},
		{"another namespace", []string{"nsenter", "--net=/proc/1/ns/net", "true"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := p.CLI(append([]string{"attach", "--", "timeout", "20"}, c.argv...)...)
			if (r.Code == 0) != c.open {
				t.Errorf("exit %d, want success: %v\n%s%s", r.Code, c.open, r.Stdout, r.Stderr)
			}
		})
	}
	if err := l.Capture.Quiet(l.Evil.Addr, l.Evil.Addr6); err != nil {
		t.Error(err)
	}
	if err := l.Capture.Unspoken("evil.test"); err != nil {
		t.Error(err)
	}
}

func TestAttachedSandboxIsSeenLikeOthers(t *testing.T) {
	t.Parallel()
	l, p := own(t)
	ceiling(t, p, opening("good", "good.test"))
	call(t, p, "PUT", "/policies/narrow", map[string]any{"rules": []any{allow("none", "other.test")}}, 200, nil)
	if r := p.CLI("attach", "--", "curl", "-fsS", "https://good.test/a"); r.Code != 0 {
		t.Fatalf("an allowed page: %v", r)
	}
	b := attachedNow(t, p)
	d := b.decided("allows good.test", func(d decision) bool { return d.Host == "good.test" && d.Layer == "http" && d.Closed })
	if d.Verdict != "allow" || d.Rule != "good" || d.Level != "http" || d.Addr != l.Addr("good.test").String() {
		t.Errorf("recorded as %+v", d)
	}
	if v := b.view(); v.Status != "terminated" {
		t.Errorf("after its command it is %+v", v)
	}
	r := p.CLI("attach", "--policy", "narrow", "--", "curl", "-sS", "https://good.test/a")
	if r.Code == 0 || !strings.Contains(r.Stderr, "403") {
		t.Errorf("under a narrower policy: %v", r)
	}
	d = attachedNow(t, p).decided("denies good.test", func(d decision) bool { return d.Host == "good.test" })
	if d.Verdict != "deny" || d.Reason != "no_rule" {
		t.Errorf("recorded as %+v", d)
	}
	for command, want := range map[string]int{"exit 7": 7, "kill -15 $$": 143} {
		if r := p.CLI("attach", "--", "sh", "-c", command); r.Code != want {
			t.Errorf("%s: %v", command, r)
		}
	}
	if r := p.CLI("attach", "--policy", "no-such", "--", "true"); r.Code != 1 || !strings.Contains(r.Stderr, "policy") {
		t.Errorf("under a policy that isn't there: %v", r)
	}
}

// attached makes an attached sandbox by the API.
func attached(t *testing.T, p *lab.Product) *box {
	t.Helper()
	var v view
	call(t, p, "POST", "/sandbox/create", map[string]any{"kind": "attached", "timeout_seconds": 3600, "labels": map[string]string{"team": "a"}}, 201, &v)
	t.Cleanup(func() { p.API("DELETE", "/sandbox/"+v.ID, nil) })
	return &box{t, p, v.ID}
}

// A door is what the API says of one.
type door struct {
	URL      string    `json:"url"`
	Username string    `json:"username"`
	Password string    `json:"password"`
	Expires  time.Time `json:"expires_at"`
	CA       string    `json:"ca"`
	Trust    string    `json:"trust"`
	Socket   string    `json:"socket"`
}

func (b *box) door(kind string, more ...string) door {
	b.t.Helper()
	body := map[string]any{"door": kind}
	for i := 0; i < len(more); i += 2 {
		body[more[i]] = more[i+1]
	}
	var d door
	call(b.t, b.p, "POST", "/sandbox/"+b.ID+"/door", body, 201, &d)
	return d
}

// dial connects to a door from an address of the machine's.
func (d door) dial(t *testing.T, l *lab.Lab, address, from string) net.Conn {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(d.CA)) {
		t.Fatalf("the door's authority is %q", d.CA)
	}
	var nc net.Conn
	err := l.Gateway.Do(func() (err error) {
		dialer := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		nc, err = dialer.DialContext(context.Background(), "tcp", address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	conn := tls.Client(nc, &tls.Config{RootCAs: roots, ServerName: "localhost"})
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	return conn
}

// connect asks for a tunnel and returns the status.
func (d door) connect(nc net.Conn, host, username, password string) (status int, body string) {
	fmt.Fprintf(nc, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", host, host)
	if username != "" {
		fmt.Fprintf(nc, "Proxy-Authorization: Basic %s\r\n", base64.StdEncoding.EncodeToString([]byte(username+":"+password)))
	}
	io.WriteString(nc, "\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(nc), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return 0, err.Error()
	}
	if resp.StatusCode != 200 {
		b, _ := io.ReadAll(resp.Body)
		body = string(b)
	}
	return resp.StatusCode, body
}

func TestDoorsNeedTheirCredential(t *testing.T) {
	t.Parallel()
	l := lab.Start(t, lab.Options{})
	p := l.StartProduct(t, lab.ProductOptions{Config: doorsOpen + small})
	ceiling(t, p, allow("good", "good.test"))
	b := attached(t, p)
	d := b.door("http")
	if d.URL != "https://localhost:8444" || d.Username != b.ID || time.Until(d.Expires) > 15*time.Minute+time.Second || time.Until(d.Expires) < 14*time.Minute {
		t.Errorf("the door is %+v", d)
	}
	other := attached(t, p)
	const at = "127.0.0.1:8444"
	for _, c := range []struct {
		name               string
		from, user, secret string
		host               string
		status             int
		says               string
	}{
		{"as it was made for", "127.0.0.1", d.Username, d.Password, "good.test:443", 200, ""},
		{"to a host of no rule", "127.0.0.1", d.Username, d.Password, "evil.test:443", 403, "no_rule"},
		{"none (B12)", "127.0.0.1", "", "", "good.test:443", 407, "credential_invalid"},
		{"from another address", "127.0.0.2", d.Username, d.Password, "good.test:443", 407, "credential_elsewhere"},
		{"for another door", "127.0.0.1", d.Username, b.door("socks").Password, "good.test:443", 407, "credential_elsewhere"},
		{"in another sandbox's name", "127.0.0.1", other.ID, d.Password, "good.test:443", 407, "credential_invalid"},
		{"changed", "127.0.0.1", d.Username, strings.ToLower(d.Password), "good.test:443", 407, "credential_invalid"},
		{"made for that other address", "127.0.0.2", d.Username, b.door("http", "source", "127.0.0.2").Password, "good.test:443", 200, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, body := d.connect(d.dial(t, l, at, c.from), c.host, c.user, c.secret)
			if status != c.status || !strings.Contains(body, c.says) {
				t.Errorf("%d %s, want %d %s", status, body, c.status, c.says)
			}
		})
	}
	b.decided("refuses a password from elsewhere", func(d decision) bool { return d.Reason == "credential_elsewhere" && d.Verdict == "deny" })
	b.decided("allows good.test", func(d decision) bool { return d.Reason == "no_rule" && d.Host == "evil.test" })

	t.Run("SOCKS", func(t *testing.T) {
		s := b.door("socks")
		for name, secret := range map[string]string{"its own": s.Password, "the other door's": d.Password} {
			nc := s.dial(t, l, "127.0.0.1:1085", "127.0.0.1")
			nc.Write([]byte{5, 1, 2})
			nc.Write(append(append([]byte{1, byte(len(b.ID))}, b.ID...), append([]byte{byte(len(secret))}, secret...)...))
			got := make([]byte, 4)
			if _, err := io.ReadFull(nc, got); err != nil || (got[3] == 0) != (name == "its own") {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
	})
	t.Run("with its end", func(t *testing.T) {
		nc := d.dial(t, l, at, "127.0.0.1")
		if status, body := d.connect(nc, "good.test:443", d.Username, d.Password); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		inside := tls.Client(nc, &tls.Config{ServerName: "good.test", InsecureSkipVerify: true}) // opened or not is no matter here
		if err := inside.Handshake(); err != nil {
			t.Fatal(err)
		}
		call(t, p, "DELETE", "/sandbox/"+b.ID, nil, 200, nil)
		inside.SetReadDeadline(time.Now().Add(2 * time.Second))
		if _, err := inside.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("its connection goes on: %v", err)
		}
		if status, body := d.connect(d.dial(t, l, at, "127.0.0.1"), "good.test:443", d.Username, d.Password); status != 407 {
			t.Errorf("afterwards: %d %s", status, body)
		}
		if answer, err := p.API("POST", "/sandbox/"+b.ID+"/door", map[string]any{"door": "http"}); err != nil || answer.Status != 409 {
			t.Errorf("a password for it: %v, %v", answer, err)
		}
	})
	if err := l.Capture.Quiet(l.Evil.Addr, l.Evil.Addr6); err != nil {
		t.Error(err)
	}
	if err := l.Capture.Unspoken("evil.test"); err != nil { // B46: not even looked up
		t.Error(err)
	}
}

func TestAttachedSandboxHasOnlyANetwork(t *testing.T) {
	_, p := shared(t)
	b := attached(t, p)
	for _, c := range []struct {
		method, path string
		body         any
	}{
		{"POST", "/execute", map[string]any{"command": []string{"true"}}},
		{"POST", "/files", map[string]any{"files": []any{map[string]any{"path": "/workspace/a", "content": ""}}}},
		{"GET", "/files?path=/workspace", nil},
		{"POST", "/pause", nil},
		{"POST", "/resume", nil},
		{"POST", "/tunnels", map[string]any{"port": 80}},
		{"POST", "/door", map[string]any{"door": "http"}}, // none is configured here
	} {
		answer, err := p.API(c.method, "/sandbox/"+b.ID+c.path, c.body)
		if err != nil || answer.Status != 409 {
			t.Errorf("%s %s: %v, %v", c.method, c.path, answer, err)
		}
	}
	call(t, p, "POST", "/sandbox/"+b.ID+"/extend", map[string]any{"additional_seconds": 60}, 200, nil)
	if d := b.door("socket"); d.Socket == "" || !strings.Contains(d.Trust, "BEGIN CERTIFICATE") {
		t.Errorf("its socket: %+v", d)
	}
	call(t, p, "POST", "/sandbox/create", map[string]any{"kind": "attached", "template": "tiny"}, 422, nil)
	if answer, err := p.API("POST", "/sandbox/"+sandbox(t, p).ID+"/door", map[string]any{"door": "socket"}); err != nil || answer.Status != 409 {
		t.Errorf("a door for one of our own: %v, %v", answer, err)
	}
}

// TestAttachedCommandOutlivesTheEdge kills the edge under a command: nothing gets out meanwhile, and then it goes on.
func TestAttachedCommandOutlivesTheEdge(t *testing.T) {
	t.Parallel()
	l, p := own(t)
	ceiling(t, p, opening("good", "good.test"))
	ctx, cancel := context.WithTimeout(t.Context(), lab.CommandLimit)
	defer cancel()
	cmd := p.Command(ctx, "attach", "--", "bash", "-c", `curl -fsS -o /dev/null https://good.test/; echo "first $?"; read;
		for i in $(seq 60); do curl -fsS --max-time 5 -o /dev/null https://good.test/ && break; sleep 0.5; done; echo "then $?"; curl -s --max-time 5 https://evil.test/; echo "evil $?"`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	said := func() string {
		lines.Scan()
		return lines.Text()
	}
	if got := said(); got != "first 0" {
		t.Errorf("the first page: %q", got)
	}
	old, err := p.Kill("edge", syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(in, "\n")
	if err := p.AwaitRestart("edge", old, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := said(); got != "then 0" {
		t.Errorf("after it: %q", got)
	}
	if got := said(); got == "evil 0" || !strings.HasPrefix(got, "evil ") {
		t.Errorf("the denied one: %q", got)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := l.Capture.Quiet(l.Evil.Addr, l.Evil.Addr6); err != nil {
		t.Error(err)
	}
}
