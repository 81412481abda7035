package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"portreeve.dev/policies"
)

// B72: what belongs to one connection stays on it, both ways.
func TestHopByHopStaysHere(t *testing.T) {
	for _, front := range fronts {
		w := newWorld(t, allowGood+","+allowClear)
		seen := make(chan http.Header, 1)
		w.upstream(front.host, front.port, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen <- r.Header.Clone()
			h := w.Header()
			h["Connection"] = []string{"X-Hop"}
			h["X-Hop"], h["Keep-Alive"], h["Proxy-Authenticate"], h["X-Kept"] = []string{"1"}, []string{"1"}, []string{"Basic"}, []string{"yes"}
			h["Upgrade"] = []string{"h2c"}
		}))
		conn := w.speak(front.host, front.port)
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: X-Gone, Upgrade, HTTP2-Settings\r\nX-Gone: 1\r\nX-Kept: 1\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"+
			"Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic x\r\nProxy-Other: x\r\nKeep-Alive: 1\r\nTE: trailers, gzip\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n", front.host)
		resp, _ := readAnswer(t, bufio.NewReader(conn))
		conn.Close()
		got := <-seen
		if diff := cmp.Diff(http.Header{"X-Kept": {"1"}, "Te": {"trailers"}, "X-Forwarded-For": {"1.2.3.4"}}, got); diff != "" {
			t.Errorf("%s: upstream saw (-want +got):\n%s", front.name, diff)
		}
		for _, name := range []string{"X-Hop", "Keep-Alive", "Proxy-Authenticate", "Upgrade", "Via"} {
			if v := resp.Header[name]; len(v) > 0 && !(name == "X-Hop" && front.port == 443) { // the upstream's HTTP/2 has no Connection field

				t.Errorf("%s: the client saw %s: %q", front.name, name, v)
			}
		}
		if resp.Header.Get("X-Kept") != "yes" || resp.StatusCode != 200 {
			t.Errorf("%s: answer %d %v", front.name, resp.StatusCode, resp.Header)
		}
	}
}

// B78: gRPC's shape: streams both ways over HTTP/2, with trailers, also without a body.
func TestTrailersAndStreams(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, allowGood)
		w.upstream("good.test", 443, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Trailer", "Grpc-Status")
			body, _ := io.ReadAll(r.Body)
			_, _ = w.Write(body)
			w.Header().Set("Grpc-Status", "0")
			w.Header().Set(http.TrailerPrefix+"Grpc-Message", r.Trailer.Get("X-Sum"))
		}))
		pr, pw := io.Pipe()
		r, _ := http.NewRequest("POST", "https://good.test/x", pr)
		r.Trailer = http.Header{"X-Sum": nil}
		go func() {
			_, _ = io.WriteString(pw, "hello")
			r.Trailer.Set("X-Sum", "42")
			pw.Close()
		}()
		resp, err := w.client(h2, w.orgCA.pool()).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(body) != "hello" || err != nil || resp.Trailer.Get("Grpc-Status") != "0" || resp.Trailer.Get("Grpc-Message") != "42" {
			t.Errorf("h2 %v: %q, %v, trailers %v", h2, body, err, resp.Trailer)
		}
	}
}

// B77: events are passed on one by one.
func TestEventsAreNotHeldBack(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, allowGood)
		next := make(chan struct{})
		w.upstream("good.test", 443, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 3 {
				fmt.Fprintf(w, "data: %d\n\n", i)
				w.(http.Flusher).Flush()
				<-next
			}
		}))
		resp, err := w.client(h2, w.orgCA.pool()).Get("https://good.test/events")
		if err != nil {
			t.Fatal(err)
		}
		if resp.ContentLength != -1 {
			t.Errorf("length %d", resp.ContentLength)
		}
		r := bufio.NewReader(resp.Body)
		for i := range 3 { // the server waits until each was seen
			line, err := r.ReadString('\n')
			if err != nil || line != fmt.Sprintf("data: %d\n", i) {
				t.Fatalf("got %q, %v", line, err)
			}
			_, _ = r.ReadString('\n')
			next <- struct{}{}
		}
		resp.Body.Close()
	}
}

func TestAnswersComeAsTheyAre(t *testing.T) {
	w := newWorld(t, allowGood)
	w.upstream("good.test", 443, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, "https://evil.test/", http.StatusFound)
		case "/bare":
			w.Header()["Content-Type"], w.Header()["Date"] = nil, nil
			_, _ = io.WriteString(w, "<html>")
		case "/head":
			w.Header().Set("Content-Length", "12345")
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "not really")
		case "/empty":
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	for _, h2 := range []bool{false, true} {
		client := w.client(h2, w.orgCA.pool())
		get := func(method, path string) *http.Response {
			t.Helper()
			r, _ := http.NewRequest(method, "https://good.test"+path, nil)
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp
		}
		if r := get("GET", "/redirect"); r.StatusCode != 302 || r.Header.Get("Location") != "https://evil.test/" {
			t.Errorf("redirect: %d %v", r.StatusCode, r.Header)
		}
		if r := get("GET", "/bare"); r.Header.Get("Content-Type") != "" || r.Header.Get("Date") != "" {
			t.Errorf("bare: %v", r.Header)
		}
		if r := get("HEAD", "/head"); r.ContentLength != 12345 {
			t.Errorf("head: length %d", r.ContentLength)
		}
		if r := get("GET", "/gzip"); r.Header.Get("Content-Encoding") != "gzip" || r.ContentLength != 10 {
			t.Errorf("gzip: %d %v", r.ContentLength, r.Header)
		}
		if r := get("GET", "/empty"); r.StatusCode != 204 {
			t.Errorf("empty: %d", r.StatusCode)
		}
	}
	if dials := w.dialer.dials(); len(dials) > 2 {
		t.Errorf("dialled %v", dials)
	}
}

func TestExpectContinueIsTheUpstreamsToGive(t *testing.T) {
	w := newWorld(t, allowClear)
	w.upstream("clear.test", 80, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}))
	for path, want := range map[string]string{"/yes": "HTTP/1.1 100 Continue\r\n", "/no": "HTTP/1.1 403 Forbidden\r\n"} {
		conn := w.speak("clear.test", 80)
		r := bufio.NewReader(conn)
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: clear.test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", path)
		if line, _ := r.ReadString('\n'); line != want {
			t.Errorf("%s: got %q", path, line)
		}
		conn.Close()
	}
}

// What failed, and that it was not the policy, is told by status and code.
func TestFailuresAreToldApart(t *testing.T) {
	refusedByFloor := &RefusedError{Verdict: policies.Verdict{Reason: policies.ReasonFloorHard, Layer: "floor"}}
	tests := []struct {
		name, want, kind string
		err              error
	}{
		{"refused by the floor", "403 floor_hard", "floor_hard", refusedByFloor},
		{"no such name", "502 upstream_unresolved", "resolve_nxdomain", &DialError{Kind: "resolve_nxdomain", Resolving: true}},
		{"connection refused", "502 upstream_unreachable", "dial_refused", &DialError{Kind: "dial_refused"}},
		{"no company proxy", "502 company_proxy", "company_proxy_down", &DialError{Kind: "company_proxy_down", OfProxy: true}},
		{"no answer to the dial", "504 upstream_timeout", "dial_timeout", &DialError{Kind: "dial_timeout"}},
		{"something else", "502 upstream_unreachable", "dial_failed", fmt.Errorf("unknown")},
	}
	for _, tt := range tests {
		for _, target := range []string{"https://good.test/", "http://clear.test/"} {
			t.Run(tt.name+", "+target, func(t *testing.T) {
				w := newWorld(t, allowGood+","+allowClear)
				w.dialer.failing["good.test:443"], w.dialer.failing["clear.test:80"] = tt.err, tt.err
				if got := getStatus(w, target); got != tt.want {
					t.Errorf("got %q", got)
				}
				want := 1
				if tt.err == error(refusedByFloor) {
					want = 2 // the floor's verdict is one of its own
				}
				all := w.decisions(want, true)
				if end := w.recorder.closed[all[0].ID]; end.Error != tt.kind || all[0].Verdict != "allow" || end.Status != 0 {
					t.Errorf("end %+v", end)
				}
				if d := all[len(all)-1]; want == 2 && (d.Verdict != "deny" || d.Reason != tt.kind || d.RuleLayer != "floor") {
					t.Errorf("refused as %+v", d)
				}
			})
		}
	}
}

func TestUpstreamThatBreaksOff(t *testing.T) {
	w := newWorld(t, allowClear)
	w.serveTCP("clear.test", 80, func(nc *net.TCPConn) {
		if _, err := http.ReadRequest(bufio.NewReader(nc)); err == nil {
			_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
		}
	})
	if got := exchangeRaw(t, w.connect("clear.test", 80), "GET / HTTP/1.1\r\nHost: clear.test\r\n\r\n"); strings.HasSuffix(got, "0\r\n\r\n") || strings.Contains(got, "502") {
		t.Errorf("a broken answer looked whole: %q", got)
	}
	if _, end := w.decided(); end.Error != "upstream_reset" || end.Status != 200 || end.BytesIn != 4 {
		t.Errorf("end %+v", end)
	}
}

// B67: an HTTP/1 client never sees what an upstream says about its own framing.
func TestUpstreamFramingIsOurs(t *testing.T) {
	answers := map[string]string{
		"two lengths":          "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 5\r\n\r\nhello",
		"length and chunked":   "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"an unasked upgrade":   "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello",
		"a status of nonsense": "HTTP/1.1 000 Zero\r\nContent-Length: 0\r\n\r\n",
	}
	for name, answer := range answers {
		w := newWorld(t, allowClear)
		w.serveTCP("clear.test", 80, func(nc *net.TCPConn) {
			if _, err := http.ReadRequest(bufio.NewReader(nc)); err == nil {
				_, _ = io.WriteString(nc, answer)
			}
		})
		conn := w.speak("clear.test", 80)
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: clear.test\r\nConnection: close\r\n\r\n")
		got, _ := io.ReadAll(conn)
		conn.Close()
		ok := strings.HasPrefix(string(got), "HTTP/1.1 502 ")
		if name == "length and chunked" { // RFC 9112: chunked wins
			ok = strings.Contains(string(got), "5\r\nhello\r\n0\r\n\r\n") && !strings.Contains(string(got), "Content-Length")
		}
		if !ok {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// Connections upstream are kept, but never shared between incarnations or verdicts that differ in what they may reach.
func TestUpstreamConnectionsAreKept(t *testing.T) {
	w := newWorld(t, allowGood)
	w.upstream("good.test", 443, echo())
	client := w.client(false, w.orgCA.pool())
	for range 3 {
		resp, err := client.Get("https://good.test/")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if dials := w.dialer.dials(); len(dials) != 1 {
		t.Fatalf("dialled %v", dials)
	}
	// A rule on the address that the kept connection goes to ends its use.
	w.policies.Set(t, allowGood+`,{"id": "not", "action": "deny", "cidrs": ["203.0.113.1/32"]}`)
	resp, err := client.Get("https://good.test/")
	if err != nil {
		t.Fatal(err)
	}
	if p := problemIn(t, resp); p.Reason != "rule_denied" {
		t.Errorf("answer %+v", p)
	}
	if dials := w.dialer.dials(); len(dials) != 2 {
		t.Errorf("dialled %v", dials)
	}
}

func TestPoolsAreBounded(t *testing.T) {
	w := newWorld(t, allowGood+","+allowClear, func(c *Config) { c.Limits.Upstreams = 1 })
	w.upstream("good.test", 443, echo())
	w.upstream("clear.test", 80, echo())
	for range 3 {
		getStatus(w, "https://good.test/")
		getStatus(w, "http://clear.test/")
	}
	if n := w.proxy.pools.of(testOrg).Len(); n != 1 {
		t.Errorf("%d pools", n)
	}
}

func TestClientThatLeavesEndsItsRequest(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, allowGood, func(c *Config) { c.Timeouts.HalfClosed = 10 * time.Millisecond })
		arrived, gone := make(chan struct{}), make(chan struct{})
		w.upstream("good.test", 443, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(arrived)
			<-r.Context().Done()
			close(gone)
		}))
		ctx, cancel := context.WithCancel(context.Background())
		go func() { <-arrived; cancel() }()
		r, _ := http.NewRequestWithContext(ctx, "GET", "https://good.test/", nil)
		if _, err := w.client(h2, w.orgCA.pool()).Do(r); err == nil {
			t.Error("an answer came")
		}
		select {
		case <-gone:
		case <-time.After(5 * time.Second):
			t.Error("the upstream was left waiting")
		}
		if _, end := w.decided(); end.Error != failClient {
			t.Errorf("end %+v", end)
		}
	}
}

// B76: a client may shut its side behind its request and still get the answer.
func TestHalfClosedClientGetsItsAnswer(t *testing.T) {
	w := newWorld(t, allowClear)
	gone := make(chan bool, 1)
	w.upstream("clear.test", 80, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
			gone <- true
		case <-time.After(100 * time.Millisecond):
			gone <- false
			fmt.Fprint(w, "answer")
		}
	}))
	got := exchangeRaw(t, w.connect("clear.test", 80), "GET / HTTP/1.1\r\nHost: clear.test\r\n\r\n")
	if !strings.HasSuffix(got, "\r\n\r\nanswer") || <-gone {
		t.Errorf("got %q", got)
	}
	if _, end := w.decided(); end.Error != "" || end.Status != 200 {
		t.Errorf("end %+v", end)
	}
}

// Whoever reads an answer, a program or portreeve probe, tells ours from an upstream's by the decision that it names.
func TestNoAnswerPassesForOurs(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, allowGood)
		w.upstream("good.test", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set(HeaderDecision, "dec_1")
			rw.Header().Set("Trailer", HeaderDecision+", X-Kept")
			rw.WriteHeader(http.StatusForbidden)
			rw.(http.Flusher).Flush()
			rw.Header().Set("X-Kept", "yes")
			rw.Header().Set(http.TrailerPrefix+HeaderDecision, "dec_1")
		}))
		resp, err := w.client(h2, w.orgCA.pool()).Get("https://good.test/")
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusForbidden || resp.Trailer.Get("X-Kept") != "yes" {
			t.Errorf("h2 %v: %d, %v, %v, %v", h2, resp.StatusCode, resp.Header, resp.Trailer, err)
		}
		if resp.Header[HeaderDecision] != nil || resp.Trailer[HeaderDecision] != nil {
			t.Errorf("h2 %v: an upstream's answer names a decision: %v, %v", h2, resp.Header, resp.Trailer)
		}
	}
	w := newWorld(t, allowGood)
	w.upstream("good.test", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set(HeaderDecision, "dec_1")
		chat().ServeHTTP(rw, r)
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, resp, err := websocket.Dial(ctx, "wss://good.test/", &websocket.DialOptions{HTTPClient: w.client(false, w.orgCA.pool())})
	if err != nil {
		t.Fatal(err)
	}
	c.CloseNow()
	if resp.Header[HeaderDecision] != nil {
		t.Errorf("a WebSocket that was let through names a decision: %v", resp.Header)
	}
}
