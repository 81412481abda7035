package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
)

// counter is a Meter that counts, and lets nothing splice if it is told so.
type counter struct {
	in, out, pipes, most atomic.Int64
	byHand               bool
}

func (c *counter) Meter(egress.Binding) Meter   { return c }
func (c *counter) In(_ context.Context, n int)  { c.in.Add(int64(n)); c.seen(n) }
func (c *counter) Out(_ context.Context, n int) { c.out.Add(int64(n)); c.seen(n) }
func (c *counter) Chunk(most int64) int64       { return min(most, 100<<10) }
func (c *counter) Pipes() (done func(), ok bool) {
	if c.byHand {
		return nil, false
	}
	c.pipes.Add(1)
	return func() { c.pipes.Add(-1) }, true
}

func (c *counter) seen(n int) {
	for {
		most := c.most.Load()
		if int64(n) <= most || c.most.CompareAndSwap(most, int64(n)) {
			return
		}
	}
}

// Whatever way bytes take, each is counted once, and no more at once than the meter lets.
func TestEachByteIsMetered(t *testing.T) {
	const size = 3 << 20
	for _, byHand := range []bool{false, true} {
		m := &counter{byHand: byHand}
		w := newWorld(t, allowRaw+","+allowPass+","+allowGood+","+allowClear, func(c *Config) { c.Meters = m })
		w.serveTCP("raw.test", 9000, func(nc *net.TCPConn) { _, _ = io.Copy(nc, nc) })
		body := strings.Repeat("x", size)
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, _ := io.Copy(io.Discard, r.Body)
			w.Header().Set("Got", fmt.Sprint(n))
			_, _ = io.WriteString(w, body)
		})
		for host, port := range map[string]uint16{"good.test": 443, "clear.test": 80, "pass.test": 443} {
			w.upstream(host, port, h)
		}
		nc := w.connect("raw.test", 9000)
		go func() { _, _ = io.WriteString(nc, body); _ = nc.CloseWrite() }()
		if n, err := io.Copy(io.Discard, nc); n != size || err != nil {
			t.Fatal(n, err)
		}
		closed := 1
		waitClosed(w, closed)
		if in, out := m.in.Load(), m.out.Load(); in != size || out != size {
			t.Errorf("by hand %v: the relay of %d counts %d in and %d out", byHand, size, in, out)
		}
		if most := m.most.Load(); most > 100<<10 {
			t.Errorf("%d at once", most)
		}
		if m.pipes.Load() != 0 {
			t.Errorf("%d pipes are kept", m.pipes.Load())
		}
		for _, url := range []string{"https://good.test/", "http://clear.test/", "https://pass.test/"} {
			m.in.Store(0)
			m.out.Store(0)
			roots := w.orgCA.pool()
			if url == "https://pass.test/" {
				roots = w.realCA.pool()
			}
			client := w.client(false, roots)
			resp, err := client.Post(url, "text/plain", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil || resp.Header.Get("Got") != fmt.Sprint(size) {
				t.Fatal(url, n, err, resp.Header)
			}
			resp.Body.Close()
			closed++
			client.CloseIdleConnections()
			waitClosed(w, closed)
			// With heads and what TLS adds: 2 % at most.
			if in, out := m.in.Load(), m.out.Load(); in < size || in > size+size/50 || out < size || out > size+size/50 {
				t.Errorf("%s: %d in and %d out of %d", url, in, out, size)
			}
		}
	}
}

// A quota that is used up is told in the client's own protocol, and the connection that tells it counts.
func TestQuotaIsTold(t *testing.T) {
	w := newWorld(t, allowGood+","+allowClear+","+allowRaw)
	limit := policies.Denied(policies.ReasonQuota)
	limit.Message = "All 5 bytes are used up."
	w.flows.mu.Lock()
	w.flows.full = &LimitError{limit}
	w.flows.mu.Unlock()
	conn := w.connect("clear.test", 80)
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: clear.test\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if p := problemIn(t, resp); resp.StatusCode != http.StatusForbidden || p.Reason != "quota" || p.Guidance != limit.Message {
		t.Errorf("%d %+v", resp.StatusCode, p)
	}
	if _, err := w.handshake("good.test", &tls.Config{ServerName: "good.test", RootCAs: w.orgCA.pool()}); err == nil || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("TLS: %v", err)
	}
	raw := w.connect("raw.test", 9000)
	raw.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := raw.Read(make([]byte, 1)); !isReset(err) {
		t.Errorf("a relay: %v", err)
	}
	for _, d := range w.decisions(3, false) {
		if d.Verdict != "deny" || d.Reason != "quota" || d.Guidance != limit.Message {
			t.Errorf("recorded %+v", d)
		}
	}
	if len(w.dialer.dials()) > 0 {
		t.Errorf("dialled %v", w.dialer.dials())
	}
}

// An org without descriptors has its idle upstream connections closed before anything is refused.
func TestIdleUpstreamsMakeRoom(t *testing.T) {
	w := newWorld(t, allowGood+","+allowClear+","+allowRaw)
	var mu sync.Mutex
	open := 0
	w.upstream("good.test", 443, echo())
	w.upstream("clear.test", 80, echo())
	for _, port := range []uint16{9000, 5432} {
		w.serveTCP("raw.test", port, func(nc *net.TCPConn) { _, _ = io.Copy(nc, nc) })
	}
	w.dialer.limit = func() (func(), error) {
		mu.Lock()
		defer mu.Unlock()
		if open >= 2 {
			return nil, &RefusedError{Verdict: policies.Denied(policies.ReasonBudget)}
		}
		open++
		return func() { mu.Lock(); defer mu.Unlock(); open-- }, nil
	}
	getStatus(w, "https://good.test/")
	getStatus(w, "http://clear.test/")
	// An upstream connection is idle a moment after its answer was read.
	hold := func(port uint16) *net.TCPConn {
		t.Helper()
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
			nc := w.connect("raw.test", port)
			nc.SetDeadline(time.Now().Add(5 * time.Second))
			_, _ = io.WriteString(nc, "x")
			if _, err := io.ReadFull(nc, make([]byte, 1)); err == nil {
				return nc
			}
			nc.Close()
		}
		t.Fatal("no room beside idle upstream connections")
		return nil
	}
	relay := hold(9000)
	getStatus(w, "http://clear.test/")
	second := hold(5432)
	// With two that are busy there is no room: refused with the reason, and in the record.
	conn := w.connect("clear.test", 80)
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: clear.test\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if p := problemIn(t, resp); p.Reason != "budget" {
		t.Errorf("%d %+v", resp.StatusCode, p)
	}
	relay.Close()
	for end := time.Now().Add(5 * time.Second); getStatus(w, "http://clear.test/") != "200"; {
		if time.Now().After(end) {
			t.Fatal("one was given back, and there is still no room")
		}
	}
	second.Close()
}
