package forward

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestAnswersClaimNothing(t *testing.T) {
	w := newWorld(t)
	w.raw(func(_ int, nc net.Conn, r *bufio.Reader) {
		if _, ok := head(r); ok {
			io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Portreeve-Code: x\r\nx_portreeve_code: x\r\nX.Portreeve.Wake-Ms: 1\r\nAlt-Svc: h2=\"evil.test:443\"\r\n"+
				"Set-Cookie: a=b; Domain=localhost; Path=/\r\nSet-Cookie: __Host-portreeve-tunnel=x\r\nSet-Cookie: portreeve-tunnel=x\r\nX-App: 1\r\nVia: 1.1 app\r\n\r\nok")
		}
	})
	_, resp := w.ask(get("/"))
	want := map[string]string{"X-App": "1", "Via": "1.1 app", "Set-Cookie": "a=b; Path=/", "Content-Length": "2"}
	for name, values := range resp.Header {
		if name == "Date" {
			continue
		}
		if got := strings.Join(values, "|"); got != want[name] {
			t.Errorf("%s: %q, want %q", name, got, want[name])
		}
	}
	if len(resp.Header["Set-Cookie"]) != 1 || resp.Header.Get("X-App") == "" {
		t.Error(resp.Header)
	}
}

func TestStreamsArePassedOnAtOnce(t *testing.T) {
	for name, test := range map[string]struct{ head, event string }{
		"event stream":      {"Content-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n", "7\r\ndata: 1\r\n"},
		"chunked page":      {"Content-Type: text/html\r\nTransfer-Encoding: chunked\r\n", "7\r\n<p>data\r\n"},
		"with part of more": {"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n", "7\r\ndata: 1\r\n7"},
		"until the end":     {"Content-Type: Text/Event-Stream\r\n", "data: 1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.raw(func(_ int, nc net.Conn, r *bufio.Reader) {
				if _, ok := head(r); ok {
					io.WriteString(nc, "HTTP/1.1 200 OK\r\n"+test.head+"\r\n"+test.event)
					_, _ = r.ReadByte() // nothing more until the client leaves
				}
			})
			resp, err := http.Get(w.url)
			if err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 7)
			if _, err := io.ReadFull(resp.Body, buf); err != nil {
				t.Fatal(err)
			}
			if resp.Header.Get("Content-Encoding") != "" {
				t.Error("it was encoded")
			}
			resp.Body.Close()
			<-w.errs // the client left, so the exchange ends
		})
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	for name, answer := range map[string]string{
		"nothing":            "",
		"garbage":            "SSH-2.0-OpenSSH_9\r\n\r\n",
		"a huge head":        "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 300<<10) + "\r\n\r\n",
		"hints without end":  strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 20),
		"a status below 100": "HTTP/1.1 007 Bond\r\n\r\n",
		"two lengths":        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
	} {
		w := newWorld(t)
		w.raw(func(_ int, nc net.Conn, r *bufio.Reader) {
			if _, ok := head(r); ok {
				io.WriteString(nc, answer)
			}
		})
		nc := w.open()
		io.WriteString(nc, get("/"))
		r := bufio.NewReader(nc)
		status := 103
		for status == 103 {
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			status = resp.StatusCode
		}
		if status != 502 {
			t.Errorf("%s: %d", name, status)
		}
	}
}

func TestBrokenAnswersAreCutOff(t *testing.T) {
	for name, answer := range map[string]string{
		"short of its length": "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
		"no last chunk":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"a bad chunk":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
	} {
		w := newWorld(t)
		w.raw(func(_ int, nc net.Conn, r *bufio.Reader) {
			if _, ok := head(r); ok {
				io.WriteString(nc, answer)
			}
		})
		resp, err := http.Get(w.url)
		if err != nil {
			continue // cut before the head was out: as good
		}
		if b, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("%s: the client takes %q for whole", name, b)
		}
		resp.Body.Close()
		http.DefaultClient.CloseIdleConnections()
	}
}

func TestContentTypeIsNotGuessed(t *testing.T) {
	w := newWorld(t)
	w.raw(func(_ int, nc net.Conn, r *bufio.Reader) {
		if _, ok := head(r); ok {
			io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n<html></html>")
		}
	})
	if _, resp := w.ask(get("/")); resp.Header["Content-Type"] != nil {
		t.Error(resp.Header)
	}
}

func TestAnswersWithoutBody(t *testing.T) {
	w := newWorld(t)
	w.raw(func(_ int, nc net.Conn, r *bufio.Reader) {
		for {
			h, ok := head(r)
			switch {
			case !ok:
				return
			case strings.HasPrefix(h, "HEAD"):
				io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
			case strings.HasPrefix(h, "GET /304"):
				io.WriteString(nc, "HTTP/1.1 304 Not Modified\r\nEtag: \"x\"\r\nContent-Length: 5\r\n\r\n")
			default:
				io.WriteString(nc, "HTTP/1.1 204 No Content\r\n\r\n")
			}
		}
	})
	for _, test := range []struct {
		request string
		status  int
	}{{"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", 200}, {get("/304"), 304}, {get("/204"), 204}, {"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", 200}} {
		if body, resp := w.ask(test.request); resp.StatusCode != test.status || body != "" {
			t.Errorf("%q: %d %q", test.request, resp.StatusCode, body)
		}
	}
	if w.dialled() != 1 {
		t.Errorf("%d dials", w.dialled())
	}
}

func TestConnectionsBelongToOneGeneration(t *testing.T) {
	w := newWorld(t)
	w.raw(func(n int, nc net.Conn, r *bufio.Reader) {
		for {
			if _, ok := head(r); !ok {
				return
			}
			fmt.Fprintf(nc, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d", n)
		}
	})
	step := func(what, want string) {
		t.Helper()
		if got, _ := w.ask(get("/")); got != want {
			t.Errorf("%s: on connection %s, want %s", what, got, want)
		}
		<-w.errs
		eventually(t, func() bool { w.f.pool.mu.Lock(); defer w.f.pool.mu.Unlock(); return w.f.pool.count > 0 })
	}
	step("the first", "0")
	step("the second", "0")
	w.generation = 6
	step("another generation", "1")
	w.generation = 5
	step("the old one", "0")
	w.rec.Tunnel = "tun_2"
	step("another tunnel", "2")
	w.rec.Tunnel = "tun_1"
	w.f.Retire("tun_1", 5)
	step("a retired one", "3")
	w.generation = 6
	step("one that was not", "1")
}

func eventually(t *testing.T, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen")
		}
		<-time.After(time.Millisecond)
	}
}

func TestNothingIsSentTwice(t *testing.T) {
	// The app answers one request on each connection as if it would go on, and closes when the second one is there.
	var seen atomic.Int64
	w := newWorld(t)
	w.raw(func(n int, nc net.Conn, r *bufio.Reader) {
		if _, ok := head(r); !ok {
			return
		}
		seen.Add(1)
		io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		if _, ok := head(r); ok {
			seen.Add(1)
		}
	})
	for _, test := range []struct {
		request string
		status  int
		seen    int64
	}{
		{get("/"), 200, 2}, // seen and dropped, and once more on a new connection
		{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi", 502, 1},
		{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 502, 1},
		{"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi", 502, 1},
	} {
		w.ask(get("/first"))
		eventually(t, func() bool {
			w.f.pool.mu.Lock()
			defer w.f.pool.mu.Unlock()
			for _, list := range w.f.pool.idle {
				list[0].idleSince = time.Now().Add(time.Hour) // fresh, however long the next request takes
			}
			return w.f.pool.count == 1
		})
		seen.Store(0)
		if body, resp := w.ask(test.request); resp.StatusCode != test.status || seen.Load() != test.seen {
			t.Errorf("%q: %d %q, seen %d times", test.request, resp.StatusCode, body, seen.Load())
		}
		w.f.Retire("tun_1", 5)
	}
}

func TestIdleConnectionsThatWereClosed(t *testing.T) {
	var posts atomic.Int64
	w := newWorld(t)
	closed := make(chan struct{}, 100)
	w.raw(func(n int, nc net.Conn, r *bufio.Reader) {
		h, ok := head(r)
		if !ok {
			return
		}
		if strings.HasPrefix(h, "POST") {
			posts.Add(1)
		}
		io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		nc.Close()
		closed <- struct{}{}
	})
	for i := range 30 {
		request := get("/")
		if i%2 == 0 {
			request = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
		}
		if body, resp := w.ask(request); resp.StatusCode != 200 || body != "ok" {
			t.Fatalf("request %d: %d %q", i, resp.StatusCode, body)
		}
		<-closed
		<-w.errs
	}
	if posts.Load() != 15 {
		t.Errorf("15 posts were seen %d times", posts.Load())
	}
}

func TestUnaskedBytesAreNobodysAnswer(t *testing.T) {
	w := newWorld(t)
	w.raw(func(n int, nc net.Conn, r *bufio.Reader) {
		for {
			if _, ok := head(r); !ok {
				return
			}
			fmt.Fprintf(nc, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngoodHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
		}
	})
	for range 5 {
		if got, _ := w.ask(get("/")); got != "good" {
			t.Errorf("got %q", got)
		}
		<-w.errs
	}
}

func TestPoolIsBoundedAndForgets(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.IdlePerKey = 2; c.IdleTimeout = 50 * time.Millisecond })
	var open atomic.Int64
	w.raw(func(n int, nc net.Conn, r *bufio.Reader) {
		open.Add(1)
		defer open.Add(-1)
		echoHead(n, nc, r)
	})
	done := make(chan struct{})
	for range 6 {
		go func() {
			w.ask(get("/"))
			done <- struct{}{}
		}()
	}
	for range 6 {
		<-done
	}
	eventually(t, func() bool { return open.Load() == 0 })
	w.f.pool.mu.Lock()
	defer w.f.pool.mu.Unlock()
	if w.f.pool.count != 0 || len(w.f.pool.idle) != 0 {
		t.Errorf("%d are left", w.f.pool.count)
	}
}
