package forward

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestForwardedHeadersAreOurs(t *testing.T) {
	w := newWorld(t)
	w.raw(echoHead)
	for _, spelling := range []func(string) string{
		func(s string) string { return s }, strings.ToUpper, strings.ToLower,
		func(s string) string { return strings.ReplaceAll(s, "-", "_") }, func(s string) string { return strings.ReplaceAll(s, "-", ".") },
		func(s string) string { return strings.Replace(s, "-", "_", 1) },
	} {
		var sent []string
		for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Uri", "X-Forwarded-Anything",
			"Forwarded", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Original-Url", "X-Original-Host", "X-Rewrite-Url", "Proxy", "Via",
			"X-Portreeve-Token", "X-Portreeve-Self", "X-Portreeve-User", "X-Envoy-External-Address"} {
			sent = append(sent, spelling(name)+": evil")
		}
		got, _ := w.ask(get("/", append(sent, "X-App: kept", "X_app: kept too", "Authorization: Bearer app", "X-Portreevex: kept")...))
		if strings.Contains(got, "evil") {
			t.Errorf("the app got\n%s", got)
		}
		for name, want := range map[string][]string{
			"x-forwarded-for": {"192.0.2.7"}, "x-forwarded-host": {public + ":8443"}, "x-forwarded-proto": {"https"},
			"forwarded": {`for=192.0.2.7;host="` + public + `:8443";proto=https`}, "host": {"localhost:3000"}, "authorization": {"Bearer app"}, "x-portreevex": {"kept"},
		} {
			if v := fields(got, name); !slices.Equal(v, want) {
				t.Errorf("%s: %q, want %q", name, v, want)
			}
		}
		if v := fields(got, "x-app"); len(v) != 2 {
			t.Errorf("the app's own headers: %q", v)
		}
	}
}

func FuzzReserved(f *testing.F) {
	for _, s := range []string{"X-Forwarded-For", "x.portreeve_token", "Forwarded", "X-App", "", "X-Forwarded-Averyverylongnamethatgoesonandon", "X-Cluster-Client-Ip"} {
		f.Add(s)
	}
	exact := strings.Fields("forwarded x-forwarded x-portreeve x-real-ip x-client-ip x-cluster-client-ip x-rewrite-url x-host x-http-host-override x-original-url " +
		"x-proxyuser-ip true-client-ip cf-connecting-ip fastly-client-ip client-ip via proxy x-scheme x-url-scheme")
	f.Fuzz(func(t *testing.T, name string) {
		if strings.ContainsFunc(name, func(r rune) bool { return r < '!' || r > '~' }) {
			return // no header has such a name
		}
		n := fold(name)
		want := slices.Contains(exact, n)
		for _, prefix := range []string{"x-portreeve-", "x-forwarded-", "x-original-", "x-envoy-"} {
			want = want || strings.HasPrefix(n, prefix)
		}
		if got := reserved(name); got != want {
			t.Fatalf("%q: %v, want %v", name, got, want)
		}
	})
}

func TestHopByHopEndsHere(t *testing.T) {
	w := newWorld(t)
	w.raw(func(_ int, nc net.Conn, r *bufio.Reader) {
		h, ok := head(r)
		if !ok {
			return
		}
		io.WriteString(nc, "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: X-Hop\r\nKeep-Alive: x\r\nX-Hop: 1\r\nX-Portreeve-Code: x\r\n\r\n")
		fmt.Fprintf(nc, "HTTP/1.1 200 OK\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: x\r\nProxy-Authenticate: x\r\nUpgrade: h2c\r\nX-Kept: 1\r\nContent-Length: %d\r\n\r\n%s", len(h), h)
	})
	nc := w.open()
	io.WriteString(nc, get("/", "Connection:", "Connection: X-Gone, keep-alive", "X-Gone: 1", "Keep-Alive: x", "Te: trailers, deflate", "Proxy-Authorization: x", "Proxy-Connection: x", "X-Kept: 1"))
	r := bufio.NewReader(nc)
	hints, _ := head(r)
	if !strings.HasPrefix(hints, "HTTP/1.1 103 ") || !strings.Contains(hints, "Link: </a.css>") || strings.Count(hints, "\r\n") != 3 {
		t.Errorf("early hints:\n%s", hints)
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	got := string(body)
	for _, name := range []string{"x-gone", "keep-alive", "proxy-authorization", "proxy-connection", "upgrade"} {
		if v := fields(got, name); v != nil {
			t.Errorf("the app got %s %q", name, v)
		}
	}
	if v := fields(got, "connection"); !slices.Equal(v, []string{"TE"}) || !slices.Equal(fields(got, "te"), []string{"trailers"}) || fields(got, "x-kept") == nil {
		t.Errorf("the app got\n%s", got)
	}
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Upgrade", "X-Hop"} {
		if resp.Header[name] != nil {
			t.Errorf("the client got %s %q", name, resp.Header[name])
		}
	}
	if resp.Header.Get("X-Kept") == "" || resp.Header.Get("Link") != "" {
		t.Errorf("the client got %v", resp.Header)
	}
}

func TestOnlyWebSocketIsAnUpgrade(t *testing.T) {
	w := newWorld(t)
	var answer string
	w.raw(func(_ int, nc net.Conn, r *bufio.Reader) {
		h, ok := head(r)
		if !ok {
			return
		}
		if answer == "" {
			answer = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(h), h)
		}
		io.WriteString(nc, answer)
	})
	for _, up := range [][]string{{"Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"}, {"Upgrade: websocket, h2c"}, {"Upgrade: tls/1.0"}, {"Upgrade: websocket", "Upgrade: h2c"}} {
		answer = ""
		got, resp := w.ask(get("/", append(up, "Connection: Upgrade, HTTP2-Settings")...))
		if resp.StatusCode != 200 || fields(got, "upgrade") != nil || fields(got, "connection") != nil || fields(got, "http2-settings") != nil {
			t.Errorf("%q: %d, the app got\n%s", up, resp.StatusCode, got)
		}
	}
	for _, answer = range []string{"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nevil", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nevil"} {
		if got, resp := w.ask(get("/")); resp.StatusCode != 502 || strings.Contains(got, "evil") {
			t.Errorf("an app that switches unasked: %d %q", resp.StatusCode, got)
		}
	}
}

func TestTargetArrivesByteForByte(t *testing.T) {
	w := newWorld(t)
	w.raw(echoHead)
	for _, target := range []string{"/", "/?", "/a%2fb%2F..//c;d?x=%zz;y&&=%20+", "//evil.test/", "/a?b?c", "/%00"} {
		if got, _ := w.ask(get(target)); !strings.HasPrefix(got, "GET "+target+" HTTP/1.1\r\n") {
			t.Errorf("%q arrives as %q", target, got)
		}
	}
}

func TestRequestChoosesNoAddress(t *testing.T) {
	w := newWorld(t)
	w.raw(echoHead)
	for _, request := range []string{
		get("/"), "GET http://169.254.169.254/x HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n", "GET http://user@127.0.0.1:22/x HTTP/1.1\r\nHost: localhost:22\r\n\r\n", "GET / HTTP/1.0\r\n\r\n",
	} {
		got, _ := w.ask(request)
		if v := fields(got, "host"); !slices.Equal(v, []string{"localhost:3000"}) || strings.Contains(got, "169.254") || strings.Contains(got, "127.0.0.1") {
			t.Errorf("%q arrives as\n%s", request, got)
		}
	}
	for _, d := range w.dials {
		if d.Sandbox != "sbx_1" || d.Port != 3000 || d.Generation != 5 {
			t.Errorf("dialled %+v", d)
		}
	}
}

func TestHostModes(t *testing.T) {
	w := newWorld(t)
	w.raw(func(_ int, nc net.Conn, r *bufio.Reader) {
		for {
			h, ok := head(r)
			if !ok {
				return
			}
			fmt.Fprintf(nc, "HTTP/1.1 302 Found\r\nLocation: http://localhost:3000/next?x\r\nContent-Length: %d\r\n\r\n%s", len(h), h)
		}
	})
	own := "https://" + public + ":8443"
	for _, test := range []struct {
		keep                   bool
		origin                 string
		host, sawOrigin, moved string
	}{
		{false, own, "localhost:3000", "http://localhost:3000", own + "/next?x"},
		{false, "https://evil.test", "localhost:3000", "https://evil.test", own + "/next?x"},
		{false, own + ".evil.test", "localhost:3000", own + ".evil.test", own + "/next?x"},
		{false, "null", "localhost:3000", "null", own + "/next?x"},
		{true, own, public + ":8443", own, "http://localhost:3000/next?x"},
	} {
		w.rec.KeepHost = test.keep
		got, resp := w.ask(get("/", "Origin: "+test.origin))
		if fields(got, "host")[0] != test.host || fields(got, "origin")[0] != test.sawOrigin || resp.Header.Get("Location") != test.moved {
			t.Errorf("%+v: the app got\n%s, the client %q", test, got, resp.Header.Get("Location"))
		}
	}
	for in, want := range map[string]string{
		"/x": "/x", "http://localhost:30001/": "http://localhost:30001/", "http://localhost:3000.evil.test/": "http://localhost:3000.evil.test/", "HTTP://LOCALHOST:3000": own, "http://localhost:3000#a": own + "#a",
	} {
		o := outgoing{hop: &Hop{Record: &w.rec, Authority: public + ":8443", Secure: true}}
		w.rec.KeepHost = false
		if got := o.location(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

func TestBodiesAndTrailers(t *testing.T) {
	w := newWorld(t)
	w.app(func(rw http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		rw.Header().Set("Trailer", "X-Sum")
		fmt.Fprintf(rw, "%d %v %d %q %q", len(b), err, r.ContentLength, r.TransferEncoding, r.Trailer)
		rw.Header().Set("X-Sum", "42")
	})
	head := "POST / HTTP/1.1\r\nHost: " + public + "\r\n"
	for request, want := range map[string]string{
		head + "Content-Length: 5\r\n\r\nhello": `5 <nil> 5 [] map[]`,
		head + "Content-Length: 0\r\n\r\n":      `0 <nil> 0 [] map[]`,
		head + "\r\n":                           `0 <nil> 0 [] map[]`,
		head + "Transfer-Encoding: chunked\r\nTrailer: X-Check\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\nX-Check: 7\r\n\r\n": `11 <nil> -1 ["chunked"] map["X-Check":["7"]]`,
	} {
		got, resp := w.ask(request)
		if got != want || resp.Trailer.Get("X-Sum") != "42" {
			t.Errorf("%q: %s, trailer %v, want %s", request, got, resp.Trailer, want)
		}
	}
}

func TestExpectIsTheAppsToAnswer(t *testing.T) {
	w := newWorld(t)
	w.app(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			rw.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		b, _ := io.ReadAll(r.Body)
		rw.Write(b)
	})
	nc := w.open()
	r := bufio.NewReader(nc)
	fmt.Fprintf(nc, "POST /yes HTTP/1.1\r\nHost: %s\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", public)
	if h, _ := head(r); h != "HTTP/1.1 100 Continue\r\n\r\n" {
		t.Fatalf("got %q", h)
	}
	io.WriteString(nc, "hello")
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(resp.Body); string(b) != "hello" {
		t.Errorf("got %q", b)
	}
	fmt.Fprintf(nc, "POST /no HTTP/1.1\r\nHost: %s\r\nExpect: 100-continue\r\nContent-Length: 500000\r\n\r\n", public)
	if resp, err = http.ReadResponse(r, nil); err != nil || resp.StatusCode != 413 {
		t.Fatalf("%v, %v", resp, err)
	}
	for range 20 {
		if got, resp := w.ask("POST /yes HTTP/1.1\r\nHost: " + public + "\r\nContent-Length: 2\r\n\r\nok"); got != "ok" || resp.StatusCode != 200 {
			t.Fatalf("afterwards: %d %q", resp.StatusCode, got)
		}
	}
}

func TestAppMayAnswerBeforeTheBodyIsThere(t *testing.T) {
	w := newWorld(t)
	w.raw(func(_ int, nc net.Conn, r *bufio.Reader) {
		if _, ok := head(r); ok {
			io.WriteString(nc, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
			_, _ = io.Copy(io.Discard, r)
		}
	})
	nc := w.open()
	fmt.Fprintf(nc, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 1000000\r\n\r\nbegin", public)
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil || resp.StatusCode != 403 {
		t.Fatalf("%v, %v", resp, err)
	}
	if b, err := io.ReadAll(resp.Body); string(b) != "no" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if err := <-w.errs; err != nil {
		t.Error(err)
	}
}
