package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// credentials are requests that carry something of the sandbox's own, by place.
var credentials = []struct{ place, header, value, query string }{
	{place: "header:authorization", header: "Authorization", value: "Bearer canary"},
	{place: "header:cookie", header: "Cookie", value: "session=canary"},
	{place: "header:x-api-key", header: "X-Api-Key", value: "canary"},
	{place: "header:proxy-authorization", header: "Proxy-Authorization", value: "Basic canary"},
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
			if d, _ := w.decided(); strings.Contains(fmt.Sprintf("%+v", d), "canary") || len(w.dialer.dials()) > 0 {
				t.Errorf("block: decision %+v", d)
			}
			// The twin without a credential passes.
			if resp, _ := w.send("/x", "a=1&monkey=canary", "X-Other", "canary"); resp.StatusCode != 200 {
				t.Errorf("without: %d", resp.StatusCode)
			}
			w.policies.set(t, rule("strip"))
			if resp, body := w.send("/x", c.query, c.header, c.value); resp.StatusCode != 200 || strings.Contains(body, "canary") || c.place == "query:api_key" && !strings.HasPrefix(body, "/x?a=1&b=2 ") {
				t.Errorf("strip: %d %s", resp.StatusCode, body)
			}
			w.policies.set(t, rule("allow"))
			if resp, body := w.send("/x", c.query, c.header, c.value); resp.StatusCode != 200 || strings.Contains(body, "canary") != (c.header != "Proxy-Authorization") {
				t.Errorf("allow: %d %s", resp.StatusCode, body)
			}
		})
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
	if len(d.Secrets) != 1 || d.Secrets[0].Secret != "sec_1" || strings.Contains(fmt.Sprintf("%+v", d), "ours") {
		t.Errorf("decision %+v", d)
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
