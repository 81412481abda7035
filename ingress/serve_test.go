package ingress

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"portreeve.dev/ingress/forward"
	"portreeve.dev/ingress/route"
)

func paused(r *route.Record) { r.State = route.Paused }

// sleep pauses a sandbox as control and node do.
func (w *world) sleep(sandbox string, records ...route.Record) {
	w.boxes.set(func() { delete(w.boxes.live, sandbox) })
	w.routes(records...)
}

func TestRequestReachesItsApp(t *testing.T) {
	w := newWorld(t)
	w.app("sbx_a", hello("a"))
	w.app("sbx_b", hello("b"))
	for _, h2 := range []bool{false, true} {
		c := w.client(h2)
		a := w.do(c, "GET", "https://"+hostA(w.https)+"/x?y=1", "X-Portreeve-Token", token)
		if a.want(t, 200, ""); a.body != "a GET /x?y=1" {
			t.Errorf("h2 %v: %q", h2, a.body)
		}
		a = w.do(c, "GET", "https://"+hostB(w.https)+"/")
		if a.want(t, 200, ""); a.body != "b GET /" {
			t.Errorf("h2 %v: %q", h2, a.body)
		}
	}
	a := w.do(w.client(false), "GET", "http://"+hostB(w.http)+"/plain")
	if a.want(t, 200, ""); a.body != "b GET /plain" {
		t.Errorf("plain: %q", a.body)
	}
}

func TestRefusedRequestsWakeAndDialNothing(t *testing.T) {
	w := newWorld(t)
	w.app("sbx_a", hello("a"))
	w.app("sbx_b", hello("b"))
	c, plain := w.client(false), "http://"
	w.sleep("sbx_a", w.a(paused))
	w.sleep("sbx_b", w.b(paused))
	unknown := slugA[1:] + "x-3000.tunnel.localhost:" + w.http
	browser := []string{"Accept", "text/html", "Sec-Fetch-Mode", "navigate"}
	for _, test := range []struct {
		method, url string
		headers     []string
		status      int
		code        string
	}{
		{"GET", plain + unknown + "/", nil, 404, "tunnel_not_found"},
		{"GET", plain + "evil.test:" + w.http + "/", nil, 421, "misdirected"},
		{"GET", plain + hostA(w.http) + "/", nil, 401, "token_required"},
		{"GET", plain + hostA(w.http) + "/", browser, 401, "token_required"},
		{"POST", plain + hostA(w.http) + "/", []string{"X-Portreeve-Token", "x"}, 401, "token_required"},
		{"GET", plain + hostA(w.http) + "/?portreeve_token=x", nil, 401, "token_required"},
		{"GET", plain + hostA(w.http) + "/", []string{"Upgrade", "websocket", "Connection", "upgrade"}, 401, "token_required"},
		{"OPTIONS", plain + hostA(w.http) + "/", []string{"Origin", "https://x.test", "Access-Control-Request-Method", "PUT"}, 204, ""},
		{"OPTIONS", plain + hostB(w.http) + "/", []string{"Origin", "https://x.test", "Access-Control-Request-Method", "PUT"}, 503, "asleep"},
		{"GET", plain + hostB(w.http) + "/", []string{"Sec-Purpose", "prefetch"}, 503, "asleep"},
		{"GET", plain + hostB(w.http) + "/favicon.ico", nil, 503, "asleep"},
		{"GET", plain + hostA(w.http) + "/?portreeve_token=" + token, nil, 303, ""},
	} {
		a := w.do(c, test.method, test.url, test.headers...)
		a.want(t, test.status, test.code)
		if test.status != 303 && (a.Header.Get("Location") != "" || a.Header.Get("Access-Control-Allow-Origin") != "") {
			t.Errorf("%s %s: %v", test.method, test.url, a.Header)
		}
	}
	w.routes(w.a(func(r *route.Record) { r.State = route.Gone; r.Public = true }))
	w.do(c, "GET", plain+hostA(w.http)+"/", "X-Portreeve-Token", token).want(t, 410, "tunnel_ended")
	if wakes, dials := w.boxes.counts(); wakes != 0 || dials != 0 {
		t.Errorf("%d wakes, %d dials", wakes, dials)
	}
	w.do(c, "GET", plain+hostB(w.http)+"/").want(t, 200, "")
	if wakes, dials := w.boxes.counts(); wakes != 1 || dials != 1 {
		t.Errorf("a request that may: %d wakes, %d dials", wakes, dials)
	}
}

func TestTokenBecomesACookie(t *testing.T) {
	w := newWorld(t)
	w.app("sbx_a", func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "%s %q", r.RequestURI, r.Header["Cookie"])
	})
	for _, base := range []string{"https://" + hostA(w.https), "http://" + hostA(w.http)} {
		c := w.client(false)
		u, _ := url.Parse(base)
		if u.Scheme == "https" { // the jar believes what a browser does of Secure
			c.Jar.SetCookies(u, []*http.Cookie{{Name: "theme", Value: "dark"}})
		}
		a := w.do(c, "GET", base+"/a%2fb?x=%20;y&portreeve_token="+token+"&&z")
		if a.want(t, 303, ""); a.Header.Get("Location") != base+"/a%2fb?x=%20;y&&z" || a.Header.Get("Cache-Control") != "no-store" {
			t.Fatalf("%v", a.Header)
		}
		a = w.do(c, "GET", a.Header.Get("Location"))
		want := `/a%2fb?x=%20;y&&z []`
		if u.Scheme == "https" {
			want = `/a%2fb?x=%20;y&&z ["theme=dark"]`
		}
		if a.want(t, 200, ""); a.body != want {
			t.Errorf("the app saw %s, want %s", a.body, want)
		}
		w.do(w.client(false), "GET", base+"/").want(t, 401, "token_required")
	}
}

func TestTunnelsAreApart(t *testing.T) {
	w := newWorld(t)
	b := w.b(func(r *route.Record) { r.Public, r.TokenHash = false, w.a().TokenHash }) // even with the same token
	w.routes(b)
	w.app("sbx_a", hello("a"))
	w.app("sbx_b", hello("b"))
	c := w.client(false)
	a := w.do(c, "GET", "https://"+hostA(w.https)+"/?portreeve_token="+token)
	cookie, _, _ := strings.Cut(a.Header.Get("Set-Cookie"), ";")
	w.do(w.client(false), "GET", "https://"+hostA(w.https)+"/", "Cookie", cookie).want(t, 200, "")
	w.do(w.client(false), "GET", "https://"+hostB(w.https)+"/", "Cookie", cookie).want(t, 401, "token_required")
	for range 3 {
		for name, host := range map[string]string{"a": hostA(w.https), "b": hostB(w.https)} {
			if a := w.do(c, "GET", "https://"+host+"/", "X-Portreeve-Token", token); !strings.HasPrefix(a.body, name) {
				t.Errorf("%s answered for %s", a.body, name)
			}
		}
	}
	if _, dials := w.boxes.counts(); dials > 3 {
		t.Errorf("connections are not kept: %d dials", dials)
	}
}

func TestOnlyTheRecordIsDialled(t *testing.T) {
	w := newWorld(t)
	w.app("sbx_b", hello("b"))
	c := w.client(false)
	for _, headers := range [][]string{
		{}, {"X-Sandbox-Id", "sbx_a"}, {"X-Portreeve-Sandbox", "sbx_a"}, {"X-Forwarded-Host", hostA(w.http)}, {"X-Original-Host", "169.254.169.254"},
		{"Forwarded", "host=" + hostA(w.http)}, {"X-Forwarded-Port", "22"}, {"X-Portreeve-Port", "22"}, {"X-Rewrite-Url", "http://127.0.0.1/"},
	} {
		a := w.do(c, "POST", "http://"+hostB(w.http)+"/?url=http://169.254.169.254/&port=22", headers...)
		if a.want(t, 200, ""); !strings.HasPrefix(a.body, "b ") {
			t.Errorf("%v: %q", headers, a.body)
		}
	}
	for _, dial := range w.boxes.dials {
		if dial != "sbx_b:3000@7" {
			t.Errorf("dialled %s", dial)
		}
	}
}

func TestExpiredTunnelAnswersGone(t *testing.T) {
	w := newWorld(t)
	w.app("sbx_b", hello("b"))
	w.routes(w.b(func(r *route.Record) { r.ExpiresAt = time.Now().Add(300 * time.Millisecond) }))
	c := w.client(false)
	eventually(t, "the end", func() bool { return w.do(c, "GET", "https://"+hostB(w.https)+"/").StatusCode == 410 })
	a := w.do(c, "GET", "https://"+hostB(w.https)+"/", "Accept", "application/json")
	if a.want(t, 410, "tunnel_ended"); a.Header.Get("Content-Type") != "application/problem+json" || a.Header.Get("Cache-Control") != "no-store" {
		t.Error(a.Header)
	}
	a = w.do(c, "GET", "https://"+hostB(w.https)+"/", "Accept", "text/html", "Sec-Fetch-Mode", "navigate")
	if a.want(t, 410, "tunnel_ended"); !strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") {
		t.Error(a.Header)
	}
}

func TestRoutesStaleIsNotNotFound(t *testing.T) {
	var boot time.Duration = time.Hour
	var mu sync.Mutex
	w := newWorld(t, func(c *Config) {
		c.Table.Boot = func() time.Duration { mu.Lock(); defer mu.Unlock(); return boot }
	})
	w.app("sbx_b", hello("b"))
	c, unknown := w.client(false), "http://"+slugA[1:]+"x-3000.tunnel.localhost:"+w.http+"/"
	w.do(c, "GET", unknown).want(t, 404, "tunnel_not_found")
	mu.Lock()
	boot += time.Minute
	mu.Unlock()
	a := w.do(c, "GET", unknown)
	if a.want(t, 503, "routes_stale"); a.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	w.do(c, "GET", "http://"+hostB(w.http)+"/").want(t, 200, "")
	w.server.Routes().Heartbeat()
	w.do(c, "GET", unknown).want(t, 404, "tunnel_not_found")
}

// echo reads all before it answers.
func echo(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
	}
	_, _ = w.Write(b)
}

func TestSleepingSandboxIsWokenOnce(t *testing.T) {
	w := newWorld(t)
	w.app("sbx_b", echo)
	w.sleep("sbx_b", w.b(paused))
	w.boxes.set(func() { w.boxes.takes = 100 * time.Millisecond })
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			u := "http://" + hostB(w.http) + "/"
			if i%20 == 0 {
				u = "https://" + hostB(w.https) + "/"
			}
			body := fmt.Sprint("body ", i)
			a, err := try(w.client(i%40 == 0), "POST", u, strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			if a.want(t, 200, ""); a.body != body || a.Header.Get("X-Portreeve-Wake-Ms") == "" && i == 0 {
				t.Errorf("%q came back as %q", body, a.body)
			}
		})
	}
	wg.Wait()
	if wakes, _ := w.boxes.counts(); wakes != 1 {
		t.Errorf("%d wakes", wakes)
	}
}

func TestNavigationGetsAPage(t *testing.T) {
	w := newWorld(t)
	w.app("sbx_b", hello("b"))
	w.sleep("sbx_b", w.b(paused))
	w.boxes.set(func() { w.boxes.takes = 50 * time.Millisecond })
	c, u := w.client(false), "https://"+hostB(w.https)+"/"
	browser := []string{"Accept", "text/html,*/*", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}
	a := w.do(c, "GET", u, browser...)
	a.want(t, 503, "waking")
	if a.Header.Get("Retry-After") != "1" || a.Header.Get("Cache-Control") != "no-store" || !strings.Contains(a.body, `http-equiv="refresh" content="1"`) || strings.Contains(a.body, "<script") {
		t.Errorf("%v\n%s", a.Header, a.body)
	}
	eventually(t, "the app's own page", func() bool { return w.do(c, "GET", u, browser...).body == "b GET /" })
	if wakes, _ := w.boxes.counts(); wakes != 1 {
		t.Errorf("%d wakes", wakes)
	}
	w.boxes.set(func() { delete(w.boxes.live, "sbx_b") })
	w.routes(w.b(paused, func(r *route.Record) { r.Generation = 8 }))
	if a := w.do(c, "GET", u, "Accept", "text/html"); a.body != "b GET /" {
		t.Errorf("a program was not held: %d %q", a.StatusCode, a.body)
	}
	w.boxes.set(func() { delete(w.boxes.live, "sbx_b") })
	w.routes(w.b(paused, func(r *route.Record) { r.Generation = 9 }))
	script := []string{"Accept", "*/*", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "script", "User-Agent", "Mozilla/5.0 Chrome/150"}
	if a := w.do(c, "GET", u, script...); a.body != "b GET /" {
		t.Errorf("a script was not held: %d %q", a.StatusCode, a.body)
	}
}

func TestFailedWakeIsSaidToEachKind(t *testing.T) {
	w := newWorld(t)
	w.sleep("sbx_b", w.b(paused))
	w.boxes.set(func() { w.boxes.wakeErr = errors.New("no room") })
	c, u := w.client(true), "https://"+hostB(w.https)+"/"
	a := w.do(c, "GET", u, "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "script")
	if a.want(t, 503, "wake_failed"); a.Header.Get("Content-Type") != "application/problem+json" || a.Header.Get("Retry-After") != "1" || strings.Contains(a.body, "no room") {
		t.Errorf("%v %s", a.Header, a.body)
	}
	a = w.do(c, "POST", u, "Content-Type", "application/grpc", "Te", "trailers")
	if a.want(t, 200, "wake_failed"); a.Header.Get("Grpc-Status") != "14" || a.body != "" {
		t.Errorf("%v %q", a.Header, a.body)
	}
	a = w.do(c, "GET", u, "Accept", "text/html")
	if a.want(t, 503, "wake_failed"); !strings.Contains(a.body, "<h1>") {
		t.Errorf("%s", a.body)
	}
	if wakes, dials := w.boxes.counts(); wakes != 1 || dials != 0 {
		t.Errorf("%d wakes, %d dials", wakes, dials)
	}
}

func TestPortMayOpenLater(t *testing.T) {
	w := newWorld(t)
	w.sleep("sbx_b", w.b(paused))
	c, u := w.client(false), "https://"+hostB(w.https)+"/"
	dials := 0
	w.boxes.set(func() {
		w.boxes.onDial = func(*route.Record) {
			if dials++; dials == 3 { // this one still finds the port closed
				w.app("sbx_b", echo)
			}
		}
	})
	body := strings.Repeat("x", 100_000)
	if a := w.send(c, "POST", u, strings.NewReader(body)); a.StatusCode != 200 || a.body != body {
		t.Errorf("%d, %d bytes", a.StatusCode, len(a.body))
	}
	w = newWorld(t, func(c *Config) { c.PortBudget = 200 * time.Millisecond })
	w.sleep("sbx_b", w.b(paused))
	w.do(w.client(false), "GET", "https://"+hostB(w.https)+"/").want(t, 502, "port_closed")
}

func TestStaleRouteIsWokenAndTriedOnceMore(t *testing.T) {
	w := newWorld(t)
	w.app("sbx_b", echo)
	w.boxes.set(func() { delete(w.boxes.live, "sbx_b") }) // paused, but the route doesn't say so yet
	a := w.send(w.client(false), "POST", "https://"+hostB(w.https)+"/", strings.NewReader("once"))
	if a.want(t, 200, ""); a.body != "once" {
		t.Errorf("%q", a.body)
	}
	if got := fmt.Sprint(w.boxes.wakes, w.boxes.dials); got != "[sbx_b@7] [sbx_b:3000@7 sbx_b:3000@8]" {
		t.Error(got)
	}
}

func TestStaleRouteIsTriedOnceMoreAndNoMore(t *testing.T) {
	w := newWorld(t)
	w.app("sbx_b", hello("b"))
	w.boxes.set(func() { w.boxes.dialErr = forward.ErrStale })
	w.do(w.client(false), "GET", "https://"+hostB(w.https)+"/").want(t, 503, "sandbox_restarted")
	if wakes, dials := w.boxes.counts(); wakes != 1 || dials != 2 {
		t.Errorf("%d wakes, %d dials", wakes, dials)
	}
}

func TestRouteIsLookedAtAgain(t *testing.T) {
	w := newWorld(t)
	w.app("sbx_a", hello("a"))
	c, u := w.client(false), "https://"+hostA(w.https)+"/"
	w.sleep("sbx_a", w.a(paused))
	// While the request is held, its access is revoked; the stream is not known yet, so nothing ends it.
	w.boxes.set(func() {
		w.boxes.onWake = func(string, uint64) {
			w.routes(w.a(func(r *route.Record) { r.Generation, r.AuthEpoch = 6, 2 }))
		}
	})
	w.do(c, "GET", u, "X-Portreeve-Token", token).want(t, 401, "token_required")
	if _, dials := w.boxes.counts(); dials != 0 {
		t.Errorf("%d dials", dials)
	}
	w.do(c, "GET", u, "X-Portreeve-Token", token).want(t, 200, "")
	w.boxes.set(func() {
		delete(w.boxes.live, "sbx_a")
		w.boxes.onWake = func(string, uint64) { w.routes(w.a(func(r *route.Record) { r.State = route.Gone })) }
	})
	w.routes(w.a(paused, func(r *route.Record) { r.Generation, r.AuthEpoch = 6, 2 }))
	w.do(c, "GET", u, "X-Portreeve-Token", token).want(t, 410, "tunnel_ended")
}

// A tunnel that was given less time while the request was held must not go on to its old end.
func TestShortenedTunnelIsLookedAtAgain(t *testing.T) {
	w := newWorld(t)
	w.app("sbx_a", hello("a"))
	c, u := w.client(false), "https://"+hostA(w.https)+"/"
	w.sleep("sbx_a", w.a(paused))
	w.boxes.set(func() {
		w.boxes.onWake = func(string, uint64) {
			w.routes(w.a(func(r *route.Record) { r.Generation, r.ExpiresAt = 6, time.Now().Add(time.Minute) }))
		}
	})
	w.do(c, "GET", u, "X-Portreeve-Token", token).want(t, 401, "token_required")
	w.do(c, "GET", u, "X-Portreeve-Token", token).want(t, 200, "")
}

// A public tunnel's callers wake as often as the org lets them, whoever they are; a token's owner is not counted among them.
func TestAnonymousCallersHaveTheOrgsBudget(t *testing.T) {
	w := newWorld(t)
	w.app("sbx_a", hello("a"))
	w.app("sbx_b", hello("b"))
	c := w.client(false)
	url := "http://" + hostB(w.http) + "/"
	w.sleep("sbx_b", w.b(func(r *route.Record) { paused(r); r.AnonymousWakes = 0 }))
	for _, headers := range [][]string{nil, {"Accept", "text/html", "Sec-Fetch-Mode", "navigate"}, {"X-Portreeve-Token", token}} {
		a := w.do(c, "GET", url, headers...)
		a.want(t, 429, "wake_budget_spent")
		if a.Header.Get("Retry-After") == "" || a.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%v", a.Header)
		}
	}
	w.sleep("sbx_a", w.a(func(r *route.Record) { paused(r); r.AnonymousWakes = 0 }))
	if wakes, dials := w.boxes.counts(); wakes != 0 || dials != 0 {
		t.Errorf("%d wakes, %d dials", wakes, dials)
	}
	w.do(c, "GET", "http://"+hostA(w.http)+"/", "X-Portreeve-Token", token).want(t, 200, "")
	w.sleep("sbx_b", w.b(func(r *route.Record) { paused(r); r.AnonymousWakes = 1 }))
	w.do(c, "GET", url).want(t, 200, "")
	if wakes, _ := w.boxes.counts(); wakes != 2 {
		t.Errorf("%d wakes, want 2", wakes)
	}
}
