package httphead

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

const good = "GET /v1/x?y=1 HTTP/1.1\r\nHost: good.test\r\n"

func TestOrdinaryHeadsPass(t *testing.T) {
	tests := []struct {
		name, in string
		length   int64
		chunked  bool
	}{
		{"no body", good + "\r\n", -1, false},
		{"a length", "POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 5\r\n\r\n", 5, false},
		{"chunked", "POST / HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: Chunked\r\n\r\n", -1, true},
		{"HTTP/1.0", "GET / HTTP/1.0\r\nhost:good.test\r\n\r\n", -1, false},
		{"a port", "GET / HTTP/1.1\r\nHost: good.test:8443\r\n\r\n", -1, false},
		{"an IPv6 host", "GET / HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n\r\n", -1, false},
		{"absolute form of the same authority", "GET http://GOOD.test/x HTTP/1.1\r\nHost: good.test\r\n\r\n", -1, false},
		{"an escape, and a percent sign in the query", "GET /v1/%41?x=%zz HTTP/1.1\r\nHost: good.test\r\n\r\n", -1, false},
		{"expect", good + "Expect: 100-Continue\r\n\r\n", -1, false},
		{"empty and spaced values", good + "A:\r\nB: \t x \t\r\n\r\n", -1, false},
		{"bytes over 127 in a value", good + "A: \xc3\xb6\r\n\r\n", -1, false},
		{"an extension method", "M-SEARCH / HTTP/1.1\r\nHost: good.test\r\n\r\n", -1, false},
		{"as many lines as may be", good + strings.Repeat("A: b\r\n", MaxLines-1) + "\r\n", -1, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, err := Parse([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if h.ContentLength != tt.length || h.Chunked != tt.chunked {
				t.Errorf("length %d, chunked %v", h.ContentLength, h.Chunked)
			}
		})
	}
}

// ambiguousHeads are heads that must not pass, by what is wrong with them.
var ambiguousHeads = map[string]string{
	"a percent sign without its escape":  "GET /v1/%zz HTTP/1.1\r\nHost: good.test\r\n\r\n",
	"half an escape at the end":          "GET /v1/%4 HTTP/1.1\r\nHost: good.test\r\n\r\n",
	"no Host":                            "GET / HTTP/1.1\r\n\r\n",
	"no Host in HTTP/1.0":                "GET / HTTP/1.0\r\n\r\n",
	"two Hosts":                          good + "Host: evil.test\r\n\r\n",
	"two equal Hosts":                    good + "Host: good.test\r\n\r\n",
	"space before the colon":             "GET / HTTP/1.1\r\nHost : good.test\r\n\r\n",
	"tab before the colon":               good + "X\t: y\r\n\r\n",
	"a folded Host":                      "GET / HTTP/1.1\r\nHost:\r\n good.test\r\n\r\n",
	"a folded line":                      good + "A: b\r\n\tc\r\n\r\n",
	"space before the first name":        "GET / HTTP/1.1\r\n Host: good.test\r\n\r\n",
	"empty Host":                         "GET / HTTP/1.1\r\nHost:\r\n\r\n",
	"userinfo in Host":                   "GET / HTTP/1.1\r\nHost: good.test@evil.test\r\n\r\n",
	"userinfo with a port in Host":       "GET / HTTP/1.1\r\nHost: good.test:80@evil.test\r\n\r\n",
	"a path in Host":                     "GET / HTTP/1.1\r\nHost: good.test/x\r\n\r\n",
	"a list in Host":                     "GET / HTTP/1.1\r\nHost: good.test,evil.test\r\n\r\n",
	"percent in Host":                    "GET / HTTP/1.1\r\nHost: evil.test%00.good.test\r\n\r\n",
	"NUL in Host":                        "GET / HTTP/1.1\r\nHost: evil.test\x00.good.test\r\n\r\n",
	"bytes over 127 in Host":             "GET / HTTP/1.1\r\nHost: \xe2\x93\x96ood.test\r\n\r\n",
	"an empty port":                      "GET / HTTP/1.1\r\nHost: good.test:\r\n\r\n",
	"port zero":                          "GET / HTTP/1.1\r\nHost: good.test:0\r\n\r\n",
	"a padded port":                      "GET / HTTP/1.1\r\nHost: good.test:0443\r\n\r\n",
	"a port that wraps":                  "GET / HTTP/1.1\r\nHost: good.test:65979\r\n\r\n",
	"a named port":                       "GET / HTTP/1.1\r\nHost: good.test:https\r\n\r\n",
	"a zone":                             "GET / HTTP/1.1\r\nHost: [fe80::1%eth0]\r\n\r\n",
	"an open bracket":                    "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n",
	"brackets around a name":             "GET / HTTP/1.1\r\nHost: [evil.test]\r\n\r\n",
	"length and chunked":                 good + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
	"chunked and length":                 good + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
	"two lengths":                        good + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
	"two equal lengths":                  good + "Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
	"a list of lengths":                  good + "Content-Length: 5, 5\r\n\r\n",
	"a signed length":                    good + "Content-Length: +5\r\n\r\n",
	"a negative length":                  good + "Content-Length: -5\r\n\r\n",
	"a hexadecimal length":               good + "Content-Length: 0x5\r\n\r\n",
	"an empty length":                    good + "Content-Length: \r\n\r\n",
	"a length that overflows":            good + "Content-Length: 9999999999999999999\r\n\r\n",
	"chunked and identity":               good + "Transfer-Encoding: chunked, identity\r\n\r\n",
	"gzip and chunked":                   good + "Transfer-Encoding: gzip, chunked\r\n\r\n",
	"chunked twice":                      good + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
	"identity":                           good + "Transfer-Encoding: identity\r\n\r\n",
	"xchunked":                           good + "Transfer-Encoding: xchunked\r\n\r\n",
	"a spaced Transfer-Encoding":         good + "Transfer-Encoding : chunked\r\n\r\n",
	"a vertical tab in it":               good + "Transfer-Encoding: \x0bchunked\r\n\r\n",
	"chunked in HTTP/1.0":                "POST / HTTP/1.0\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n",
	"bare LF":                            "GET / HTTP/1.1\nHost: good.test\n\n",
	"one bare LF":                        good + "A: b\n\r\n",
	"bare CR in a value":                 good + "A: b\rHost: evil.test\r\n\r\n",
	"NUL in a value":                     good + "A: b\x00c\r\n\r\n",
	"DEL in a value":                     good + "A: b\x7f\r\n\r\n",
	"no colon":                           good + "A\r\n\r\n",
	"an empty name":                      good + ": b\r\n\r\n",
	"a comma in a name":                  good + "A,B: c\r\n\r\n",
	"bytes over 127 in a name":           good + "\xc3\xb6: c\r\n\r\n",
	"absolute form of another":           "GET http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
	"absolute form of another port":      "GET http://good.test:81/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
	"absolute form with userinfo":        "GET http://good.test@evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
	"absolute form without path":         "GET http://good.test?x HTTP/1.1\r\nHost: good.test\r\n\r\n",
	"absolute form of another scheme":    "GET ftp://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
	"a bare authority":                   "GET good.test HTTP/1.1\r\nHost: good.test\r\n\r\n",
	"asterisk":                           "OPTIONS * HTTP/1.1\r\nHost: good.test\r\n\r\n",
	"a fragment":                         "GET /x#y HTTP/1.1\r\nHost: good.test\r\n\r\n",
	"a space in the target":              "GET /x y HTTP/1.1\r\nHost: good.test\r\n\r\n",
	"a tab in the target":                "GET /x\ty HTTP/1.1\r\nHost: good.test\r\n\r\n",
	"a NUL in the target":                "GET /\x00 HTTP/1.1\r\nHost: good.test\r\n\r\n",
	"bytes over 127 in the target":       "GET /\xc3\xb6 HTTP/1.1\r\nHost: good.test\r\n\r\n",
	"two spaces":                         "GET  / HTTP/1.1\r\nHost: good.test\r\n\r\n",
	"space at the end of the line":       "GET / HTTP/1.1 \r\nHost: good.test\r\n\r\n",
	"HTTP/0.9":                           "GET /\r\n\r\n",
	"lower-case version":                 "GET / http/1.1\r\nHost: good.test\r\n\r\n",
	"lower-case method":                  "get / HTTP/1.1\r\nHost: good.test\r\n\r\n",
	"a method with a quote":              "G'ET / HTTP/1.1\r\nHost: good.test\r\n\r\n",
	"an empty line first":                "\r\n" + good + "\r\n",
	"something behind the end":           good + "\r\nx",
	"no end":                             good,
	"Content-Length hidden by a fold":    good + "A: b\r\n Content-Length: 5\r\n\r\n",
	"the stand-in's method":              Refused + " / HTTP/1.1\r\nHost: good.test\r\n\r\n",
	"a Host of three hundred characters": "GET / HTTP/1.1\r\nHost: " + strings.Repeat("a", 300) + "\r\n\r\n",
}

func TestAmbiguousHeadIsRefused(t *testing.T) {
	for name, in := range ambiguousHeads {
		t.Run(name, func(t *testing.T) {
			if h, err := Parse([]byte(in)); err == nil {
				t.Errorf("passed as %s %s to %s", h.Method, h.Target, h.Host)
			}
		})
	}
}

func TestRefusalsHaveTheirStatus(t *testing.T) {
	tests := map[string]struct {
		in     string
		status int
	}{
		"TRACE":                    {"TRACE / HTTP/1.1\r\nHost: good.test\r\n\r\n", 405},
		"CONNECT":                  {"CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:443\r\n\r\n", 405},
		"HTTP/2 in the clear":      {"PRI * HTTP/2.0\r\n\r\n", 505},
		"HTTP/1.2":                 {"GET / HTTP/1.2\r\nHost: good.test\r\n\r\n", 505},
		"an unknown expectation":   {good + "Expect: a miracle\r\n\r\n", 417},
		"a line too many":          {good + strings.Repeat("A: b\r\n", MaxLines) + "\r\n", 431},
		"a byte too many":          {good + "A: " + strings.Repeat("b", MaxHead) + "\r\n\r\n", 431},
		"everything else":          {"GET / HTTP/1.1\r\n\r\n", 400},
		"two equal Transfer codes": {good + "Transfer-Encoding: chunked, chunked\r\n\r\n", 400},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse([]byte(tt.in)); err == nil || err.Status != tt.status {
				t.Errorf("got %v, want status %d", err, tt.status)
			}
		})
	}
}

// FuzzHead holds net/http beside us: each head that we let through, it reads exactly as we did.
func FuzzHead(f *testing.F) {
	f.Add([]byte(good + "\r\n"))
	f.Add([]byte("POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n"))
	f.Add([]byte("POST / HTTP/1.0\r\nHost: [::1]:80\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n"))
	for _, in := range ambiguousHeads {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		h, refusal := Parse(in)
		if refusal != nil {
			return
		}
		// net/http takes what follows a head for the body: what is left over says where it saw the head end.
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(in)))
		if err != nil {
			return // stricter still: nothing gets through
		}
		theirs := fmt.Sprintln(req.Method, req.RequestURI, strings.ToLower(req.Host), req.ProtoMinor)
		ours := fmt.Sprintln(string(h.Method), string(h.Target), strings.ToLower(string(h.Host)), h.Minor)
		if theirs != ours {
			t.Errorf("net/http reads %q, we %q", theirs, ours)
		}
		length := max(h.ContentLength, 0)
		if h.Chunked {
			length = -1
		}
		if req.ContentLength != length {
			t.Errorf("net/http reads the length %d, we %d", req.ContentLength, length)
		}
		if h.Chunked != (len(req.TransferEncoding) == 1 && req.TransferEncoding[0] == "chunked") {
			t.Errorf("net/http reads the coding %q, we chunked %v", req.TransferEncoding, h.Chunked)
		}
	})
}

// BenchmarkParse watches what the strict front costs each request beside net/http's own parsing.
func BenchmarkParse(b *testing.B) {
	in := []byte("GET /v1/models?limit=20 HTTP/1.1\r\nHost: api.good.test\r\nUser-Agent: python-httpx/0.27\r\nAccept: */*\r\n" +
		"Accept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\nContent-Type: application/json\r\nAuthorization: Bearer x\r\n\r\n")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(in); err != nil {
			b.Fatal(err)
		}
	}
}

// Each byte is let through where the grammar has it, and nowhere else (RFC 3986, section 3; RFC 9110, sections 5.1 and 5.5).
func TestEveryByteInItsPlace(t *testing.T) {
	const alphanumeric = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	for c := range 256 {
		b := string([]byte{byte(c)})
		for place, tt := range map[string]struct {
			in     string
			passes bool
		}{
			"a query": {"GET /?x" + b + "y HTTP/1.1\r\nHost: good.test\r\n\r\n", c > ' ' && c <= '~' && c != '#'},
			"a name":  {good + "X" + b + "Y: v\r\n\r\n", c == ':' || strings.Contains(alphanumeric+"!#$%&'*+-.^_`|~", b)},
			"a value": {good + "X: a" + b + "c\r\n\r\n", c == '\t' || c >= ' ' && c != 0x7f},
		} {
			if _, err := Parse([]byte(tt.in)); (err == nil) != tt.passes {
				t.Errorf("%q in %s: %v", b, place, err)
			}
		}
	}
}

// A name is another one from its first byte on to its last, however long it is.
func TestNamesAreToldApart(t *testing.T) {
	for _, line := range []string{"Cost: x", "Hosu: x", "Xontent-Length: x", "Content-Lengti: x", "Xransfer-Encoding: x", "Transfer-Encodinh: x", "Xxpect: x", "Expecu: x"} {
		h, err := Parse([]byte(good + line + "\r\n\r\n"))
		if err != nil || string(h.Host) != "good.test" || h.ContentLength != -1 || h.Chunked {
			t.Errorf("%s: %+v, %v", line, h, err)
		}
	}
	for _, line := range []string{"Host: x", "Content-Length: x", "Transfer-Encoding: xhunked", "Transfer-Encoding: chunkee", "Expect: 200-continue", "Expect: 100-continuf"} {
		if h, err := Parse([]byte(good + line + "\r\n\r\n")); err == nil {
			t.Errorf("%s: %+v", line, h)
		}
	}
}
