package api_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"portreeve.dev/gateway/api/apitest"
	"portreeve.dev/gateway/internal/processtest"
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

// TestBodiesOfAnOrgAreBounded: an org's requests hold no more memory together than they may, whatever the rights of their key.
func TestBodiesOfAnOrgAreBounded(t *testing.T) {
	w := apitest.New(t)
	one, two := w.Org("one").With([]string{"read"}), w.Org("two")
	host := strings.TrimSuffix(strings.TrimPrefix(w.URL, "http://"), "/api/v1")
	begin := func() net.Conn {
		nc, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		io.WriteString(nc, "POST /api/v1/sandbox/sbx_x/files/write HTTP/1.1\r\nHost: api.test\r\nAuthorization: ApiKey "+one.Key+"\r\nContent-Length: 33554432\r\n\r\n{")
		return nc
	}
	var under []net.Conn
	for range 12 { // there is room for 8; one that is refused as a small one was under way leaves its place to another
		under = append(under, begin())
	}
	small := func(c *apitest.Client) int {
		return c.Do("POST", "/sandbox/sbx_x/files/read", object{"path": "a"}).Status
	}
	processtest.Await(t, "the refusal with 256 MiB under way", func() bool { return small(one) == 429 })
	if status := small(two); status != 404 {
		t.Errorf("another org: %d", status)
	}
	for _, nc := range under {
		nc.Close()
	}
	processtest.Await(t, "the room that they leave", func() bool { return small(one) == 404 })
}
