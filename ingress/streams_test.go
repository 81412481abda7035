package ingress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"portreeve.dev/ingress/route"
)

// sockets is an app that answers each message in capitals.
func sockets(t testing.TB) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"chat"}, InsecureSkipVerify: r.Header.Get("Origin") == "", CompressionMode: websocket.CompressionContextTakeover})
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			kind, b, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if err := c.Write(r.Context(), kind, []byte(strings.ToUpper(string(b)))); err != nil {
				return
			}
		}
	}
}

func (w *world) socket(url string, headers ...string) (*websocket.Conn, *http.Response, error) {
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Add(headers[i], headers[i+1])
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c := w.client(false)
	c.Timeout = 0
	return websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: c, HTTPHeader: h, Subprotocols: []string{"chat"}})
}

func (w *world) opened(url string, headers ...string) *websocket.Conn {
	w.t.Helper()
	c, _, err := w.socket(url, headers...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.CloseNow() })
	return c
}

func say(t testing.TB, c *websocket.Conn, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
	if _, b, err := c.Read(ctx); err != nil || string(b) != strings.ToUpper(text) {
		t.Fatalf("%q, %v", b, err)
	}
}

// closed reads to the end and returns what the close frame said.
func closed(t testing.TB, c *websocket.Conn) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for {
		_, _, err := c.Read(ctx)
		var e websocket.CloseError
		if errors.As(err, &e) {
			return fmt.Sprintf("%d %s", e.Code, e.Reason)
		}
		if err != nil {
			return err.Error()
		}
	}
}

func TestWebSocketGoesThrough(t *testing.T) {
	w := newWorld(t)
	var seen http.Header
	app := sockets(t)
	w.app("sbx_a", func(rw http.ResponseWriter, r *http.Request) { seen = r.Header.Clone(); app(rw, r) })
	for _, base := range []string{"wss://" + hostA(w.https), "ws://" + hostA(w.http)} {
		c := w.opened(base+"/chat?portreeve_token="+token+"&room=1", "X-Custom", "1", "Origin", strings.Replace(base, "ws", "http", 1), "Authorization", "Bearer app")
		say(t, c, "hello")
		say(t, c, strings.Repeat("much more ", 100_000)[:32000])
		if c.Subprotocol() != "chat" || seen.Get("X-Custom") != "1" || seen.Get("Authorization") != "Bearer app" || seen.Get("Origin") != "http://localhost:3000" || seen.Get("X-Portreeve-Token") != "" {
			t.Errorf("%q, %v", c.Subprotocol(), seen)
		}
		if err := c.Close(websocket.StatusNormalClosure, "bye"); err != nil {
			t.Error(err)
		}
	}
}

func TestWebSocketWantsAccess(t *testing.T) {
	w := newWorld(t)
	w.app("sbx_a", sockets(t))
	u := "wss://" + hostA(w.https) + "/"
	a := w.do(w.client(false), "GET", "https://"+hostA(w.https)+"/?portreeve_token="+token)
	cookie, _, _ := strings.Cut(a.Header.Get("Set-Cookie"), ";")
	for name, test := range map[string]struct {
		headers []string
		status  int
	}{
		"nothing":                  {nil, 401},
		"the token":                {[]string{"X-Portreeve-Token", token}, 101},
		"the cookie":               {[]string{"Cookie", cookie, "Origin", "https://" + hostA(w.https)}, 101},
		"the cookie on a sibling":  {[]string{"Cookie", cookie, "Origin", "https://" + hostB(w.https)}, 403},
		"the cookie from http":     {[]string{"Cookie", cookie, "Origin", "http://" + hostA(w.https)}, 403},
		"the token from a sibling": {[]string{"X-Portreeve-Token", token, "Origin", "https://" + hostB(w.https)}, 403}, // by the app itself
	} {
		c, resp, err := w.socket(u, test.headers...)
		if resp == nil || resp.StatusCode != test.status || resp.Header.Get("Location") != "" {
			t.Errorf("%s: %v, %v", name, resp, err)
		}
		if err == nil {
			c.CloseNow()
		}
		if _, dials := w.boxes.counts(); name == "nothing" && dials != 0 && test.status == 401 && resp.Header.Get("X-Portreeve-Code") != "token_required" {
			t.Errorf("%s: %v", name, resp.Header)
		}
	}
}

func TestOpenStreamsEndWithTheirTunnel(t *testing.T) {
	for name, test := range map[string]struct {
		change func(w *world)
		want   string
	}{
		"expired": {func(w *world) {
			w.routes(w.b(func(r *route.Record) { r.ExpiresAt = time.Now().Add(100 * time.Millisecond) }))
		}, "1001 tunnel expired"},
		"deleted":   {func(w *world) { w.routes(w.b(func(r *route.Record) { r.State = route.Gone })) }, "1001 tunnel deleted"},
		"revoked":   {func(w *world) { w.routes(w.b(func(r *route.Record) { r.AuthEpoch++ })) }, "1008 access revoked"},
		"paused":    {func(w *world) { w.routes(w.b(paused)) }, "1012 sandbox paused"},
		"restarted": {func(w *world) { w.routes(w.b(func(r *route.Record) { r.Generation++ })) }, "1012 sandbox restarted"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			chat := sockets(t)
			w.app("sbx_b", func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/chat" {
					chat(rw, r)
					return
				}
				rw.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(rw, "data: 1\n\n")
				rw.(http.Flusher).Flush()
				<-r.Context().Done()
			})
			w.app("sbx_a", sockets(t))
			other := w.opened("wss://"+hostA(w.https)+"/", "X-Portreeve-Token", token)
			socket := w.opened("wss://" + hostB(w.https) + "/chat")
			say(t, socket, "hello")
			var events []io.ReadCloser
			for _, h2 := range []bool{false, true} {
				resp, err := w.client(h2).Get("https://" + hostB(w.https) + "/events")
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if b := make([]byte, 9); must(io.ReadFull(resp.Body, b)) != nil || string(b) != "data: 1\n\n" {
					t.Fatalf("%q", b)
				}
				events = append(events, resp.Body)
			}
			test.change(w)
			if got := closed(t, socket); got != test.want {
				t.Errorf("the socket was told %q, want %q", got, test.want)
			}
			for _, e := range events {
				if b, err := io.ReadAll(e); err == nil {
					t.Errorf("the event stream ended as if whole: %q", b)
				}
			}
			say(t, other, "still there")
			eventually(t, "the end of all streams", func() bool { return w.server.streams.Len("tun_b") == 0 })
		})
	}
}

func must(_ int, err error) error { return err }

func TestStreamsOutliveOtherChanges(t *testing.T) {
	w := newWorld(t)
	w.app("sbx_b", sockets(t))
	c := w.opened("wss://" + hostB(w.https) + "/")
	say(t, c, "hello")
	var others []route.Record
	for i := range 100 {
		others = append(others, w.record(route.NewSlug(), fmt.Sprint("x", i), 1, func(*route.Record) {}, nil))
	}
	w.routes(others...)
	for i := range others {
		others[i].State = route.Gone
	}
	w.routes(others...)
	w.routes(w.b(func(r *route.Record) { r.ExpiresAt = r.ExpiresAt.Add(time.Hour) }))
	say(t, c, "still there")
}

func TestServerTellsSocketsThatItStops(t *testing.T) {
	w := newWorld(t)
	w.app("sbx_b", sockets(t))
	c := w.opened("wss://" + hostB(w.https) + "/")
	say(t, c, "hello")
	w.stop()
	if got := closed(t, c); got != "1001 gateway stops" {
		t.Errorf("told %q", got)
	}
}

func TestHeldBodyOfAClientThatLeft(t *testing.T) {
	w := newWorld(t)
	w.app("sbx_b", echo)
	w.sleep("sbx_b", w.b(paused))
	w.boxes.set(func() { w.boxes.takes = 20 * time.Second })
	nc, err := tls.Dial("tcp", "127.0.0.1:"+w.https, &tls.Config{RootCAs: w.roots, ServerName: slugB + "-3000.tunnel.localhost"})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(nc, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 10\r\n\r\nhello", hostB(w.https))
	eventually(t, "the wake", func() bool { n, _ := w.boxes.counts(); return n == 1 })
	nc.Close()
	eventually(t, "the end of the hold, long before the wake's", func() bool { return w.server.flights.Parked() == 0 })
}
