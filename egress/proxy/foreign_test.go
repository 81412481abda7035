package proxy

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// credentials are requests that carry something of the sandbox's own, by place.
var credentials = []struct{ place, header, value, query string }{
	{place: "header:authorization", header: "Authorization", value: "Bearer canary"},
	{place: "header:cookie", header: "Cookie", value: "session=canary"},
	{place: "header:x-api-key", header: "X-Api-Key", value: "canary"},
	{place: "header:proxy-authorization", header: "Proxy-Authorization", value: "Basic canary"},
	{place: "header:x_auth_token", header: "X_Auth_Token", value: "canary"},
	{place: "header:openai-organization", header: "OpenAI-Organization", value: "canary"},
	{place: "header:sec-websocket-protocol", header: "Sec-WebSocket-Protocol", value: "realtime, openai-insecure-api-key.canary"},
	{place: "query:api_key", query: "a=1&api_key=canary&b=2"},
	{place: "query:access_token", query: "ACCESS_TOKEN=canary"},
	{place: "query:token", query: "%74oken=canary"},
	{place: "query:key", query: "a=1;key=canary"},
}

// seenBy answers with everything in which a credential could arrive.
func seenBy() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RequestURI, " ", r.Header) })
}

func (w *world) send(path, query, header, value string) (*http.Response, string) {
	w.t.Helper()
	r, err := http.NewRequest("GET", "https://good.test"+path+"?"+query, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if header != "" {
		r.Header.Set(header, value)
	}
	resp, err := w.client(false, w.orgCA.pool()).Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(body)
}

func TestForeignCredentials(t *testing.T) {
	rule := func(what string) string { return strings.Replace(allowGood, `"allow"}`, `"`+what+`"}`, 1) }
	for _, c := range credentials {
		t.Run(c.place, func(t *testing.T) {
			w := newWorld(t, rule("block"))
			w.upstream("good.test", 443, seenBy())
			resp, body := w.send("/x", c.query, c.header, c.value)
			if resp.StatusCode != 403 || !strings.Contains(body, `"reason":"foreign_credentials"`) || !strings.Contains(body, c.place) || strings.Contains(body, "canary") {
				t.Errorf("block: %d %s", resp.StatusCode, body)
			}
			if d, _ := w.decided(); strings.Contains(fmt.Sprintf("%+v", d), "canary") || len(w.dialer.dials()) > 0 || !slices.Equal(d.Foreign, []string{c.place}) {
				t.Errorf("block: decision %+v", d)
			}
			// The twin without a credential passes.
			if resp, _ := w.send("/x", "a=1&monkey=canary", "X-Other", "canary"); resp.StatusCode != 200 {
				t.Errorf("without: %d", resp.StatusCode)
			}
			w.policies.Set(t, rule("strip"))
			if resp, body := w.send("/x", c.query, c.header, c.value); resp.StatusCode != 200 || strings.Contains(body, "canary") || c.place == "query:api_key" && !strings.HasPrefix(body, "/x?a=1&b=2 ") {
				t.Errorf("strip: %d %s", resp.StatusCode, body)
			}
			if d := w.decisions(3, true); d[1].Foreign != nil || !slices.Equal(d[2].Foreign, []string{c.place}) {
				t.Errorf("without: decision %+v; strip: %+v", d[1], d[2])
			}
			w.policies.Set(t, rule("allow"))
			if resp, body := w.send("/x", c.query, c.header, c.value); resp.StatusCode != 200 || strings.Contains(body, "canary") != (c.header != "Proxy-Authorization") {
				t.Errorf("allow: %d %s", resp.StatusCode, body)
			}
		})
	}
}

// A decision lists a bounded number of places, cut where they are long.
func TestForeignIsBounded(t *testing.T) {
	w := newWorld(t, strings.Replace(allowGood, `"allow"}`, `"block"}`, 1))
	var query strings.Builder
	for i := range 40 {
		fmt.Fprintf(&query, "&token_%s%d=canary", strings.Repeat("x", 100), i)
	}
	resp, body := w.send("/x", query.String()[1:], "", "")
	if resp.StatusCode != 403 || strings.Contains(body, "canary") {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
	if d, _ := w.decided(); len(d.Foreign) != 16 || d.Foreign[0] != "query:token_"+strings.Repeat("x", 64-len("query:token_")) {
		t.Errorf("decision %+v", d)
	}
}

// A trailer comes when the request is on its way: one that carries is blocked by its announcement, and one that nobody
// announced goes nowhere.
func TestTrailersCarryNothing(t *testing.T) {
	const announced, hidden = "X-Api-Key, X-Sum", "X-Sum"
	tests := []struct {
		name, foreign, announce string
		granted                 bool
		want                    string
	}{
		{"allowed", "allow", announced, false, "sum 42, key canary"},
		{"allowed, not announced", "allow", hidden, false, "sum 42, key "},
		{"blocked", "block", announced, false, "403"},
		{"blocked, not announced", "block", hidden, false, "sum 42, key "},
		{"stripped", "strip", announced, false, "sum , key "},
		{"stripped, not announced", "strip", hidden, false, "sum , key "},
		{"granted", "allow", announced, true, "sum , key "},
		{"granted, not announced", "allow", hidden, true, "sum , key "},
	}
	for _, front := range fronts {
		for _, tt := range tests {
			t.Run(front.name+", "+tt.name, func(t *testing.T) {
				w := newWorld(t, strings.ReplaceAll(allowGood+","+allowClear, `"allow"}`, `"`+tt.foreign+`"}`), func(c *Config) {
					if tt.granted {
						c.Injector = &injector{host: front.host, value: "Bearer ours"}
					}
				})
				w.upstream(front.host, front.port, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					fmt.Fprintf(w, "sum %s, key %s", r.Trailer.Get("X-Sum"), r.Trailer.Get("X-Api-Key"))
				}))
				conn := w.speak(front.host, front.port)
				defer conn.Close()
				fmt.Fprintf(conn, "POST /x HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\nTrailer: %s\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 42\r\nX-Api-Key: canary\r\n\r\n", front.host, tt.announce)
				resp, body := readAnswer(t, bufio.NewReader(conn))
				if resp.StatusCode != 200 {
					body = fmt.Sprint(resp.StatusCode)
				}
				if body != tt.want {
					t.Errorf("got %q, want %q", body, tt.want)
				}
			})
		}
	}
}

func TestInjection(t *testing.T) {
	in := &injector{host: "good.test", value: "Bearer ours"}
	w := newWorld(t, allowGood+","+allowClear, func(c *Config) { c.Injector = in })
	w.upstream("good.test", 443, seenBy())
	resp, body := w.send("/v1/x", "", "Connection", "Authorization")
	if resp.StatusCode != 200 || !strings.Contains(body, "Authorization:[Bearer ours]") {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
	d, _ := w.decided()
	if len(d.Secrets) != 1 || d.Secrets[0].Secret != "sec_1" || d.Foreign != nil || strings.Contains(fmt.Sprintf("%+v", d), "ours") {
		t.Errorf("decision %+v", d)
	}
}

// An upstream that points elsewhere doesn't take the secret along, and one that mirrors requests is not asked to.
func TestSecretStaysOnItsHost(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, allowGood+","+strings.ReplaceAll(allowGood, "good", "evil"), func(c *Config) { c.Injector = &injector{host: "good.test", value: "Bearer ours"} })
		w.upstream("good.test", 443, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer ours" {
				t.Errorf("%s without the secret", r.Method)
			}
			http.Redirect(w, r, "https://evil.test/v1/x", http.StatusTemporaryRedirect)
		}))
		w.upstream("evil.test", 443, seenBy())
		client := w.client(h2, w.orgCA.pool())
		for method, want := range map[string]int{"GET": 307, "POST": 307, "TRACE": 405} {
			r, _ := http.NewRequest(method, "https://good.test/v1/x", nil)
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("h2 %v, %s: status %d, want %d", h2, method, resp.StatusCode, want)
			}
		}
		for _, d := range w.dialer.dials() {
			if d != "good.test:443" {
				t.Errorf("dialled %s", d)
			}
		}
	}
}

// On a granted host nothing of the sandbox's own passes, whatever the rule says, and whether or not something was injected.
func TestGrantedHostTakesNoForeignCredential(t *testing.T) {
	for _, c := range credentials {
		for _, path := range []string{"/v1/x", "/v2/x"} {
			t.Run(c.place+path, func(t *testing.T) {
				w := newWorld(t, allowGood, func(c *Config) { c.Injector = &injector{host: "good.test", value: "Bearer ours"} })
				w.upstream("good.test", 443, seenBy())
				resp, body := w.send(path, c.query, c.header, c.value)
				if resp.StatusCode != 200 || strings.Contains(body, "canary") || strings.Contains(body, "ours") != (path == "/v1/x") {
					t.Errorf("got %d %s", resp.StatusCode, body)
				}
				if d, _ := w.decided(); !slices.Equal(d.Foreign, []string{c.place}) || strings.Contains(fmt.Sprintf("%+v", d), "canary") {
					t.Errorf("decision %+v", d)
				}
			})
		}
	}
}

// A secret goes over verified TLS only, and only where a rule, and not its absence for a while, lets the request pass. The
// sandbox's own credentials go nowhere either.
func TestSecretIsWithheld(t *testing.T) {
	const watched = `{"observe_until": "2999-01-01T00:00:00Z", "rules": [{"id": "posts", "action": "allow", "hosts": ["good.test"], "tls": "inspect", "methods": ["POST"]}]}`
	tests := []struct {
		name, document, method, target string
		port                           uint16
		injected                       bool
	}{
		{"opened", `{"rules": [` + allowGood + `]}`, "GET", "https://good.test/v1/x", 443, true},
		{"in the clear", `{"rules": [` + strings.ReplaceAll(allowClear, "clear.test", "good.test") + `]}`, "GET", "http://good.test/v1/x", 80, false},
		{"allowed by a watching policy", watched, "POST", "https://good.test/v1/x", 443, true},
		{"passed because it only watches", watched, "GET", "https://good.test/v1/x", 443, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, allowGood, func(c *Config) { c.Injector = &injector{host: "good.test", value: "Bearer ours"} })
			w.policies.SetDocument(t, tt.document)
			w.upstream("good.test", tt.port, seenBy())
			r, _ := http.NewRequest(tt.method, tt.target+"?key=canary", nil)
			r.Header.Set("X-Api-Key", "canary")
			resp, err := w.client(false, w.orgCA.pool()).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 200 || strings.Contains(string(body), "canary") || strings.Contains(string(body), "ours") != tt.injected {
				t.Errorf("got %d %s", resp.StatusCode, body)
			}
			d, _ := w.decided()
			if d.Verdict != "allow" || (len(d.Secrets) == 1) != tt.injected || !slices.Equal(d.Foreign, []string{"header:x-api-key", "query:key"}) {
				t.Errorf("decision %+v", d)
			}
		})
	}
}

// What can't be opened could carry any account: on a granted host it is refused, on any port.
func TestGrantedHostIsNeverPassedUnseen(t *testing.T) {
	const byAddress = `{"id": "net", "action": "allow", "cidrs": ["203.0.113.9/32"], "protocols": ["https"], "ports": [443]}`
	hello := func(name string) string { return string(helloFor(t, &tls.Config{ServerName: name})) }
	tests := []struct {
		name, rules, host string
		port              uint16
		send, granted     string
		alert             bool
	}{
		{"passed TLS", allowPass, "pass.test", 443, hello("pass.test"), "pass.test", true},
		{"TLS that is no HTTPS", strings.Replace(allowPass, `"hosts"`, `"protocols": ["tls"], "ports": [8443], "hosts"`, 1), "pass.test", 8443, hello("pass.test"), "pass.test", true},
		{"passed TLS by address", byAddress, "203.0.113.9", 443, hello("PASS.test"), "pass.test", true},
		{"a raw relay", allowRaw, "raw.test", 9000, "hello", "raw.test", false},
		{"raw bytes beside HTTPS", `{"id": "mixed", "action": "allow", "hosts": ["mixed.test"], "protocols": ["https", "tcp"], "ports": [443]}`, "mixed.test", 443, "hello", "mixed.test", false},
	}
	for _, tt := range tests {
		for _, granted := range []string{tt.granted, "other.test"} {
			t.Run(tt.name+", a grant for "+granted, func(t *testing.T) {
				w := newWorld(t, tt.rules, func(c *Config) { c.Injector = &injector{host: granted, value: "Bearer ours"} })
				w.serveTCP(tt.host, tt.port, greet)
				got := exchangeRaw(t, w.connect(tt.host, tt.port), tt.send)
				d, _ := w.decided()
				if granted == "other.test" {
					if d.Verdict != "allow" || got != "server first\ngot "+tt.send {
						t.Errorf("the allowed twin: %q, decision %+v", got, d)
					}
					return
				}
				want := ""
				if tt.alert {
					want = "\x15\x03\x03\x00\x02\x02\x31"
				}
				if got != want || d.Verdict != "deny" || d.Reason != "secret_unavailable" || len(w.dialer.dials()) > 0 {
					t.Errorf("got %q, dialled %v, decision %+v", got, w.dialer.dials(), d)
				}
			})
		}
	}
}

func TestSecretThatCantBeHadBlocks(t *testing.T) {
	w := newWorld(t, allowGood, func(c *Config) {
		c.Injector = &injector{host: "good.test", err: errors.New("sealed")}
	})
	w.upstream("good.test", 443, seenBy())
	resp, body := w.send("/v1/x", "", "", "")
	if resp.StatusCode != 503 || !strings.Contains(body, "secret_unavailable") {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
	if d, _ := w.decided(); d.Verdict != "deny" || d.Reason != "secret_unavailable" || len(w.dialer.dials()) > 0 {
		t.Errorf("decision %+v", d)
	}
}
