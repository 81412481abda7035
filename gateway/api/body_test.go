package api_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"portreeve.dev/gateway/api/apitest"
)

// TestAnswerDoesNotWaitForABody: who has no key and never sends the body that it announced holds the connection for a moment only.
func TestAnswerDoesNotWaitForABody(t *testing.T) {
	w := apitest.New(t)
	nc, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(w.URL, "http://"), "/api/v1"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(nc, "POST /api/v1/sandbox/create HTTP/1.1\r\nHost: api.test\r\nContent-Length: 10\r\n\r\n")
	answer, err := io.ReadAll(nc)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 401 ") {
		t.Errorf("%q, %v", answer, err)
	}
}
