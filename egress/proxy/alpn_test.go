package proxy

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// onlyHTTP1 starts an upstream that speaks no HTTP/2, and of which nothing is known.
func (w *world) onlyHTTP1(name string, h http.Handler) *httptest.Server {
	w.t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = discardLog()
	s.TLS = &tls.Config{Certificates: []tls.Certificate{*w.realCA.leaf(w.t, name)}}
	s.StartTLS()
	w.t.Cleanup(s.Close)
	w.dialer.serve(name, 443, s.Listener.Addr().String())
	return s
}

// negotiated is what a client that offers all of that is offered.
func (w *world) negotiated(name string, offer ...string) (string, error) {
	w.t.Helper()
	conn, err := w.handshake(name, &tls.Config{ServerName: name, RootCAs: w.orgCA.pool(), NextProtos: offer})
	if err != nil {
		return "", err
	}
	conn.Close()
	return conn.ConnectionState().NegotiatedProtocol, nil
}

// B78: HTTP/2 is offered if the upstream has it.
func TestALPNIsTheUpstreams(t *testing.T) {
	now := time.Now()
	w := newWorld(t, allowGood+`,{"id": "old", "action": "allow", "hosts": ["other.test"], "tls": "inspect"}`, func(c *Config) { c.Now = func() time.Time { return now } })
	w.stranger("good.test", 443, echo())
	w.onlyHTTP1("other.test", echo())
	for _, tt := range []struct {
		host  string
		offer []string
		want  string
		dials int // of all so far
	}{
		{"good.test", []string{"http/1.1"}, "http/1.1", 0}, // nothing to ask
		{"good.test", nil, "", 0},
		{"good.test", []string{"h2", "http/1.1"}, "h2", 1},
		{"good.test", []string{"h2"}, "h2", 1}, // known
		{"other.test", []string{"h2", "http/1.1"}, "http/1.1", 2},
		{"other.test", []string{"h2", "http/1.1"}, "http/1.1", 2},
	} {
		if got, err := w.negotiated(tt.host, tt.offer...); got != tt.want || err != nil {
			t.Errorf("%s, offering %v: %q, %v", tt.host, tt.offer, got, err)
		}
		if n := len(w.dialer.dials()); n != tt.dials {
			t.Errorf("%s, offering %v: %d dials, want %d", tt.host, tt.offer, n, tt.dials)
		}
	}
	if got, err := w.negotiated("other.test", "h2"); err == nil {
		t.Errorf("HTTP/2 or nothing, where there is none: %q", got)
	}
	// What was learnt is forgotten, and belongs to one org and one port.
	now = now.Add(rememberedFor)
	if got, _ := w.negotiated("other.test", "h2", "http/1.1"); got != "http/1.1" || len(w.dialer.dials()) != 3 {
		t.Errorf("later: %q, dialled %v", got, w.dialer.dials())
	}
	for _, k := range []memoryKey{{org: "org_2", host: "other.test", port: 443}, {org: testOrg, host: "other.test", port: 8443}} {
		if _, known := w.proxy.memory.get(k); known {
			t.Errorf("%+v is known", k)
		}
	}
}

// An ask is a use of the verdict: recorded first, under the floor and the rules for addresses.
func TestUpstreamIsAskedUnderARecord(t *testing.T) {
	w := newWorld(t, allowGood)
	w.dialer.recorder = w.recorder
	w.stranger("good.test", 443, echo())
	client := w.client(true, w.orgCA.pool())
	resp, err := client.Get("https://good.test/x")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.ProtoMajor != 2 || !slices.Equal(w.dialer.recorded, []int{1}) {
		t.Errorf("%s; decisions at the dials: %v", resp.Proto, w.dialer.recorded)
	}
	list := w.decisions(2, true) // the request took the connection that was asked on
	w.recorder.mu.Lock()
	if d := list[0]; d.Layer != layerConnect || d.Level != levelSNI || d.Rule != "good" || w.recorder.closed[d.ID].Addr.String() != "203.0.113.1" {
		t.Errorf("the ask: %+v, %+v", d, w.recorder.closed[d.ID])
	}
	w.recorder.mu.Unlock()

	w = newWorld(t, allowGood)
	w.stranger("good.test", 443, echo())
	w.recorder.fail(errors.New("disk full"))
	if _, err := w.negotiated("good.test", "h2"); err == nil || len(w.dialer.dials()) != 0 {
		t.Errorf("not recorded: %v, dialled %v", err, w.dialer.dials())
	}

	w = newWorld(t, allowGood+`,{"id": "not", "action": "deny", "cidrs": ["203.0.113.66/32"]}`)
	w.stranger("good.test", 443, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request arrived") }))
	w.dialer.addrs["good.test"] = netip.MustParseAddr("203.0.113.66")
	resp, err = w.client(true, w.orgCA.pool()).Get("https://good.test/x")
	if err != nil {
		t.Fatal(err)
	}
	if p := problemIn(t, resp); p.Reason != "rule_denied" || resp.ProtoMajor != 2 {
		t.Errorf("answer %+v", p) // who can't be asked is offered both, so that every client hears why
	}
}

// What was asked on serves the first request only if its address is still allowed, and a WebSocket needs HTTP/1.
func TestKeptConnectionIsJudgedAgain(t *testing.T) {
	w := newWorld(t, allowGood)
	w.stranger("good.test", 443, echo())
	conn, err := w.handshake("good.test", &tls.Config{ServerName: "good.test", RootCAs: w.orgCA.pool(), NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	w.policies.Set(t, allowGood+`,{"id": "not", "action": "deny", "cidrs": ["203.0.113.1/32"]}`)
	h2, err := (&http2.Transport{}).NewClientConn(conn)
	if err != nil {
		t.Fatal(err)
	}
	defer h2.Close()
	r, _ := http.NewRequest("GET", "https://good.test/x", nil)
	resp, err := h2.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if p := problemIn(t, resp); p.Reason != "rule_denied" || len(w.dialer.dials()) != 2 {
		t.Errorf("answer %+v, dialled %v", p, w.dialer.dials())
	}
	w.flows.mu.Lock()
	defer w.flows.mu.Unlock()
	for _, f := range w.flows.live {
		if f.Upstream {
			t.Errorf("the connection is still open: %+v", f)
		}
	}
}

// RFC 8441 is not offered: a WebSocket is one over HTTP/1, and clients fall back to it by themselves.
func TestWebSocketOverH2IsNotOffered(t *testing.T) {
	w := newWorld(t, allowGood)
	w.upstream("good.test", 443, echo())
	conn, err := w.handshake("good.test", &tls.Config{ServerName: "good.test", RootCAs: w.orgCA.pool(), NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		settings, ok := f.(*http2.SettingsFrame)
		if !ok || settings.IsAck() {
			continue
		}
		if v, ok := settings.Value(http2.SettingEnableConnectProtocol); ok && v != 0 {
			t.Error("extended CONNECT is offered")
		}
		return
	}
}

// What an upstream said under a clock that was ahead is asked again once that is set right, not believed until then.
func TestMemoryOfAClockAheadIsNotBelieved(t *testing.T) {
	right := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	now := right
	m, err := newMemory(func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	k := memoryKey{about: speaksECH, org: testOrg, host: "good.test", port: 443}
	m.put(k, false)
	if _, known := m.get(k); !known {
		t.Error("what was just learnt is not known")
	}
	now = right.Add(time.Hour)
	m.put(k, false)
	now = right
	if _, known := m.get(k); known {
		t.Error("what was learnt an hour ahead is believed")
	}
}
