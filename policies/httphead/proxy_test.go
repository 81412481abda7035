package httphead

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

func TestProxyHeadNamesOneDestination(t *testing.T) {
	for name, c := range map[string]struct {
		head   string
		status int // 0: let through
	}{
		"CONNECT with its authority as Host":     {"CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:443\r\n\r\n", 0},
		"CONNECT with the bare name as Host":     {"CONNECT good.test:443 HTTP/1.1\r\nHost: Good.test\r\n\r\n", 0},
		"CONNECT without Host in HTTP/1.0":       {"CONNECT good.test:443 HTTP/1.0\r\n\r\n", 0},
		"CONNECT to an IPv6 address":             {"CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n\r\n", 0},
		"CONNECT that says it has no body":       {"CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:443\r\nContent-Length: 0\r\n\r\n", 0},
		"absolute form":                          {"GET http://good.test/a HTTP/1.1\r\nHost: good.test\r\n\r\n", 0},
		"absolute form without a path":           {"GET http://good.test HTTP/1.1\r\nHost: good.test\r\n\r\n", 0},
		"CONNECT without Host in HTTP/1.1":       {"CONNECT good.test:443 HTTP/1.1\r\n\r\n", 400},
		"CONNECT with another Host (B07)":        {"CONNECT good.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", 400},
		"CONNECT with another port in Host":      {"CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:8443\r\n\r\n", 400},
		"CONNECT with two Hosts (B09)":           {"CONNECT good.test:443 HTTP/1.1\r\nHost: good.test\r\nHost: good.test\r\n\r\n", 400},
		"CONNECT with a space before the colon":  {"CONNECT good.test:443 HTTP/1.1\r\nHost : good.test\r\n\r\n", 400},
		"CONNECT with a folded line":             {"CONNECT good.test:443 HTTP/1.1\r\nHost: good.test\r\n evil.test\r\n\r\n", 400},
		"CONNECT with user information (B22)":    {"CONNECT good.test:443@evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", 400},
		"CONNECT without a port (B25)":           {"CONNECT good.test HTTP/1.1\r\nHost: good.test\r\n\r\n", 400},
		"CONNECT to port 0":                      {"CONNECT good.test:0 HTTP/1.1\r\nHost: good.test:0\r\n\r\n", 400},
		"CONNECT to a padded port":               {"CONNECT good.test:00443 HTTP/1.1\r\nHost: good.test:00443\r\n\r\n", 400},
		"CONNECT to a port that wraps":           {"CONNECT good.test:65979 HTTP/1.1\r\nHost: good.test:65979\r\n\r\n", 400},
		"CONNECT to a port by name":              {"CONNECT good.test:https HTTP/1.1\r\nHost: good.test:https\r\n\r\n", 400},
		"CONNECT with a path":                    {"CONNECT good.test:443/path HTTP/1.1\r\nHost: good.test:443\r\n\r\n", 400},
		"CONNECT with a NUL (B15)":               {"CONNECT evil.test\x00.good.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n", 400},
		"CONNECT with an escaped NUL":            {"CONNECT evil.test%00.good.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n", 400},
		"CONNECT to an empty name":               {"CONNECT :443 HTTP/1.1\r\nHost: good.test\r\n\r\n", 400},
		"CONNECT to an address without its port": {"CONNECT [2001:db8::1] HTTP/1.1\r\nHost: [2001:db8::1]\r\n\r\n", 400},
		"CONNECT in absolute form":               {"CONNECT http://good.test:443/ HTTP/1.1\r\nHost: good.test:443\r\n\r\n", 400},
		"CONNECT with a body":                    {"CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:443\r\nContent-Length: 4\r\n\r\n", 400},
		"CONNECT with a chunked body":            {"CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:443\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
		"lower case":                             {"connect good.test:443 HTTP/1.1\r\nHost: good.test:443\r\n\r\n", 400},
		"absolute form with another Host (B08)":  {"GET http://good.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", 400},
		"absolute form with user information":    {"GET http://good.test@evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", 400},
		"absolute form of https":                 {"GET https://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", 400},
		"origin form":                            {"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n", 400},
		"both framings (B65)":                    {"POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
		"two lengths":                            {"POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\n", 400},
		"TRACE (B14)":                            {"TRACE http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", 405},
		"HTTP/2 by prior knowledge":              {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
		"bytes that are no HTTP":                 {"\x16\x03\x01\x02\x00", 400},
		"a line without CR":                      {"CONNECT good.test:443 HTTP/1.1\nHost: good.test:443\n\n", 400},
		"a head over the limit (B75)":            {"GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\nX: " + strings.Repeat("a", MaxHead), 431},
		"too many lines":                         {"GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n" + strings.Repeat("X: a\r\n", MaxLines+1) + "\r\n", 431},
	} {
		t.Run(name, func(t *testing.T) {
			const behind = "\x16\x03 behind"
			for way, src := range map[string]io.Reader{
				"at once":      strings.NewReader(c.head + behind),
				"byte by byte": iotest.OneByteReader(strings.NewReader(c.head + behind)),
			} {
				_, head, rest, err := ReadProxy(src)
				var refusal *Refusal
				switch {
				case c.status == 0 && err != nil:
					t.Errorf("%s: %v", way, err)
				case c.status == 0:
					left, _ := io.ReadAll(src)
					if string(head) != c.head || string(rest)+string(left) != behind {
						t.Errorf("%s: head %q, behind it %q", way, head, string(rest)+string(left))
					}
				case !errors.As(err, &refusal) || refusal.Status != c.status:
					t.Errorf("%s: %v, want status %d", way, err, c.status)
				}
			}
		})
	}
}

func TestProxyHeadThatEndsEarly(t *testing.T) {
	for _, sent := range []string{"", "CONNECT good.test", "CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:443\r\n"} {
		if _, _, _, err := ReadProxy(strings.NewReader(sent)); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v", sent, err)
		}
	}
}

// What is let through must mean to net/http what it meant here.
func FuzzProxyHead(f *testing.F) {
	f.Add([]byte("CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:443\r\n\r\n"))
	f.Add([]byte("GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, refusal := ParseProxy(b)
		if refusal != nil {
			return
		}
		r, err := http.ReadRequest(newBufioReader(b))
		if err != nil {
			return // stricter than us is fine
		}
		if h.Connect() != (r.Method == http.MethodConnect) {
			t.Fatalf("CONNECT here %v, there %q", h.Connect(), r.Method)
		}
		if h.Connect() && !strings.EqualFold(r.URL.Host, string(h.Target)) || !h.Connect() && !strings.EqualFold(r.Host, string(h.Host)) {
			t.Fatalf("destination %q and %q here, %q and %q there", h.Target, h.Host, r.URL.Host, r.Host)
		}
	})
}

func newBufioReader(b []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(b)) }
