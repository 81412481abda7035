package front

import (
	"io"
	"testing"
	"time"
)

// TestAnswerDoesNotWaitForABody: who is refused and never sends the body that it announced holds the connection for a moment only.
func TestAnswerDoesNotWaitForABody(t *testing.T) {
	w := newWorld(t)
	for name, sni := range map[string]string{"plain": "", "over TLS": hostA} {
		for _, framing := range []string{"Content-Length: 10", "Transfer-Encoding: chunked"} {
			nc := w.dial(sni)
			_ = nc.SetDeadline(time.Now().Add(bodyPatience + 5*time.Second))
			io.WriteString(nc, "POST / HTTP/1.1\r\nHost: other.test\r\n"+framing+"\r\n\r\n")
			answer, err := io.ReadAll(nc)
			if err != nil || len(answer) < 12 || string(answer[9:12]) != "421" {
				t.Errorf("%s, %s: %q, %v", name, framing, answer, err)
			}
		}
	}
}
