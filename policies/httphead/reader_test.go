package httphead

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// served is what one request looked like to the handler.
type served struct{ Method, Target, Body, Trailer string }

// serve runs everything in the stream through a Reader and net/http's parser, as the server would.
func serve(t testing.TB, src io.Reader) (list []served, r *Reader) {
	t.Helper()
	r = NewReader(src)
	br := bufio.NewReader(r)
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			return list, r
		}
		body, err := io.ReadAll(req.Body)
		s := served{Method: req.Method, Target: req.RequestURI, Body: string(body), Trailer: req.Trailer.Get("X-Sum")}
		if err != nil {
			s.Body += "!"
		}
		list = append(list, s)
		if err != nil {
			return list, r
		}
	}
}

const (
	get     = "GET /a HTTP/1.1\r\nHost: good.test\r\n\r\n"
	post    = "POST /b HTTP/1.1\r\nHost: good.test\r\nContent-Length: 5\r\n\r\nhello"
	chunked = "POST /c HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nA\r\n, chunking\r\n0\r\nX-Sum: 1\r\n\r\n"
)

var (
	servedGet     = served{Method: "GET", Target: "/a"}
	servedPost    = served{Method: "POST", Target: "/b", Body: "hello"}
	servedChunked = served{Method: "POST", Target: "/c", Body: "hello, chunking", Trailer: "1"}
	servedRefused = served{Method: Refused, Target: "/"}
)

// slices returns the stream at once and byte by byte: the result must not depend on it.
func slices(in string) map[string]io.Reader {
	return map[string]io.Reader{"at once": strings.NewReader(in), "byte by byte": iotest.OneByteReader(strings.NewReader(in))}
}

func TestEachPipelinedHeadIsChecked(t *testing.T) {
	const evil = "GET /evil HTTP/1.1\r\nHost: good.test\r\nHost: evil.test\r\n\r\n"
	tests := []struct {
		name, in string
		want     []served
		refused  bool
	}{
		{"three good ones", get + post + chunked + get, []served{servedGet, servedPost, servedChunked, servedGet}, false},
		{"a bad one first", evil + get, []served{servedRefused}, true},
		{"a bad one behind a good one", get + evil + get, []served{servedGet, servedRefused}, true},
		{"a bad one behind a body", post + evil + get, []served{servedPost, servedRefused}, true},
		{"a bad one behind chunks", chunked + evil + get, []served{servedChunked, servedRefused}, true},
		{"a body that looks like a request", strings.Replace(post, "5", "71", 1) + strings.Repeat("x", 10) + evil, []served{
			{Method: "POST", Target: "/b", Body: ("hello" + strings.Repeat("x", 10) + evil)}}, false},
		{"HTTP/2 with prior knowledge", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []served{servedRefused}, true},
		{"half a head", get + "GET /x HT", []served{servedGet}, false},
	}
	for _, tt := range tests {
		for way, src := range slices(tt.in) {
			t.Run(tt.name+", "+way, func(t *testing.T) {
				got, r := serve(t, src)
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Error(diff)
				}
				if refused := r.Refusal() != nil; refused != tt.refused {
					t.Errorf("refused: %v", r.Refusal())
				}
			})
		}
	}
}

// ambiguousChunks are bodies that must fail, by what is wrong with them.
var ambiguousChunks = map[string]string{
	"bare LF behind a size":         "5\nhello\r\n0\r\n\r\n",
	"bare LF behind a chunk":        "5\r\nhello\n0\r\n\r\n",
	"a chunk longer than its size":  "5\r\nhello!\r\n0\r\n\r\n",
	"a chunk shorter than its size": "6\r\nhello\r\n0\r\n\r\n",
	"an extension":                  "5;a=b\r\nhello\r\n0\r\n\r\n",
	"a space behind the size":       "5 \r\nhello\r\n0\r\n\r\n",
	"a signed size":                 "+5\r\nhello\r\n0\r\n\r\n",
	"a size with a prefix":          "0x5\r\nhello\r\n0\r\n\r\n",
	"no size":                       "\r\nhello\r\n0\r\n\r\n",
	"a size that overflows":         "10000000000000005\r\nhello\r\n0\r\n\r\n",
	"a trailer that frames":         "0\r\nContent-Length: 5\r\n\r\n",
	"a trailer that authorizes":     "0\r\nAuthorization: x\r\n\r\n",
	"a folded trailer":              "0\r\nX: y\r\n z\r\n\r\n",
	"a trailer with bare LF":        "0\r\nX: y\n\r\n",
	"a trailer without colon":       "0\r\nX\r\n\r\n",
	"too many trailers":             "0\r\n" + strings.Repeat("X: y\r\n", MaxLines+1) + "\r\n",
	"trailers without end":          "0\r\nX: " + strings.Repeat("y", MaxHead) + "\r\n\r\n",
}

func TestAmbiguousChunksAreRefused(t *testing.T) {
	head := "POST /c HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n"
	got, r := serve(t, strings.NewReader(head+"5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"+get))
	if len(got) != 2 || r.Refusal() != nil {
		t.Fatalf("the allowed twin: %v, %v", got, r.Refusal())
	}
	most := "0\r\nX-Sum: 1\r\n" + strings.Repeat("X: y\r\n", MaxLines-1) + "\r\n" // beside the head's own lines
	if got, r := serve(t, strings.NewReader(head+most+get)); len(got) != 2 || r.Refusal() != nil {
		t.Errorf("as many trailers as may be: %v, %v", got, r.Refusal())
	}
	for name, body := range ambiguousChunks {
		for way, src := range slices(head + body + get) {
			t.Run(name+", "+way, func(t *testing.T) {
				got, r := serve(t, src)
				if len(got) != 1 || !strings.HasSuffix(got[0].Body, "!") {
					t.Errorf("the body passed: %q", got)
				}
				if r.Refusal() == nil {
					t.Error("no refusal")
				}
			})
		}
	}
}

func TestHeadIsBounded(t *testing.T) {
	endless := func(s string) io.Reader {
		return io.MultiReader(strings.NewReader(s), &repeating{b: []byte("abcdefgh")})
	}
	tests := map[string]io.Reader{
		"a line without end":         endless("GET / HTTP/1.1\r\nHost: good.test\r\nA: "),
		"a target without end":       endless("GET /"),
		"lines without end":          io.MultiReader(strings.NewReader("GET / HTTP/1.1\r\n"), &repeating{b: []byte("A: b\r\n")}),
		"no request line at all":     &repeating{b: []byte("ABCDEFGH")},
		"one byte past the limit":    strings.NewReader(headOf(MaxHead + 1)),
		"a hundred and one lines":    strings.NewReader(good + strings.Repeat("A: b\r\n", MaxLines) + "\r\n"),
		"one past, one byte a piece": iotest.OneByteReader(strings.NewReader(headOf(MaxHead + 1))),
	}
	for name, src := range tests {
		t.Run(name, func(t *testing.T) {
			counted := &counting{Reader: src}
			got, r := serve(t, counted)
			if diff := cmp.Diff([]served{servedRefused}, got); diff != "" {
				t.Error(diff)
			}
			if err := r.Refusal(); err == nil || err.Status != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("refusal %v", err)
			}
			if counted.n > 2*MaxHead || cap(r.buf) > 2*MaxHead {
				t.Errorf("%d bytes were read, %d are held", counted.n, cap(r.buf))
			}
		})
	}
	if got, r := serve(t, strings.NewReader(headOf(MaxHead))); len(got) != 1 || r.Refusal() != nil {
		t.Errorf("just inside: %v", r.Refusal())
	}
}

// headOf returns a good head of n bytes.
func headOf(n int) string {
	return good + "A: " + strings.Repeat("b", n-len(good)-len("A: \r\n\r\n")) + "\r\n\r\n"
}

type repeating struct{ b []byte }

func (r *repeating) Read(p []byte) (int, error) {
	n := 0
	for n+len(r.b) <= len(p) {
		n += copy(p[n:], r.b)
	}
	if n == 0 {
		n = copy(p, r.b)
	}
	return n, nil
}

type counting struct {
	io.Reader
	n int
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

func TestOnHeadFramesEachHead(t *testing.T) {
	var got []bool
	r := NewReader(iotest.OneByteReader(strings.NewReader(get + post + get[:9])))
	r.OnHead = func(begun bool) { got = append(got, begun) }
	_, _ = io.Copy(io.Discard, r)
	if diff := cmp.Diff([]bool{true, false, true, false, true}, got); diff != "" {
		t.Error(diff)
	}
	got = nil // a head that is refused is waited for no longer
	r = NewReader(iotest.OneByteReader(strings.NewReader("GET /a b HTTP/1.1\r\nHost: good.test\r\n\r\n")))
	r.OnHead = func(begun bool) { got = append(got, begun) }
	_, _ = io.Copy(io.Discard, r)
	if diff := cmp.Diff([]bool{true, false}, got); diff != "" || r.Refusal() == nil {
		t.Error(diff, r.Refusal())
	}
}

func TestReleasePassesEverythingOn(t *testing.T) {
	r := NewReader(strings.NewReader(get + "\x81\x05hello"))
	head := make([]byte, len(get))
	if _, err := io.ReadFull(r, head); err != nil {
		t.Fatal(err)
	}
	r.Release()
	rest, err := io.ReadAll(r)
	if err != nil || string(rest) != "\x81\x05hello" {
		t.Errorf("got %q, %v", rest, err)
	}
}

// A deadline that passes in the middle of a head must not lose or double a byte: net/http aborts its own reads that way.
func TestInterruptedReadGoesOn(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	r := NewReader(server)
	sent := make(chan error, 1)
	for _, piece := range []string{get[:7], get[7:20], get[20:]} {
		go func() { _, err := io.WriteString(client, piece); sent <- err }()
		buf := make([]byte, 1)
		if piece == get[20:] {
			all := make([]byte, len(get))
			if _, err := io.ReadFull(r, all); err != nil || string(all) != get {
				t.Fatalf("got %q, %v", all, err)
			}
			return
		}
		read := make(chan error, 1)
		go func() { _, err := r.Read(buf); read <- err }()
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		server.SetReadDeadline(time.Unix(1, 0))
		var timeout net.Error
		if err := <-read; !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Fatalf("got %v", err)
		}
		server.SetReadDeadline(time.Time{})
	}
}

// FuzzReader holds two things: what comes out doesn't depend on how the bytes arrive, and nothing comes out that isn't the
// client's own, but the stand-in at the end.
func FuzzReader(f *testing.F) {
	f.Add([]byte(get + post + chunked + get))
	for _, body := range ambiguousChunks {
		f.Add([]byte("POST /c HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n" + body + get))
	}
	for _, head := range ambiguousHeads {
		f.Add([]byte(get + head))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		whole, err1 := io.ReadAll(NewReader(bytes.NewReader(in)))
		pieces, err2 := io.ReadAll(NewReader(iotest.OneByteReader(bytes.NewReader(in))))
		cut := func(b []byte) []byte { return bytes.TrimSuffix(b, []byte(standIn)) }
		if !bytes.HasPrefix(in, cut(whole)) || !bytes.HasPrefix(in, cut(pieces)) {
			t.Fatal("something else came out than went in")
		}
		if (err1 == nil) != (err2 == nil) || !bytes.Equal(whole, pieces) && err1 == nil {
			t.Fatalf("at once %d bytes (%v), in pieces %d (%v)", len(whole), err1, len(pieces), err2)
		}
		// The server must find exactly our heads: the next one where we said it is.
		list, _ := serve(t, bytes.NewReader(in))
		for _, s := range list {
			if s.Method == Refused && s != servedRefused {
				t.Fatalf("a client sent the stand-in: %v", s)
			}
		}
	})
}

// BenchmarkReader watches the guard on a connection that is kept alive.
func BenchmarkReader(b *testing.B) {
	src := &repeating{b: []byte(get)}
	r := NewReader(src)
	buf := make([]byte, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
}
