package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// A tunnelled is an API with one sandbox, and the app behind its tunnel.
type tunnelled struct {
	*httptest.Server
	mu     sync.Mutex
	seen   []*http.Request
	closed bool // the tunnel was deleted
}

func newTunnelled(t *testing.T) *tunnelled {
	s := &tunnelled{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/sandboxes", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"sandboxes":[{"sandbox_id":"sbx_1","status":"running"}]}`)
	})
	mux.HandleFunc("POST /api/v1/sandbox/sbx_1/tunnels", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"id":"tun_1","sandbox_id":"sbx_1","url":"https://unused.test","http_url":%q,"token":"prt_canary"}`, s.origin())
	})
	mux.HandleFunc("DELETE /api/v1/sandbox/sbx_1/tunnels/tun_1", func(http.ResponseWriter, *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closed = true
	})
	mux.HandleFunc("/", s.app)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// origin is the tunnel's: its name is under localhost, which no resolver is asked for.
func (s *tunnelled) origin() string {
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	return "http://slug-8000.tunnel.localhost:" + port
}

func (s *tunnelled) app(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, r)
	s.mu.Unlock()
	switch r.URL.Path {
	case "/moved":
		w.Header().Set("Location", s.origin()+r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusFound)
	case "/ws":
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
		if err != nil {
			return
		}
		defer conn.CloseNow()
		kind, data, err := conn.Read(r.Context())
		if err == nil {
			conn.Write(r.Context(), kind, append([]byte("echo "), data...))
		}
	case "/events":
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: first\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		io.WriteString(w, "the app")
	}
}

// start runs portreeve forward 8000 and returns where it listens and what ends it.
func (s *tunnelled) start(t *testing.T) (local string, end func() int) {
	t.Helper()
	t.Setenv("PORTREEVE_URL", s.URL+"/api/v1")
	t.Setenv("PORTREEVE_KEY", testKey)
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, []string{"forward", "8000", "--listen", "127.0.0.1:0"}, strings.NewReader(""), w, io.Discard)
		w.Close()
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	end = sync.OnceValue(func() int {
		cancel()
		return <-done
	})
	t.Cleanup(func() { end() })
	return strings.TrimSpace(line), end
}

func TestForwardCarriesRequestsWithTheToken(t *testing.T) {
	s := newTunnelled(t)
	local, end := s.start(t)
	req, err := http.NewRequest("GET", local+"/path?q=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Origin", local)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != "the app" {
		t.Errorf("it said %q", body)
	}
	got := s.seen[0]
	if got.RequestURI != "/path?q=1" || "http://"+got.Host != s.origin() || got.Header.Get("X-Portreeve-Token") != "prt_canary" || got.Header.Get("Origin") != s.origin() {
		t.Errorf("what arrived: %s %s %v", got.Host, got.RequestURI, got.Header)
	}
	if code := end(); code != 0 || !s.closed {
		t.Errorf("it ended with %d, the tunnel was deleted: %v", code, s.closed)
	}
}

func TestForwardCarriesStreams(t *testing.T) {
	s := newTunnelled(t)
	local, _ := s.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, local+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if err := conn.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, data, err := conn.Read(ctx); err != nil || string(data) != "echo hello" {
		t.Errorf("the WebSocket said %q, %v", data, err)
	}
	req, _ := http.NewRequestWithContext(ctx, "GET", local+"/events", nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "data: first\n" {
		t.Errorf("the stream, which goes on, said %q, %v", line, err)
	}
}

// TestForwardStaysOnThisMachine: a page of another site that points its name here gets nothing, and no redirect leads astray.
func TestForwardStaysOnThisMachine(t *testing.T) {
	s := newTunnelled(t)
	local, _ := s.start(t)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(local, "http://"))
	for host, want := range map[string]int{
		"127.0.0.1:" + port: 200, "localhost:" + port: 200, "[::1]:" + port: 200, "LOCALHOST": 200,
		"rebound.test:" + port: 421, "localhost.rebound.test": 421, "127.0.0.1.rebound.test:" + port: 421,
	} {
		req, _ := http.NewRequest("GET", local+"/", nil)
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", host, resp.StatusCode, want)
		}
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for to, want := range map[string]string{"/x?y=1": "/x?y=1", "//evil.test/": s.origin() + "//evil.test/", "@evil.test/": s.origin() + "@evil.test/"} {
		resp, err := client.Get(local + "/moved?to=" + to)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Location"); got != want {
			t.Errorf("to %s: Location %q, want %q", to, got, want)
		}
	}
}

func TestTunnelsAnswerIsWhatTheAPISays(t *testing.T) {
	var got tunnel
	if err := json.Unmarshal([]byte(`{"id":"tun_1","url":"https://a.test","expires_at":"2026-12-01T12:00:00Z"}`), &got); err != nil || got.best() != "https://a.test" {
		t.Errorf("without plain HTTP: %+v, %v", got, err)
	}
}
