package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/policies"
)

// refusedLater returns the denial of what was allowed first, and checks that both are recorded as what they are.
func (w *world) refusedLater(reason string, status int) decisions.Decision {
	w.t.Helper()
	list := w.decisions(2, true)
	w.recorder.mu.Lock()
	defer w.recorder.mu.Unlock()
	allowed, denied := list[0], list[1]
	if end := w.recorder.closed[allowed.ID]; allowed.Verdict != "allow" || end.Error != reason || end.Status != status {
		w.t.Errorf("%+v ended as %+v, want the error %s", allowed, end, reason)
	}
	if denied.Verdict != "deny" || denied.Reason != reason || denied.Guidance == "" || denied.Time.Before(allowed.Time) {
		w.t.Errorf("the refusal is recorded as %+v, want the reason %s", denied, reason)
	}
	if denied.Flow != allowed.Flow || denied.Host != allowed.Host || denied.Method != allowed.Method || denied.Path != allowed.Path {
		w.t.Errorf("it is about something else: %+v", denied)
	}
	return denied
}

// What is refused after its head was allowed is a denial, and the answer names it.
func TestRefusalAfterAllowIsADenial(t *testing.T) {
	const head = "POST /x HTTP/1.1\r\nHost: NAME\r\nTransfer-Encoding: chunked\r\n\r\n"
	trailers := strings.Repeat("A: "+strings.Repeat("b", 1000)+"\r\n", 70)
	tests := []struct {
		name, body, reason string
		status             int
	}{
		{"a spaced chunk size", "5 \r\nhello\r\n0\r\n\r\n", "parse_error", 400},
		{"a hexadecimal sign", "0x5\r\nhello\r\n0\r\n\r\n", "parse_error", 400},
		{"a chunk that goes on", "5\r\nhelloX0\r\n\r\n", "parse_error", 400},
		{"a later chunk", "5\r\nhello\r\n-1\r\n", "parse_error", 400},
		{"long trailers", "5\r\nhello\r\n0\r\n" + trailers + "\r\n", "parse_error", 400}, // net/http bounds them lower than the guard
		{"none", "5\r\nhello\r\n0\r\n\r\n", "", 200},
	}
	for _, front := range fronts {
		for _, tt := range tests {
			t.Run(front.name+", "+tt.name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, allowGood+","+allowClear)
				w.upstream(front.host, front.port, echo())
				conn := w.speak(front.host, front.port)
				defer conn.Close()
				go func() { _, _ = io.WriteString(conn, strings.ReplaceAll(head, "NAME", front.host)+tt.body) }()
				resp, body := readAnswer(t, bufio.NewReader(conn))
				if resp.StatusCode != tt.status {
					t.Fatalf("status %d: %s", resp.StatusCode, body)
				}
				if tt.reason == "" {
					w.decided()
					return
				}
				if d := w.refusedLater(tt.reason, 0); resp.Header.Get(HeaderDecision) != d.ID || !strings.Contains(body, `"decision_id":"`+d.ID) {
					t.Errorf("%s, and its decision is %s", body, d.ID)
				}
			})
		}
	}
}

// An end by the policy or by a limit, before there is an answer, is told by a refusal; so it is recorded as one.
func TestEndBeforeTheAnswerIsADenial(t *testing.T) {
	const get = "GET /x HTTP/1.1\r\nHost: clear.test\r\n\r\n"
	t.Run("revoked", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, allowClear)
		asked := make(chan struct{})
		w.upstream("clear.test", 80, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(asked)
			<-r.Context().Done()
		}))
		conn := w.connect("clear.test", 80)
		_, _ = io.WriteString(conn, get)
		<-asked
		w.tighten(strings.Replace(allowClear, `"hosts"`, `"paths": ["/other"], "hosts"`, 1))
		resp, body := readAnswer(t, bufio.NewReader(conn))
		if d := w.refusedLater("revoked", 0); resp.StatusCode != 403 || resp.Header.Get(HeaderDecision) != d.ID {
			t.Errorf("%d %s, and its decision is %s", resp.StatusCode, body, d.ID)
		}
	})
	full := &LimitError{Verdict: policies.Denied(policies.ReasonBudget)}
	t.Run("no room for the upstream connection", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, allowClear)
		w.flows.last = full
		w.upstream("clear.test", 80, echo())
		conn := w.connect("clear.test", 80)
		_, _ = io.WriteString(conn, get)
		resp, body := readAnswer(t, bufio.NewReader(conn))
		if d := w.refusedLater("budget", 0); resp.StatusCode != 429 || resp.Header.Get(HeaderDecision) != d.ID {
			t.Errorf("%d %s, and its decision is %s", resp.StatusCode, body, d.ID)
		}
	})
	t.Run("no room for the relay", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, allowRaw)
		w.flows.last = full
		w.serveTCP("raw.test", 9000, func(nc *net.TCPConn) { _, _ = io.Copy(io.Discard, nc) })
		if _, err := w.connect("raw.test", 9000).Read(make([]byte, 1)); !isReset(err) {
			t.Errorf("got %v, want a reset", err)
		}
		if d := w.refusedLater("budget", 0); d.Addr == "" {
			t.Errorf("no address: %+v", d)
		}
	})
}

// A body that its client breaks off is no refusal, and not its upstream's fault.
func TestBodyThatBreaksOff(t *testing.T) {
	for _, front := range fronts {
		for _, framing := range []string{"Content-Length: 10\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhel"} {
			t.Run(front.name+", "+framing, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, allowGood+","+allowClear)
				w.upstream(front.host, front.port, echo())
				conn := w.speak(front.host, front.port).(net.Conn)
				if got := exchangeRaw(t, conn, "POST /x HTTP/1.1\r\nHost: "+front.host+"\r\n"+framing); got != "" {
					t.Errorf("answered with %q", got)
				}
				if _, end := w.decided(); end.Error != failClient {
					t.Errorf("it ended as %+v", end)
				}
			})
		}
	}
}
