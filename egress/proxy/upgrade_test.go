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
)

// chat is a WebSocket server that answers each message.
func chat() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			kind, b, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if err := c.Write(r.Context(), kind, append([]byte("got "), b...)); err != nil {
				return
			}
		}
	})
}

// B71: WebSockets work both ways, in the clear and opened, and are judged as what they begin as: a GET.
func TestWebSocket(t *testing.T) {
	for _, target := range []string{"ws://clear.test/x", "wss://good.test/x"} {
		w := newWorld(t, allowGood+","+allowClear)
		w.upstream("good.test", 443, chat())
		w.upstream("clear.test", 80, chat())
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		c, resp, err := websocket.Dial(ctx, target, &websocket.DialOptions{HTTPClient: w.client(false, w.orgCA.pool())})
		if err != nil {
			t.Fatal(err, resp)
		}
		for i := range 3 {
			if err := c.Write(ctx, websocket.MessageText, fmt.Append(nil, i)); err != nil {
				t.Fatal(err)
			}
			if _, b, err := c.Read(ctx); err != nil || string(b) != fmt.Sprint("got ", i) {
				t.Fatalf("got %q, %v", b, err)
			}
		}
		if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
			t.Error(err)
		}
		cancel()
		d, end := w.decided()
		if d.Method != "GET" || d.Path != "/x" || end.Status != 101 || end.BytesIn == 0 || end.BytesOut == 0 || end.Error != "" {
			t.Errorf("decision %+v, end %+v", d, end)
		}
	}
}

func TestWebSocketIsJudged(t *testing.T) {
	w := newWorld(t, allowAPI)
	w.upstream("api.test", 443, chat())
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	opts := &websocket.DialOptions{HTTPClient: w.client(false, w.orgCA.pool())}
	c, _, err := websocket.Dial(ctx, "wss://api.test/v1/x", opts)
	if err != nil {
		t.Fatal(err)
	}
	c.CloseNow()
	_, resp, err := websocket.Dial(ctx, "wss://api.test/v2/x", opts)
	if err == nil || resp.StatusCode != 403 {
		t.Errorf("got %v", err)
	}
	if dials := w.dialer.dials(); len(dials) != 1 {
		t.Errorf("dialled %v", dials)
	}
}

// B70, B71: nothing but a WebSocket leaves HTTP.
func TestOtherUpgradesAreRemoved(t *testing.T) {
	for _, upgrade := range []string{"h2c", "websocket, h2c", "TLS/1.0", "foo"} {
		w := newWorld(t, allowClear)
		w.upstream("clear.test", 80, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.Header["Upgrade"], r.Header["Connection"], r.Header["Http2-Settings"])
		}))
		conn := w.speak("clear.test", 80)
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: clear.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: %s\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", upgrade)
		if resp, body := readAnswer(t, bufio.NewReader(conn)); resp.StatusCode != 200 || body != "[] [] []" && body != "[][][]" {
			t.Errorf("%s: %d %q", upgrade, resp.StatusCode, body)
		}
		conn.Close()
	}
	// A POST is no WebSocket either, and an upstream that switches all the same is cut off.
	w := newWorld(t, allowClear)
	w.upstream("clear.test", 80, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header["Upgrade"]) }))
	conn := w.speak("clear.test", 80)
	defer conn.Close()
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: clear.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n")
	if _, body := readAnswer(t, bufio.NewReader(conn)); !strings.Contains(body, "[]") {
		t.Errorf("upstream saw %q", body)
	}
}

// What comes behind the asking for a WebSocket, before the answer, is read as a request: what can be none ends the connection, and
// nothing of it, or of ours in its place, reaches the upstream.
func TestEarlyFramesGoNowhere(t *testing.T) {
	w := newWorld(t, allowClear)
	seen := make(chan string, 1)
	w.serveTCP("clear.test", 80, func(nc *net.TCPConn) {
		r := bufio.NewReader(nc)
		if _, err := http.ReadRequest(r); err != nil {
			seen <- err.Error()
			return
		}
		fmt.Fprint(nc, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		rest, _ := io.ReadAll(r)
		seen <- string(rest)
	})
	got := exchangeRaw(t, w.connect("clear.test", 80), "GET /x HTTP/1.1\r\nHost: clear.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x05hello")
	if rest := <-seen; rest != "" || got != "" {
		t.Errorf("the upstream got %q, the client %q", rest, got)
	}
	w.refusedLater("parse_error", 101)
}
