package proxy

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// What carries a secret ends when the secret's grant does, in the middle of an answer and of a WebSocket; the rest goes on.
func TestWhatCarriesASecretEndsWithItsGrant(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		in := &injector{host: "good.test", value: "Bearer ours"}
		w := newWorld(t, allowGood, func(c *Config) { c.Injector, c.Timeouts.HalfClosed = in, 10*time.Millisecond })
		w.upstream("good.test", 443, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "" {
				chat().ServeHTTP(w, r)
				return
			}
			_, _ = io.WriteString(w, "begun\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}))
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		socket, _, err := websocket.Dial(ctx, "wss://good.test/v1/socket", &websocket.DialOptions{HTTPClient: w.client(false, w.orgCA.pool())})
		if err != nil {
			t.Fatal(err)
		}
		defer socket.CloseNow()
		client := w.client(h2, w.orgCA.pool())
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
		doomed, spared := stream("/v1/doomed"), stream("/other/spared") // the injector has nothing for the second
		w.flows.mu.Lock()
		w.flows.gone = map[string]bool{"sec_1": true}
		w.flows.mu.Unlock()
		w.tighten(allowGood)
		ended := make(chan error, 1)
		go func() { _, err := doomed.ReadByte(); ended <- err }()
		select {
		case err := <-ended:
			if err == nil || err == io.EOF {
				t.Errorf("h2 %v: the stream ended with %v", h2, err)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("h2 %v: the stream goes on", h2)
		}
		if _, _, err := socket.Read(ctx); err == nil || ctx.Err() != nil {
			t.Errorf("h2 %v: the WebSocket ended with %v", h2, err)
		}
		waitClosed(w, 2)
		w.recorder.mu.Lock()
		for _, d := range w.recorder.list {
			end, ok := w.recorder.closed[d.ID]
			if carried := len(d.Secrets) > 0; carried != ok || carried && end.Error != "revoked" {
				t.Errorf("h2 %v: %s: closed %v, %+v", h2, d.Path, ok, end)
			}
		}
		w.recorder.mu.Unlock()
		_ = spared
	}
}

// Idle connections that carried an older version of a secret are closed at the change, others are kept.
func TestIdleConnectionsOfAnOldSecretAreClosed(t *testing.T) {
	in := &injector{host: "good.test", value: "Bearer ours"}
	w := newWorld(t, allowGood, func(c *Config) { c.Injector = in })
	w.upstream("good.test", 443, echo())
	client := w.client(false, w.orgCA.pool())
	get := func(path string) {
		t.Helper()
		resp, err := client.Get("https://good.test" + path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	kept := func() (carrying, plain int) {
		w.flows.mu.Lock()
		defer w.flows.mu.Unlock()
		for _, f := range w.flows.live {
			switch {
			case f.Upstream && len(f.Secrets) > 0:
				carrying++
			case f.Upstream:
				plain++
			}
		}
		return carrying, plain
	}
	get("/v1/x")
	get("/other")
	w.decisions(2, true)
	w.proxy.Refresh()
	if carrying, plain := kept(); carrying != 1 || plain != 1 {
		t.Fatalf("kept: %d with the secret, %d without", carrying, plain)
	}
	in.version.Add(1)
	w.proxy.Refresh()
	if carrying, plain := kept(); carrying != 0 || plain != 1 {
		t.Errorf("after the change: %d with the old secret, %d without", carrying, plain)
	}
	get("/v1/x")
	if dials := w.dialer.dials(); len(dials) != 3 {
		t.Errorf("dialled %v", dials)
	}
}

// A kept connection is a flow with an address of its own, so that the floor and rules for addresses reach it, idle or not.
func TestKeptConnectionsAreFlows(t *testing.T) {
	for _, front := range fronts {
		w := newWorld(t, allowGood+","+allowClear)
		w.upstream(front.host, front.port, echo())
		conn := w.speak(front.host, front.port)
		defer conn.Close()
		r := bufio.NewReader(conn)
		ask := func() {
			t.Helper()
			_, _ = io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: "+front.host+"\r\n\r\n")
			if resp, body := readAnswer(t, r); resp.StatusCode != 200 {
				t.Fatal(resp.StatusCode, body)
			}
		}
		ask()
		w.decisions(1, true)
		var kept []Flow
		w.flows.mu.Lock()
		for _, f := range w.flows.live {
			if f.Upstream {
				kept = append(kept, f)
			}
		}
		w.flows.mu.Unlock()
		if len(kept) != 1 || kept[0].Remote.String() != "203.0.113.1:"+map[uint16]string{80: "80", 443: "443"}[front.port] || kept[0].Request.Path != "" || kept[0].Request.Host != front.host {
			t.Fatalf("%s: kept %+v", front.name, kept)
		}
		kept[0].Kill("floor_hard")
		ask() // on a new one
		if n := len(w.dialer.dials()); n != 2 {
			t.Errorf("%s: %d dials", front.name, n)
		}
	}
}
