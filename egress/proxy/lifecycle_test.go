package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"portreeve.dev/egress"
	"portreeve.dev/egress/egresstest"
)

// A tightened policy ends what it no longer allows, and nothing else.
func TestTightenedPolicyEndsFlows(t *testing.T) {
	all := strings.Join([]string{allowGood, allowClear, allowRaw, allowPass}, ",")
	w := newWorld(t, all)
	streaming := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begun\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	w.upstream("good.test", 443, streaming)
	w.upstream("clear.test", 80, chat())
	w.serveTCP("raw.test", 9000, greet)

	relay := w.connect("raw.test", 9000)
	if _, err := io.ReadFull(relay, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	socket, _, err := websocket.Dial(ctx, "ws://clear.test/", &websocket.DialOptions{HTTPClient: w.client(false, nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.CloseNow()
	client := w.client(true, w.orgCA.pool())
	stream := func(path string) *bufio.Reader {
		t.Helper()
		resp, err := client.Get("https://good.test" + path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		r := bufio.NewReader(resp.Body)
		if line, err := r.ReadString('\n'); err != nil {
			t.Fatal(line, err)
		}
		return r
	}
	doomed, spared := stream("/doomed"), stream("/spared")

	w.tighten(strings.Replace(allowGood, `"hosts"`, `"paths": ["/spared"], "hosts"`, 1))
	ended := make(chan error, 1)
	go func() { _, err := doomed.ReadByte(); ended <- err }()
	select {
	case err := <-ended:
		if err == nil || errors.Is(err, io.EOF) {
			t.Errorf("the doomed stream ended with %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the doomed stream goes on")
	}
	relay.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.ReadAll(relay); !isReset(err) {
		t.Errorf("the relay ended with %v", err)
	}
	if _, _, err := socket.Read(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("the WebSocket ended with %v", err)
	}
	waitClosed(w, 3)
	w.recorder.mu.Lock()
	for _, d := range w.recorder.list {
		end, ok := w.recorder.closed[d.ID]
		if d.Path == "/spared" && ok || d.Path != "/spared" && end.Error != "revoked" {
			t.Errorf("%s %s%s: closed %v, %+v", d.Protocol, d.Host, d.Path, ok, end)
		}
	}
	w.recorder.mu.Unlock()
	_ = spared
}

// waitClosed waits until n decisions are closed.
func waitClosed(w *world, n int) {
	w.t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		w.recorder.mu.Lock()
		got, changed := len(w.recorder.closed), w.recorder.changed
		w.recorder.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			w.t.Fatalf("%d decisions closed after 10 s, want %d", got, n)
		}
	}
}

func TestFlowCapRefusesConnections(t *testing.T) {
	w := newWorld(t, allowRaw)
	w.serveTCP("raw.test", 9000, greet)
	first := w.connect("raw.test", 9000)
	if _, err := io.ReadFull(first, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	w.flows.mu.Lock()
	w.flows.limit = 1
	w.flows.mu.Unlock()
	second := w.connect("raw.test", 9000)
	second.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := second.Read(make([]byte, 1)); !isReset(err) {
		t.Errorf("got %v, want a reset", err)
	}
	if d := w.decisions(2, false)[1]; d.Reason != "budget" || d.Host != "raw.test" {
		t.Errorf("decision %+v", d)
	}
	first.Close()
}

// B74: whoever is silent or slow is closed. A limit is short where nothing has to happen within it.
func TestDeadlines(t *testing.T) {
	short := func(send string) func(*Config) {
		return func(c *Config) {
			c.Timeouts.Head, c.Timeouts.Idle = time.Second, time.Second
			if !strings.HasPrefix(send, "GET") && !strings.HasPrefix(send, "POST") {
				c.Timeouts.Hello = 60 * time.Millisecond
			}
		}
	}
	tests := []struct {
		name, host string
		port       uint16
		send       string
		decisions  int
	}{
		{"silent on 443", "pass.test", 443, "", 1},
		{"half a hello", "pass.test", 443, "\x16\x03\x01\x02\x00\x01", 1},
		{"silent on 80", "clear.test", 80, "", 1},
		{"silent and denied", "evil.test", 80, "", 1},
		{"half a head", "clear.test", 80, "GET / HTTP/1.1\r\nHost", 0},
		{"half a second head", "clear.test", 80, "GET / HTTP/1.1\r\nHost: clear.test\r\n\r\nGET", 1},
		{"silent behind a request", "clear.test", 80, "GET / HTTP/1.1\r\nHost: clear.test\r\n\r\n", 1},
		{"half a body", "clear.test", 80, "POST / HTTP/1.1\r\nHost: clear.test\r\nContent-Length: 100\r\n\r\nhalf", 1},
		{"an idle relay", "raw.test", 9000, "x", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, strings.Join([]string{allowClear, allowRaw, allowPass}, ","), short(tt.send))
			w.upstream("clear.test", 80, echo())
			w.serveTCP("raw.test", 9000, greet)
			nc := w.connect(tt.host, tt.port)
			_, _ = io.WriteString(nc, tt.send)
			nc.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := io.ReadAll(nc); isTimeout(err) {
				t.Error("still open after 5 s")
			}
			nc.Close()
			w.decisions(tt.decisions, true)
		})
	}
}

// The limit is on silence, not on length, and a WebSocket has one of its own.
func TestIdleWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w idleWatch
		var live egress.Live
		expired := make(chan time.Time, 1)
		begun := time.Now()
		w.start(&live, time.Minute, func() { expired <- time.Now() })
		for range 5 { // something moves every fifty seconds
			<-time.After(50 * time.Second)
			live.Moved()
		}
		w.extend(time.Hour)
		if got := (<-expired).Sub(begun); got != 250*time.Second+time.Hour {
			t.Errorf("expired after %v", got)
		}
		w.start(&live, time.Minute, func() { t.Error("expired after it was stopped") })
		w.stop()
		<-time.After(2 * time.Minute)
	})
}

// What moves either way keeps a connection alive; what moves nothing does not.
func TestBytesEitherWayKeepAlive(t *testing.T) {
	const limit = time.Minute
	for name, c := range map[string]struct {
		write, read int // bytes to the sandbox and from it, every fifty seconds
		expires     time.Duration
	}{
		"to the sandbox": {1, 0, 250*time.Second + limit},
		"from it":        {0, 1, 250*time.Second + limit},
		"nothing":        {0, 0, limit},
	} {
		synctest.Test(t, func(t *testing.T) {
			sandbox, nc := net.Pipe()
			defer sandbox.Close()
			defer nc.Close()
			owner := &connection{ctx: t.Context(), meter: unmetered{}, watch: new(idleWatch)}
			client := &clientConn{Conn: nc, owner: owner}
			expired := make(chan time.Time, 1)
			begun := time.Now()
			owner.watch.start(&owner.live, limit, func() { expired <- time.Now() })
			move := func(from, to net.Conn, n int) {
				go func() { _, _ = from.Write(make([]byte, n)) }()
				if got, err := to.Read(make([]byte, 1)); got != n || err != nil {
					t.Errorf("%s: read %d bytes, want %d: %v", name, got, n, err)
				}
				synctest.Wait() // until the writer knows
			}
			for range 5 {
				<-time.After(50 * time.Second)
				move(client, sandbox, c.write)
				move(sandbox, client, c.read)
			}
			if got := (<-expired).Sub(begun); got != c.expires {
				t.Errorf("%s: expired after %v, want %v", name, got, c.expires)
			}
		})
	}
}

func TestWebSocketHasItsOwnIdleLimit(t *testing.T) {
	w := newWorld(t, allowClear)
	w.upstream("clear.test", 80, chat())
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "ws://clear.test/", &websocket.DialOptions{HTTPClient: w.client(false, nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	w.proxy.mu.Lock()
	defer w.proxy.mu.Unlock()
	for live := range w.proxy.live {
		if d := time.Duration(live.watch.limit.Load()); d != time.Hour {
			t.Errorf("limit %v", d)
		}
	}
}

func TestAcceptSurvivesRunningOutOfDescriptors(t *testing.T) {
	ln := egresstest.NewWire(t)
	for range 3 {
		ln.FailAccept(&net.OpError{Op: "accept", Err: syscall.EMFILE})
	}
	w := newWorld(t, allowRaw)
	w.serveTCP("raw.test", 9000, greet)
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { served <- w.proxy.Serve(ctx, ln) }()
	nc := ln.Dial(t, sandboxAddr, addrPort(&net.TCPAddr{IP: w.addrOf("raw.test").AsSlice(), Port: 9000}))
	if got := exchangeRaw(t, nc, "x"); got != "server first\ngot x" {
		t.Errorf("got %q", got)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestShutdownLetsEndWhatIsUnderWay(t *testing.T) {
	w := newWorld(t, allowClear+","+allowRaw)
	release, begun := make(chan struct{}), make(chan struct{})
	w.upstream("clear.test", 80, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-release
		fmt.Fprint(w, "done")
	}))
	w.serveTCP("raw.test", 9000, greet)
	relay := w.connect("raw.test", 9000)
	if _, err := io.ReadFull(relay, make([]byte, len("server first\n"))); err != nil {
		t.Fatal(err)
	}
	conn := w.speak("clear.test", 80)
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: clear.test\r\n\r\n")
	<-begun
	ended := make(chan error, 1)
	go func() { ended <- w.proxy.Shutdown(context.Background()) }()
	close(release)
	if _, body := readAnswer(t, bufio.NewReader(conn)); body != "done" {
		t.Errorf("got %q", body)
	}
	if got := exchangeRaw(t, relay, "x"); got != "got x" {
		t.Errorf("got %q", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := w.proxy.Serve(context.Background(), egresstest.NewWire(t)); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("serving afterwards: %v", err)
	}
}

// What was accepted just before a shutdown and comes to be served just after is reset: a clean end would be taken for an answer.
func TestShutdownResetsWhatComesLate(t *testing.T) {
	w := newWorld(t, allowRaw)
	w.serveTCP("raw.test", 9000, greet)
	ln, served := egresstest.NewWire(t), make(chan error, 1)
	go func() { served <- w.proxy.Serve(context.Background(), ln) }()
	relay := ln.Dial(t, sandboxAddr, netip.AddrPortFrom(w.addrOf("raw.test"), 9000))
	if _, err := io.ReadFull(relay, make([]byte, len("server first\n"))); err != nil {
		t.Fatal(err)
	}
	other := egresstest.NewWire(t)
	late := other.Dial(t, sandboxAddr, netip.AddrPortFrom(w.addrOf("raw.test"), 9000))
	accepted, err := other.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- w.proxy.Shutdown(context.Background()) }()
	if err := <-served; err != nil { // the shutdown has begun
		t.Error(err)
	}
	w.proxy.serve(accepted)
	late.SetReadDeadline(time.Now().Add(5 * time.Second))
	if n, err := late.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("who comes late read %d bytes and %v, want a reset", n, err)
	}
	if got := exchangeRaw(t, relay, "x"); got != "got x" {
		t.Errorf("who came before got %q", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	w.decisions(1, true)
}

func TestShutdownCutsWhatDoesNotEnd(t *testing.T) {
	w := newWorld(t, allowRaw)
	w.serveTCP("raw.test", 9000, greet)
	relay := w.connect("raw.test", 9000)
	if _, err := io.ReadFull(relay, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := w.proxy.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if _, end := w.decided(); end.Error != "shutdown" {
		t.Errorf("end %+v", end)
	}
}

func TestLocalHost(t *testing.T) {
	local := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := BindingOf(r.Context())
		fmt.Fprint(w, b.Sandbox, " ", r.URL.Path)
	})
	w := newWorld(t, allowGood, func(c *Config) { c.Self = local })
	w.policies.Fail(ErrStalePolicy) // it answers also while nothing may leave
	tests := []struct {
		name, head string
		status     int
	}{
		{"asked properly", "Host: portreeve.internal\r\nX-Portreeve-Self: 1\r\n", 200},
		{"with the port", "Host: Portreeve.internal:80\r\nX-Portreeve-Self: 1\r\n", 200},
		{"without the header", "Host: portreeve.internal\r\n", 403},
		{"with another value", "Host: portreeve.internal\r\nX-Portreeve-Self: 2\r\n", 403},
		{"under another name", "Host: rebound.test\r\nX-Portreeve-Self: 1\r\n", 421},
		{"by its address", "Host: 198.18.255.1\r\nX-Portreeve-Self: 1\r\n", 421},
	}
	for _, tt := range tests {
		nc := w.connect(selfAddr.String(), 80)
		fmt.Fprintf(nc, "GET /me HTTP/1.1\r\n%s\r\n", tt.head)
		resp, body := readAnswer(t, bufio.NewReader(nc))
		if resp.StatusCode != tt.status || tt.status == 200 && body != "sbx_1 /me" {
			t.Errorf("%s: %d %s", tt.name, resp.StatusCode, body)
		}
		nc.Close()
	}
	for head, status := range map[string]int{"GET /ca/0a.crl": 200, "POST /ca/0a.crl": 403, "GET /ca/../reach": 403, "GET /ca.pem": 403} {
		nc := w.connect(selfAddr.String(), 80)
		fmt.Fprintf(nc, "%s HTTP/1.1\r\nHost: portreeve.internal\r\nContent-Length: 0\r\n\r\n", head)
		if resp, body := readAnswer(t, bufio.NewReader(nc)); resp.StatusCode != status && (status == 200 || resp.StatusCode < 400) {
			t.Errorf("%s without the header: %d %s", head, resp.StatusCode, body)
		}
		nc.Close()
	}
	if got := exchangeRaw(t, w.connect(selfAddr.String(), 443), "x"); got != "" {
		t.Errorf("port 443: %q", got)
	}
	if d, _ := w.decided(); d.Host != SelfHost || d.Verdict != "deny" {
		t.Errorf("decision %+v", d)
	}
	if dials := w.dialer.dials(); len(dials) > 0 {
		t.Errorf("dialled %v", dials)
	}
}
