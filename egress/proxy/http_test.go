package proxy

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// speak opens a connection of the sandbox to name: in the clear, or inside opened TLS.
func (w *world) speak(name string, port uint16) io.ReadWriteCloser {
	w.t.Helper()
	nc := w.connect(name, port)
	nc.SetDeadline(time.Now().Add(10 * time.Second))
	if port == 80 {
		return nc
	}
	conn := tls.Client(nc, &tls.Config{ServerName: name, RootCAs: w.orgCA.pool(), NextProtos: []string{"http/1.1"}})
	if err := conn.Handshake(); err != nil {
		w.t.Fatal(err)
	}
	return conn
}

// The same rules hold in the clear and inside opened TLS (B82).
var fronts = []struct {
	name, host string
	port       uint16
}{{"clear", "clear.test", 80}, {"opened", "good.test", 443}}

// B01, B02, B04, B06, B15, B20, B21, B22, B25, B33: whatever a request says, only what its connection was judged for is dialled.
func TestRequestMustNameItsConnection(t *testing.T) {
	tests := []struct {
		name, host string // NAME and PORT stand for the connection's own
		status     int
		reason     string
	}{
		{"its own name", "NAME", 200, "allowed"},
		{"in capitals", "UPPER", 200, "allowed"},
		{"with the root's dot", "NAME.", 200, "allowed"},
		{"with the port", "NAME:PORT", 200, "allowed"},
		{"another name", "evil.test", 403, "identity_mismatch"},
		{"another allowed name", "OTHER", 421, "identity_mismatch"},
		{"a name below it", "a.NAME", 403, "identity_mismatch"},
		{"another port", "NAME:8443", 403, "identity_mismatch"},
		{"an address", "203.0.113.9", 403, "identity_mismatch"},
		{"a loopback address", "127.0.0.1", 403, "identity_mismatch"},
		{"an IPv6 address", "[::1]", 403, "identity_mismatch"},
		{"an address as a number", "2130706433", 400, "host_invalid"},
		{"two dots", "NAME..", 400, "host_invalid"},
		{"userinfo", "NAME@evil.test", 400, "parse_error"},
		{"NUL", "evil.test\x00.NAME", 400, "parse_error"},
		{"port zero", "NAME:0", 400, "parse_error"},
		{"a port that wraps", "NAME:65979", 400, "parse_error"},
		{"nothing", "", 400, "parse_error"},
	}
	for _, front := range fronts {
		for _, tt := range tests {
			t.Run(front.name+", "+tt.name, func(t *testing.T) {
				w := newWorld(t, allowGood+","+allowClear+`,{"id": "others", "action": "allow", "hosts": ["other.test"], "protocols": ["http", "https"], "ports": [80, 443]}`)
				w.upstream(front.host, front.port, echo())
				host := strings.NewReplacer("NAME", front.host, "UPPER", strings.ToUpper(front.host), "PORT", fmt.Sprint(front.port), "OTHER", "other.test").Replace(tt.host)
				conn := w.speak(front.host, front.port)
				defer conn.Close()
				fmt.Fprintf(conn, "GET /x HTTP/1.1\r\nHost: %s\r\n\r\n", host)
				resp, body := readAnswer(t, bufio.NewReader(conn))
				if resp.StatusCode != tt.status {
					t.Fatalf("status %d, want %d; %s", resp.StatusCode, tt.status, body)
				}
				conn.Close()
				d, _ := w.decided()
				if d.Reason != tt.reason || d.Host != front.host {
					t.Errorf("decision %+v", d)
				}
				if tt.status == 200 && body != "GET "+front.host+" /x " {
					t.Errorf("upstream saw %q", body)
				}
				if len(w.dialer.dials()) != 0 && tt.status != 200 {
					t.Errorf("dialled %v", w.dialer.dials())
				}
			})
		}
	}
}

// B03: on HTTP/2 one bad stream is refused and the others live on.
func TestH2RequestMustNameItsConnection(t *testing.T) {
	w := newWorld(t, allowGood)
	w.upstream("good.test", 443, echo())
	client := w.client(true, w.orgCA.pool())
	get := func(change func(*http.Request)) *http.Response {
		t.Helper()
		r, _ := http.NewRequest("GET", "https://good.test/x", nil)
		change(r)
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	if resp := get(func(*http.Request) {}); resp.StatusCode != 200 || resp.ProtoMajor != 2 {
		t.Fatalf("the allowed twin: %s %d", resp.Proto, resp.StatusCode)
	} else {
		resp.Body.Close()
	}
	for host, want := range map[string]string{"evil.test": "identity_mismatch", "good.test:8443": "identity_mismatch", "good..test": "host_invalid"} {
		if p := problemIn(t, get(func(r *http.Request) { r.Host = host })); p.Reason != want {
			t.Errorf("%s: %+v", host, p)
		}
	}
	if resp := get(func(*http.Request) {}); resp.StatusCode != 200 {
		t.Errorf("afterwards: %d", resp.StatusCode)
	} else {
		resp.Body.Close()
	}
	w.decisions(5, true)
	if dials := w.dialer.dials(); len(dials) != 1 {
		t.Errorf("dialled %v", dials)
	}
}

// B09, B14, B65, B70, B73, B75: what two parsers could read differently never gets through, also not behind a good request.
func TestStrictHead(t *testing.T) {
	tests := []struct {
		name, send string
		status     int
	}{
		{"two Hosts", "GET / HTTP/1.1\r\nHost: NAME\r\nHost: evil.test\r\n\r\n", 400},
		{"a spaced Host", "GET / HTTP/1.1\r\nHost : NAME\r\n\r\n", 400},
		{"a folded line", "GET / HTTP/1.1\r\nHost: NAME\r\nA: b\r\n c\r\n\r\n", 400},
		{"two framings", "POST / HTTP/1.1\r\nHost: NAME\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		{"two lengths", "POST / HTTP/1.1\r\nHost: NAME\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", 400},
		{"another coding", "POST / HTTP/1.1\r\nHost: NAME\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400},
		{"bare LF", "GET / HTTP/1.1\nHost: NAME\n\n", 400},
		{"NUL in a value", "GET / HTTP/1.1\r\nHost: NAME\r\nA: b\x00\r\n\r\n", 400},
		{"absolute form of another", "GET http://evil.test/ HTTP/1.1\r\nHost: NAME\r\n\r\n", 400},
		{"TRACE", "TRACE / HTTP/1.1\r\nHost: NAME\r\n\r\n", 405},
		{"CONNECT", "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", 405},
		{"HTTP/2 with prior knowledge", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
		{"a bad chunk", "POST / HTTP/1.1\r\nHost: NAME\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\n\r\n", 400},
		{"a big head", "GET / HTTP/1.1\r\nHost: NAME\r\nA: " + strings.Repeat("b", 65<<10) + "\r\n\r\n", 431},
		{"many lines", "GET / HTTP/1.1\r\nHost: NAME\r\n" + strings.Repeat("A: b\r\n", 500) + "\r\n", 431},
		{"a wild expectation", "POST / HTTP/1.1\r\nHost: NAME\r\nExpect: x\r\nContent-Length: 1\r\n\r\nx", 417},
	}
	for _, front := range fronts {
		for _, tt := range tests {
			for _, before := range []string{"", "GET /good HTTP/1.1\r\nHost: NAME\r\n\r\n", "POST /good HTTP/1.1\r\nHost: NAME\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"} {
				t.Run(fmt.Sprintf("%s, %s, behind %d bytes", front.name, tt.name, len(before)), func(t *testing.T) {
					w := newWorld(t, allowGood+","+allowClear)
					w.upstream(front.host, front.port, echo())
					conn := w.speak(front.host, front.port)
					defer conn.Close()
					go func() { // the answer may come before all of it was taken
						_, _ = io.WriteString(conn, strings.ReplaceAll(before+tt.send+"GET /never HTTP/1.1\r\nHost: NAME\r\n\r\n", "NAME", front.host))
					}()
					r := bufio.NewReader(conn)
					want := 1
					if tt.name == "a bad chunk" {
						want = 2 // its head was allowed
					}
					if before != "" {
						want++
						if resp, body := readAnswer(t, r); resp.StatusCode != 200 || !strings.Contains(body, "/good") {
							t.Fatalf("the good twin: %d %s", resp.StatusCode, body)
						}
					}
					resp, body := readAnswer(t, r)
					if resp.StatusCode != tt.status || resp.Header.Get("Content-Type") != "application/problem+json" {
						t.Fatalf("status %d, %s", resp.StatusCode, body)
					}
					if rest, _ := io.ReadAll(r); len(rest) > 0 {
						t.Errorf("the connection went on: %q", rest)
					}
					conn.Close()
					list := w.decisions(want, true)
					if last := list[want-1]; last.Verdict != "deny" || last.ID != resp.Header.Get(HeaderDecision) {
						t.Errorf("the answer names %s, the last decision is %+v", resp.Header.Get(HeaderDecision), last)
					}
					for _, d := range list {
						if d.Path == "/never" {
							t.Error("a request behind a refused one was served")
						}
					}
				})
			}
		}
	}
}

// B80: the path that is judged is the path that is sent.
func TestPathIsJudgedAsItIsSent(t *testing.T) {
	tests := []struct{ target, sent, reason string }{
		{"/v1/x", "/v1/x", "allowed"},
		{"/v1/x?y=/../z&a=%2F", "/v1/x?y=/../z&a=%2F", "allowed"},
		{"/v1/x?", "/v1/x?", "allowed"},
		{"/v1/./x", "/v1/x", "allowed"},
		{"/v1/%78", "/v1/x", "allowed"},
		{"/v1/%7e", "/v1/~", "allowed"},
		{"/admin/../v1/x", "/v1/x", "allowed"},
		{"/v1/../admin", "", "no_rule"},
		{"/v1/%2e%2e/admin", "", "no_rule"},
		{"/v1x", "", "no_rule"},
		{"/v1/../../x", "", "parse_error"},
		{"/v1//x", "", "parse_error"},
		{"/v1/%2e%2e%2fadmin", "", "parse_error"},
		{"/v1/%252e%252e/admin", "", "parse_error"},
		{"/v1/\\..\\admin", "", "parse_error"},
		{"/v1/%00", "", "parse_error"},
	}
	for _, tt := range tests {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, h2 %v", tt.target, h2), func(t *testing.T) {
				w := newWorld(t, allowAPI)
				w.upstream("api.test", 443, echo())
				r, err := http.NewRequest("GET", "https://api.test/", nil)
				if err != nil {
					t.Fatal(err)
				}
				path, query, ok := strings.Cut(tt.target, "?")
				r.URL = &url.URL{Scheme: "https", Host: "api.test", Opaque: path, RawQuery: query, ForceQuery: ok && query == ""}
				if strings.HasPrefix(path, "//") {
					t.Fatal("Opaque can't say that")
				}
				resp, err := w.client(h2, w.orgCA.pool()).Do(r)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if got := strings.TrimSuffix(strings.TrimPrefix(string(body), "GET api.test "), " "); tt.sent != "" && got != tt.sent {
					t.Errorf("sent %q, want %q", got, tt.sent)
				}
				d, _ := w.decided()
				if d.Reason != tt.reason || tt.sent != "" && d.Path != strings.Split(tt.sent, "?")[0] {
					t.Errorf("decision %+v", d)
				}
				if tt.sent == "" && (resp.StatusCode < 400 || len(w.dialer.dials()) > 0) {
					t.Errorf("status %d, dialled %v", resp.StatusCode, w.dialer.dials())
				}
			})
		}
	}
}

func TestDenialSaysWhy(t *testing.T) {
	for _, front := range fronts {
		t.Run(front.name, func(t *testing.T) {
			w := newWorld(t, allowGood+","+allowClear+`,{"id": "no-writes", "action": "deny", "hosts": ["good.test", "clear.test"], "tls": "inspect", "methods": ["DELETE"], "message": "Nothing is deleted here."}`)
			w.upstream(front.host, front.port, echo())
			conn := w.speak(front.host, front.port)
			defer conn.Close()
			r := bufio.NewReader(conn)
			fmt.Fprintf(conn, "DELETE /x HTTP/1.1\r\nHost: %s\r\n\r\n", front.host)
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			p := problemIn(t, resp)
			d := w.decisions(1, true)[0]
			want := problem{
				Type: "https://portreeve.dev/problems/rule_denied", Title: "Not allowed to leave the sandbox", Status: 403, Code: "rule_denied", Decision: d.ID,
				Rule: "no-writes", Reason: "rule_denied", Guidance: "Nothing is deleted here.", Version: 3, Destination: front.host,
			}
			if p != want || resp.Header.Get(HeaderDecision) != d.ID || resp.StatusCode != 403 {
				t.Errorf("got %+v, want %+v", p, want)
			}
			if d.Verdict != "deny" || d.Method != "DELETE" || d.Path != "/x" || d.Guidance != p.Guidance || d.Revision != 8 {
				t.Errorf("decision %+v", d)
			}
			// The connection lives on, and the next request is judged by itself.
			fmt.Fprintf(conn, "GET /x HTTP/1.1\r\nHost: %s\r\n\r\n", front.host)
			if resp, body := readAnswer(t, r); resp.StatusCode != 200 {
				t.Errorf("the allowed twin: %d %s", resp.StatusCode, body)
			}
		})
	}
}

func TestDeniedNameGetsAProblem(t *testing.T) {
	w := newWorld(t, allowGood)
	resp, err := w.client(false, nil).Get("http://evil.test/x")
	if err != nil {
		t.Fatal(err)
	}
	if p := problemIn(t, resp); p.Reason != "no_rule" || !p.Requestable || resp.StatusCode != 403 || !resp.Close {
		t.Errorf("answer %+v, close %v", p, resp.Close)
	}
	if d, _ := w.decided(); d.Reason != "no_rule" || d.Host != "evil.test" || d.Layer != "http" {
		t.Errorf("decision %+v", d)
	}
	// Who asks nothing is recorded all the same.
	w.connect("evil.test", 80).Close()
	if d := w.decisions(2, true)[1]; d.Reason != "no_rule" || d.Layer != "connect" {
		t.Errorf("decision %+v", d)
	}
}

// TestRefusalSaysWhereToAsk: what no rule allows may be asked for; what a rule forbids may not, nor where nobody answers.
func TestRefusalSaysWhereToAsk(t *testing.T) {
	document := `{"id":"good","action":"allow","hosts":["good.test"],"protocols":["http"],"paths":["/open/**"]},{"id":"not","action":"deny","hosts":["evil.test"]}`
	for _, c := range []struct {
		name, url string
		self      bool
		want      string
	}{
		{"no rule for the host", "http://other.test/x", true, "http://portreeve.internal/requests"},
		{"no rule for the path", "http://good.test/shut", true, "http://portreeve.internal/requests"},
		{"a deny rule", "http://evil.test/x", true, ""},
		{"nobody to ask", "http://other.test/x", false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, document, func(cfg *Config) {
				if c.self {
					cfg.Self = http.NotFoundHandler()
				}
			})
			resp, err := w.client(false, nil).Get(c.url)
			if err != nil {
				t.Fatal(err)
			}
			if p := problemIn(t, resp); p.RequestURL != c.want || p.Requestable != (c.name != "a deny rule") {
				t.Errorf("the refusal is %+v", p)
			}
		})
	}
}

func TestEveryRequestIsJudgedByTheNewestPolicy(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, allowGood)
		w.upstream("good.test", 443, echo())
		client := w.client(h2, w.orgCA.pool())
		status := func() int {
			t.Helper()
			resp, err := client.Get("https://good.test/x")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			return resp.StatusCode
		}
		if s := status(); s != 200 {
			t.Fatalf("status %d", s)
		}
		w.policies.Set(t, strings.Replace(allowGood, `"hosts"`, `"methods": ["POST"], "hosts"`, 1))
		if s := status(); s != 403 {
			t.Errorf("after tightening: status %d", s)
		}
		list := w.decisions(2, true)
		if dials := w.dialer.dials(); len(dials) != 1 {
			t.Errorf("the denied request was dialled for: %v", dials)
		}
		if list[0].Flow != list[1].Flow || list[1].Revision != list[0].Revision+1 {
			t.Errorf("decisions %+v", list)
		}
	}
}

// The record comes before the dial, and without it there is none.
func TestRecordComesBeforeDial(t *testing.T) {
	attempts := map[string]func(*world) string{
		"opened": func(w *world) string { return getStatus(w, "https://good.test/x") },
		"clear":  func(w *world) string { return getStatus(w, "http://clear.test/x") },
		"raw":    func(w *world) string { return exchangeRaw(w.t, w.connect("raw.test", 9000), "") },
		"passed": func(w *world) string {
			return exchangeRaw(w.t, w.connect("pass.test", 443), string(helloFor(w.t, &tls.Config{ServerName: "pass.test"})))[:6]
		},
	}
	for name, attempt := range attempts {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, strings.Join([]string{allowGood, allowClear, allowRaw, allowPass}, ","))
			w.dialer.recorder = w.recorder
			w.upstream("good.test", 443, echo())
			w.upstream("clear.test", 80, echo())
			w.serveTCP("raw.test", 9000, greet)
			w.serveTCP("pass.test", 443, greet)
			if got := attempt(w); got != "200" && !strings.HasPrefix(got, "server") {
				t.Fatalf("the allowed twin: %q", got)
			}
			w.decided()
			if !slices.Equal(w.dialer.recorded, []int{1}) {
				t.Fatalf("decisions at the dial: %v", w.dialer.recorded)
			}
		})
		t.Run(name+", not recorded", func(t *testing.T) {
			w := newWorld(t, strings.Join([]string{allowGood, allowClear, allowRaw, allowPass}, ","))
			w.upstream("good.test", 443, echo())
			w.upstream("clear.test", 80, echo())
			w.serveTCP("raw.test", 9000, greet)
			w.serveTCP("pass.test", 443, greet)
			w.recorder.fail(errors.New("disk full"))
			if name == "passed" {
				if got := exchangeRaw(t, w.connect("pass.test", 443), string(helloFor(t, &tls.Config{ServerName: "pass.test"}))); got != "" {
					t.Errorf("got %q", got)
				}
			} else if got := attempt(w); got != "503 record_failed" && got != "" {
				t.Errorf("got %q", got)
			}
			if dials := w.dialer.dials(); len(dials) != 0 {
				t.Errorf("dialled %v", dials)
			}
		})
	}
}

// getStatus fetches and returns the status, with the code of a refusal.
func getStatus(w *world, target string) string {
	w.t.Helper()
	resp, err := w.client(false, w.orgCA.pool()).Get(target)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") == "application/problem+json" {
		p := problemIn(w.t, resp)
		return fmt.Sprint(p.Status, " ", p.Code)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return fmt.Sprint(resp.StatusCode)
}
